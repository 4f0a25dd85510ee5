"""Find our own errors in what Spark says of a failed task."""

from __future__ import annotations

import re

from anabranch import errors
from anabranch.errors import AnabranchError


def find_task_error(text: str) -> AnabranchError | None:
    """Return the error that a task raised on purpose, or None: running the job again would only repeat it."""
    for match in re.finditer(r"^(?:\w+\.)*(\w+): (.+)$", text, re.MULTILINE):
        kind = _KINDS.get(match[1])
        if kind is not None:
            return kind(match[2].strip())
    return None


def _all_below(kind: type[AnabranchError]) -> list[type[AnabranchError]]:
    return [kind, *(found for direct in kind.__subclasses__() for found in _all_below(direct))]


_KINDS: dict[str, type[AnabranchError]] = {
    # Errors that a room made for itself may take other arguments: their public base speaks for them.
    kind.__name__: getattr(errors, kind.__name__, kind.__mro__[1])
    for kind in _all_below(AnabranchError)
}

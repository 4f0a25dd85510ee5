"""Offsets of a consumer group that nobody reads by: tools that show a group's lag see how far a flow is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from anabranch.connectors.kafka_topics.cluster import TopicPart
from anabranch.connectors.kafka_topics.planner import Position
from anabranch.errors import FlowError, SourceError

OUR_GROUPS = "anabranch-"
"""How the groups begin whose offsets are marks of what was written to topics."""
PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""So long after a failure it is tried again: brokers that have just started, or elect, are soon well."""
LAST_SECONDS = 5.0
"""So long a run that ends waits for its last offsets."""

logger = logging.getLogger("anabranch")


class CommitsOffsets(Protocol):
    """The one thing that is asked of a cluster here."""

    def commit_offsets(self, group: str, offsets: Mapping[TopicPart, int]) -> None:
        """Set a group's offsets."""
        ...


class GroupOffsets:
    """Commits the newest position that it was told of, in a thread of its own; if that fails, the flow goes on."""

    def __init__(
        self, connect: Callable[[], CommitsOffsets], group: str, pauses_seconds: Sequence[float] = PAUSES_SECONDS
    ) -> None:
        self._connect = connect
        self._group = group
        self._pauses_seconds = pauses_seconds
        self._changed = threading.Condition()
        self._wanted: dict[TopicPart, int] | None = None
        self._ends_at: float | None = None
        self._failures = 0
        self._may_pass = True
        self._thread: threading.Thread | None = None

    def tell(self, position: dict[str, Any]) -> None:
        """Commit a position of the split log soon; the next one takes its place if it was not committed by then."""
        with self._changed:
            self._wanted = Position.from_json(position).next
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, daemon=True, name="anabranch-group-offsets")
            self._thread.start()

    def close(self) -> None:
        """Commit what is left, unless that takes long."""
        with self._changed:
            self._ends_at = time.monotonic() + LAST_SECONDS
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(LAST_SECONDS)

    def _follow(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted is not None or self._ends_at is not None)
                offsets, self._wanted = self._wanted, None
            if offsets is None:
                return
            if not self._commit(offsets) and not self._wait_after_failure(offsets):
                return

    def _wait_after_failure(self, offsets: dict[TopicPart, int]) -> bool:
        """Wait until it is worth another try, of these offsets or of newer ones; say whether it is at all."""
        with self._changed:
            self._wanted = self._wanted or offsets
            pause_seconds = self._pauses_seconds[min(self._failures, len(self._pauses_seconds)) - 1]
            if self._ends_at is None:
                # What is told meanwhile would meet the same answer.
                self._changed.wait_for(lambda: self._ends_at is not None, pause_seconds)
                return True
        time.sleep(min(pause_seconds, self._pauses_seconds[0]))
        return self._may_pass and time.monotonic() < self._ends_at

    def _commit(self, offsets: Mapping[TopicPart, int]) -> bool:
        try:
            if offsets:
                self._connect().commit_offsets(self._group, offsets)
        except Exception as error:
            if not self._failures:
                logger.warning(
                    "the offsets of the consumer group %s cannot be committed (%s); the flow goes on",
                    self._group,
                    error,
                )
            self._failures += 1
            # Rights and members of a group are not mended in the seconds that a run has left.
            self._may_pass = not isinstance(error, SourceError)
            return False
        if self._failures:
            logger.warning("the consumer group %s has the flow's offsets again", self._group)
        self._failures = 0
        return True


def check_group(group: object) -> None:
    """Raise ``FlowError`` for what is no name of a consumer group, or that of one of ours."""
    if not isinstance(group, str) or not group.strip():
        msg = (
            f"commit_group is the name of a consumer group for tools to look at, found {group!r}; give a text, or None"
        )
        raise FlowError(msg)
    if group.startswith(OUR_GROUPS):
        msg = (
            f"commit_group is {group!r}; groups that begin with {OUR_GROUPS!r} hold marks of what flows wrote to "
            "topics, and offsets among them would undo these: choose another name"
        )
        raise FlowError(msg)

"""Hosts that are to go, and wait until the copies of state that stand there are elsewhere; but not for ever."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.engine.batches.replicas.problem import Known
from anabranch.model.cluster import ReleaseWait

RELEASE_WAIT_SECONDS = 120.0
"""So long hosts wait at most."""


class AwaitedCopies:
    """Remembers since when hosts are to go."""

    def __init__(self) -> None:
        self._since: tuple[frozenset[str], float] | None = None

    def find_wait(
        self, known: Known, host_of: Mapping[str, str], *, are_elsewhere: bool, problem: str, now_seconds: float
    ) -> ReleaseWait:
        """Return executors that are to go with their host, and must not yet.

        ``are_elsewhere``: all replicas that the other hosts have room for stand there. ``problem`` is why that may
        take longer.
        """
        going = known.list_going(host_of)
        if not going:
            self._since = None
            return ReleaseWait()
        if self._since is None or not self._since[0] & going:
            self._since = going, now_seconds
        if are_elsewhere:
            return ReleaseWait()
        told, waited = f"copies of state that stand on {', '.join(sorted(going))}", now_seconds - self._since[1]
        if waited >= RELEASE_WAIT_SECONDS:
            why = f": {problem}" if problem else ""
            return ReleaseWait(reason=f"nobody waits longer than {waited:.0f} s for {told} to be all elsewhere{why}")
        held = frozenset(one.id for one in known.executors if host_of[one.id] in going)
        return ReleaseWait(held, f"{told} are not all elsewhere yet")

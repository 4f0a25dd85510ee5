"""How many executors a flow is to have: what readings say of it, one change a boundary, and the slots that follow."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from anabranch.control.decisions import ExecutorChange
from anabranch.control.next_change import NextChange
from anabranch.model.elasticity import Elasticity
from anabranch.model.routes import MOST_SLOTS
from anabranch.placement.elasticity import ClusterReading, ElasticDecision, ElasticState, decide_size

_SOON_SECONDS = 1.0


class ClusterSize:
    """Follows the load of a flow from batch to batch. What it knows ends with the run: the next one begins anew."""

    def __init__(self, settings: Elasticity, *, only_grows: bool = False) -> None:
        """``only_grows``: somebody else lets executors go, and says so (``follow``)."""
        self._settings = replace(settings, samples_down=sys.maxsize) if only_grows else settings
        self._only_grows = only_grows
        self._state = ElasticState()
        self._latest: ElasticDecision | None = None
        self._change = NextChange()
        self._sized_for: int | None = None
        self._slots: int | None = None
        self._now_seconds = 0.0

    def see(self, reading: ClusterReading) -> None:
        """Learn what a batch says, and decide what it changes."""
        decision = decide_size(self._settings, self._state, reading)
        self._state, self._latest, self._now_seconds = decision.state, decision, reading.now_seconds
        self._change.put(_make_change(decision, reading))
        self._follow(decision, reading)

    def refuse(self) -> None:
        """Learn that the last change could not be had: begin anew from the executors there are, after a cool-down."""
        now = self._now_seconds
        known = replace(self._state, wanted=None, leaving=(), high_samples=0, low_samples=0)
        self._state = replace(known, grown_at=now, changed_at=now)

    @property
    def wanted(self) -> int | None:
        """How many executors are wanted; None before the first reading."""
        return self._state.wanted

    def follow(self, wanted: int) -> None:
        """Learn how many executors somebody else wants from now on."""
        self._state = replace(self._state, wanted=wanted, high_samples=0)

    def take_change(self) -> ExecutorChange | None:
        """Return what is to change about executors, once."""
        return self._change.take()

    def take_slots(self) -> int | None:
        """Return to how many slots operators are to be brought, once; None if they stay as they are."""
        slots, self._slots = self._slots, None
        return slots

    @property
    def idle_seconds(self) -> float | None:
        """After so long without rows a batch is wanted all the same; None if nothing can be decided in it.

        Readings come with batches, and without them a flow whose sources fall silent would keep its executors.
        """
        if self._change.is_due or self._slots is not None or self._state.leaving:
            return _SOON_SECONDS
        if self._only_grows or self._state.wanted is None or self._state.wanted <= self._settings.min_executors:
            return None
        return max(_SOON_SECONDS, self._settings.seconds_down / self._settings.samples_down)

    def show(self) -> dict[str, Any]:
        """Return what people are shown, as plain JSON data."""
        shown: dict[str, Any] = {
            "min_executors": self._settings.min_executors,
            "max_executors": self._settings.max_executors,
            "wanted": self._state.wanted,
            "reconfigurations": self._state.reconfigurations,
        }
        if self._latest is None:
            return shown
        figures = {"utilisation": round(self._latest.utilisation, 4), "deviation": round(self._latest.deviation, 4)}
        return shown | figures | {"reason": self._latest.reason}

    def _follow(self, decision: ElasticDecision, reading: ClusterReading) -> None:
        """Let slots follow executors, once all that are wanted are there; or those that came, if others do not come."""
        usable = [one for one in reading.executors if one.is_usable]
        if self._sized_for is None:
            self._sized_for = max(1, len(usable))
        staying = [one for one in usable if one.id not in decision.state.leaving]
        count, wanted = min(len(staying), decision.executors), decision.executors
        is_overdue = reading.now_seconds - decision.state.changed_at >= self._settings.cool_down_seconds
        is_nearer = abs(wanted - count) < abs(wanted - self._sized_for)
        if self._only_grows and count <= self._sized_for:
            # Slots that went together on fewer executors would have to part again.
            return
        if is_nearer and (count == wanted or is_overdue):
            self._sized_for = count
            self._slots = min(count * max(1, decision.slots // wanted), MOST_SLOTS)


def _make_change(decision: ElasticDecision, reading: ClusterReading) -> ExecutorChange | None:
    reason, leaving = decision.reason, decision.leaving
    if decision.action == "grow":
        staying = sum(not executor.is_leaving for executor in reading.executors)
        return ExecutorChange(max(0, decision.executors - staying), reason=reason, total=decision.executors)
    if decision.action == "offload":
        # Those that were asked for and have not come are not to come any more.
        return ExecutorChange(offload=leaving, reason=reason, total=None if leaving else decision.executors)
    if decision.action == "hold":
        return ExecutorChange(hold=leaving, reason=reason)
    if decision.action == "keep":
        return ExecutorChange(keep=leaving, reason=reason)
    return ExecutorChange(release=leaving, reason=reason) if decision.action == "release" else None

"""What happens to a run, told to the history of its checkpoint."""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from anabranch.control.effects import EffectWatch, ExecutorEffects, ExecutorsSeen, SlotsSeen
from anabranch.engine.batches.reports import BatchReport
from anabranch.model import BatchProgress
from anabranch.model.events import (
    BatchEvent,
    DecisionEvent,
    EffectEvent,
    Event,
    FailureEvent,
    HistoryRecord,
    RecoveryAction,
    RecoveryEvent,
    StartEvent,
    StopEvent,
)
from anabranch.query.nodes import Stateful
from anabranch.query.plan import Plan, name_of
from anabranch.routing.phases import FlowRoutes
from anabranch.state.event_log import EventLog
from anabranch.state.manifest import Manifest

RECENT_DECISIONS = 50
"""So many are kept in memory, to be shown."""
_ABOUT_NO_ROUTES = ("exchange", "strategy", "home", "provision", "request", "offload", "hold", "keep", "release")
"""Actions of which a commit is a part, though they have no protocol."""
MOST_LETTERS = 2_000
"""Of a failure's reason; the log of the driver has all of it."""


class RunEvents:
    """Tells the events of one run; memory stays the same however many there are.

    Decisions may come from any thread; everything else belongs to the thread that runs the batches.
    """

    def __init__(self, log: EventLog, clock: Callable[[], float], latest: Manifest | None, *, was_killed: bool) -> None:
        """Go on behind what earlier drivers told and left; ``was_killed``: the last one did not end by itself."""
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        """On what commands ask for while a batch runs."""
        self._effects = EffectWatch()
        self._executor_effects = ExecutorEffects()
        self._decisions: deque[HistoryRecord] = deque(maxlen=RECENT_DECISIONS)
        self._outcomes: dict[int, EffectEvent] = {}
        self.first_number: int | None = None
        """That of the run's first event; None if the history cannot be read."""
        self.has_ended = False
        """Whether it was told why the run ends."""
        self._company: list[Event] = []
        """What is told with the batch that runs."""
        self._begin(latest, was_killed)

    def decide(self, decisions: Iterable[DecisionEvent]) -> None:
        """Tell decisions; those that take effect by a commit are told before it, so that none of them is lost."""
        told = self._add(list(decisions))
        if told:
            # Also where events are gathered: the commit does not wait for the others.
            self._log.flush()
        with self._lock:
            for record in told:
                self._remember(record)
                # Those of an earlier run are judged by nobody: this one begins anew from the executors that are there.
                assert isinstance(record.event, DecisionEvent)
                self._executor_effects.await_effect(record.number, record.event)

    def fail(
        self, reason: str, batch: int | None = None, attempt: int | None = None, *, ends_run: bool = False
    ) -> None:
        """Tell that something went wrong, at once: nobody knows what comes next."""
        self.has_ended = self.has_ended or ends_run
        self._add([FailureEvent(reason[:MOST_LETTERS], batch, attempt, ends_run)])
        self._log.flush()

    def recover(self, action: RecoveryAction, reason: str, batch: int) -> None:
        """Tell, together with the batch that runs, what was worked around."""
        self.tell_recovery(RecoveryEvent(action, reason, batch))

    def tell_recovery(self, recovery: RecoveryEvent) -> None:
        """Tell the same of what is known in more detail."""
        self._company.append(recovery)

    def see_slots(self, batch: int, operators: Mapping[str, SlotsSeen]) -> None:
        """Find out, from what slots got, what came of decisions before."""
        with self._lock:
            self._tell_effects(self._effects.observe(batch, operators))

    def see_executors(self, batch: int, seen: ExecutorsSeen) -> None:
        """Find out, from what executors had to do, what came of decisions before."""
        with self._lock:
            self._tell_effects(self._executor_effects.observe(batch, seen))

    def end_batch(
        self,
        progress: BatchProgress,
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        decisions: Sequence[DecisionEvent] = (),
    ) -> None:
        """Tell that a batch is over, with all that was noted meanwhile; ``decisions`` are those that need no commit."""
        company, self._company = self._company, []
        repairs = {one.reason for one in company if isinstance(one, RecoveryEvent) and one.action == "repair"}
        # Nothing is said twice: who reads the batch puts it together with its company.
        others = tuple(problem for problem in progress.problems if problem not in repairs)
        self._add([*decisions, *company, BatchEvent(replace(progress, problems=others), start, end)])

    def stop(self, batch: int | None) -> None:
        """Tell that the driver gives the checkpoint back."""
        self._add([StopEvent(batch)])
        self._log.flush()

    def flush(self) -> None:
        """Write to disk whatever is not there yet."""
        self._log.flush()

    def list_decisions(self) -> list[dict[str, Any]]:
        """Return the last decisions, also of earlier runs, with what came of them, as plain JSON data; oldest first."""
        with self._lock:
            told = [(record, self._outcomes.get(record.number)) for record in self._decisions]
        return [record.to_json() | ({} if effect is None else _outcome(effect)) for record, effect in told]

    # -- inside ----------------------------------------------------------------------------------------------------

    def _begin(self, latest: Manifest | None, was_killed: bool) -> None:
        tail = self._log.read_tail()
        committed = None if latest is None else latest.batch
        known = {number for record in tail if isinstance(record.event, StartEvent) for number in record.event.undone}
        undone = [one.number for one in tail if one.number not in known and _came_to_nothing(one, latest)]
        known.update(undone)
        for record in tail:
            if isinstance(record.event, DecisionEvent) and record.number not in known:
                self._remember(record)
            elif isinstance(record.event, EffectEvent):
                self._effects.forget(record.event.decision)
                self._outcomes[record.event.decision] = record.event
        host, process = socket.gethostname(), os.getpid()
        events: list[Event] = [StartEvent(host, process, version("anabranch"), committed, tuple(undone))]
        if was_killed:
            behind = "it had committed nothing" if committed is None else f"its last commit is batch {committed}"
            events.append(RecoveryEvent("restart", f"the driver before did not end by itself; {behind}", committed))
        told = self._add(events)
        self.first_number = told[0].number if told else None
        # At once, wherever it lies: from here on, what the driver before may still write does not count.
        self._log.flush()

    def _tell_effects(self, effects: Sequence[EffectEvent]) -> None:
        self._outcomes.update({effect.decision: effect for effect in effects})
        self._company += effects

    def _add(self, events: Sequence[Event]) -> list[HistoryRecord]:
        return self._log.add(events, self._clock()) if events else []

    def _remember(self, record: HistoryRecord) -> None:
        assert isinstance(record.event, DecisionEvent)
        self._decisions.append(record)
        self._effects.await_effect(record.number, record.event)
        known = {one.number for one in self._decisions}
        self._outcomes = {number: effect for number, effect in self._outcomes.items() if number in known}


def find_slots_seen(plan: Plan, report: BatchReport, routes: FlowRoutes) -> Iterator[tuple[str, SlotsSeen]]:
    """Yield by operator what a batch shows of its slots."""
    for head, operator in report.operators.items():
        operation = plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        rows = operator.rows[: routes[head].routes.slots]
        powers = operation.routing.powers_over(len(rows))
        is_settled = routes[head].earlier is None
        yield name_of(plan, head), SlotsSeen(rows, is_settled, powers, operator.handed_bytes)


def _came_to_nothing(record: HistoryRecord, latest: Manifest | None) -> bool:
    """Say whether a decision was to take effect by a commit that there never was."""
    event = record.event
    if not isinstance(event, DecisionEvent) or event.sender == "alignment":
        return False
    if event.protocol is None and event.action not in _ABOUT_NO_ROUTES:
        return False
    return (
        latest is None or event.batch > latest.batch or (event.batch == latest.batch and record.epoch != latest.epoch)
    )


def _outcome(effect: EffectEvent) -> dict[str, Any]:
    if effect.imbalance is None:
        return {"utilisation_before": effect.utilisation_before, "utilisation_after": effect.utilisation}
    return {"imbalance_after": effect.imbalance, "handed_bytes": effect.moved_bytes}

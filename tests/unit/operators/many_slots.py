"""A kernel on several slots, under routes that change at batch boundaries: what the engine does, without Spark."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from anabranch.control.apply import can_wait
from anabranch.control.decisions import RouteChange
from anabranch.eventtime.flow.operator_times import lateness_of
from anabranch.eventtime.operator_clocks import OperatorClocks, follow_parts
from anabranch.model import (
    BEGINNING_OF_TIME,
    HASH,
    WINDOW,
    Fired,
    MeetingInTime,
    OperatorSpec,
    OperatorTime,
    RunRef,
    SplitKeyClocks,
    WindowSpec,
)
from anabranch.operators.kernels import make_kernel
from anabranch.routing import Routes
from anabranch.routing.phases import (
    Earlier,
    PhasedRoutes,
    SlotStanding,
    divide_by_phase,
    drop_copies,
    keys_of,
    moving_to,
    settle,
    switch_after,
    window_of,
)
from anabranch.state.repair import advance_on_intact_runs
from anabranch.state.runs import RunDamaged, check_sorted, without_gone
from anabranch.state.slots import RunsOfSlot
from unit.operators.streams import Batch, Outcome, to_frame

HashKeys = Callable[[pl.DataFrame], pl.Series]
Advanced = tuple[Fired, SplitKeyClocks | None, dict[int, RunRef]]
"""What a slot did in a batch: what it fired, the time of keys that will be split, what it hands over."""


class RunsInMemory:
    """A ``RunReader`` and a ``RunWriter`` that keep frames by name."""

    def __init__(self) -> None:
        self._frames: list[pl.DataFrame] = []
        self.damaged: set[str] = set()

    def read(self, ref: RunRef) -> pl.DataFrame:
        if ref.file in self.damaged:
            msg = f"run {ref.file} is damaged"
            raise RunDamaged(msg, ref.file)
        return without_gone(self._frames[int(ref.file)].slice(ref.first_live), ref.gone)

    def write(self, frame: pl.DataFrame, made_from: Sequence[RunRef] = ()) -> RunRef:
        check_sorted(frame)
        self._frames.append(frame)
        windows = (frame[WINDOW][0], frame[WINDOW][-1]) if WINDOW in frame.columns else (None, None)
        name = str(len(self._frames) - 1)
        sources = tuple(replace(source, made_from=()) for source in made_from)
        return RunRef(name, frame.height, 0, "", 0, min_window=windows[0], max_window=windows[1], made_from=sources)


@dataclass
class ManySlots:
    """All slots of one operator."""

    spec: OperatorSpec
    routes: Routes
    hash_keys: HashKeys
    phases: PhasedRoutes = field(init=False)
    runs: dict[int, tuple[RunRef, ...]] = field(default_factory=dict)
    handoffs: dict[int, list[RunRef]] = field(default_factory=dict)
    files: RunsInMemory = field(default_factory=RunsInMemory)
    latest_us: int = BEGINNING_OF_TIME
    split_keys: SplitKeyClocks | None = None
    clocks: OperatorClocks = field(default_factory=OperatorClocks)
    """What is left of the clocks of forgotten keys."""
    moved_rows: int = 0
    meetings: int = 0
    repairs: int = 0
    transitions: int = 0
    """Batches after which two routes counted, each for windows of its own."""
    wakes_us: list[int] = field(default_factory=list)
    """All that slots and meetings said so far of when they want to run without rows, by the wall clock."""
    dues_us: list[int] = field(default_factory=list)
    """The same by event time."""

    def __post_init__(self) -> None:
        self.phases = PhasedRoutes(self.routes)
        self.kernel = make_kernel(self.spec)

    @property
    def window(self) -> WindowSpec | None:
        return window_of(self.spec)

    def advance(self, batch: Batch, time: OperatorTime, combined: bool, change: RouteChange | None = None) -> Outcome:
        """Run one batch on all slots; the change, if there is one, counts from the next batch on."""
        time = replace(time, split_keys=self.split_keys, forgotten=self.clocks.forgotten)
        combined = combined and self.kernel.mergeable
        received, late_rows = self._exchange(batch, time, combined)
        if self.phases.earlier is not None:
            change = None
        waits = change is not None and change.protocol == "window"
        waits = waits and can_wait(self.window, self.phases.routes, change.routes)  # type: ignore[union-attr]
        moving = change.routes if change is not None and not waits else None
        finished: list[pl.DataFrame] = []
        shared: list[pl.DataFrame] = []
        handed: dict[int, list[RunRef]] = defaultdict(list)
        clocks: list[SplitKeyClocks] = []
        dropped_us: list[Mapping[int, int]] = []
        for slot in range(self.phases.slots):
            advanced, self.runs[slot] = self._advance_slot(slot, received[slot], combined, time, moving)
            fired, found, handing = advanced
            clocks += [] if found is None else [found]
            late_rows += fired.late_rows
            dropped_us.append(fired.forgotten_us or {})
            self.wakes_us += [] if fired.wake_us is None else [fired.wake_us]
            self.dues_us += [] if fired.next_due_us is None else [fired.next_due_us]
            finished.append(fired.frame)
            shared += [] if fired.shared is None else [fired.shared]
            for target, ref in handing.items():
                handed[target].append(ref)
        if shared:
            self.meetings += 1
            finished.append(self._meet(shared, time, clocks))
        self._follow_parts(moving, clocks)
        until_us = time.forget_until_us(self.spec.clock) if hasattr(self.spec, "clock") else BEGINNING_OF_TIME
        for dropped in dropped_us:
            self.clocks = self.clocks.forgetting(until_us, dropped)
        self.clocks = replace(self.clocks, split_keys=self.split_keys).forgetting_parts(lateness_of(self.spec))
        self.split_keys = self.clocks.split_keys
        # What a manifest keeps, it keeps as text.
        self.clocks = OperatorClocks.from_json(json.loads(json.dumps(self.clocks.to_json())))
        self.handoffs = dict(handed)
        self._follow(change, waits, time)
        self.transitions += self.phases.earlier is not None
        return Outcome([row for frame in finished for row in frame.to_dicts()], late_rows)

    def _meet(self, shared: list[pl.DataFrame], time: OperatorTime, clocks: list[SplitKeyClocks]) -> pl.DataFrame:
        meeting = self.kernel.meeting
        assert meeting is not None
        if not isinstance(meeting, MeetingInTime):
            return meeting.meet(shared)
        finished = []
        rows = pl.concat(shared)
        for part in range(2):
            # Parts meet in several tasks, by their hash.
            of_part = [frame.filter(pl.col(HASH) % 2 == part) for frame in shared]
            if rows.filter(pl.col(HASH) % 2 == part).height:
                met = meeting.meet_in_time([frame for frame in of_part if frame.height], time)
                finished += [met.frame] if met.frame.height else []
                clocks += [] if met.clocks is None else [met.clocks]
                self.wakes_us += [] if met.wake_us is None else [met.wake_us]
                self.dues_us += [] if met.next_due_us is None else [met.next_due_us]
        return pl.concat(finished) if finished else pl.DataFrame()

    def _follow_parts(self, moving: Routes | None, clocks: list[SplitKeyClocks]) -> None:
        now = self.phases.routes.table.split_keys()
        following = now if moving is None else moving.table.split_keys()
        # What a manifest keeps, it keeps as text.
        self.split_keys = follow_parts(
            self.split_keys, [SplitKeyClocks.from_text(found.to_text()) for found in clocks], [now, following]
        )

    def values(self, time: OperatorTime) -> pl.DataFrame:
        """Return what is held after a batch, of all slots and of what is on its way, as a person reads it."""
        own = [(slot, refs) for slot, refs in self.runs.items() if refs]
        on_the_way = [(slot, (ref,)) for slot, refs in self.handoffs.items() for ref in refs]
        held = [
            self.kernel.stored(
                [drop_copies(self.files.read(ref), self.phases, self.window, slot) for ref in refs], time.fire_us
            )
            for slot, refs in (*own, *on_the_way)
        ]
        if not held:
            return pl.DataFrame()
        stored = self.kernel.unite(held)
        if self.split_keys is not None and isinstance(self.kernel.meeting, MeetingInTime):
            stored = self.kernel.meeting.settle(stored, self.split_keys)
        return self.kernel.values(stored)

    def _exchange(self, batch: Batch, time: OperatorTime, combined: bool) -> tuple[dict[int, list[pl.DataFrame]], int]:
        received: dict[int, list[pl.DataFrame]] = defaultdict(list)
        late_rows = 0
        placed = batch.placed_rows()
        for ordinal in range(len(batch.splits)):
            rows = [(order, row) for order, row in placed if order >> 36 == ordinal]
            self.latest_us = max([self.latest_us, *(row.time_us for _, row in rows)])
            prepared = self.kernel.prepare(to_frame(rows), time)
            late_rows += prepared.late_rows
            sent = self.kernel.combine(prepared.frame) if combined else prepared.frame
            sent = sent.with_columns(self.hash_keys(sent).alias(HASH))
            for routes, part in divide_by_phase(sent, self.phases, self.window):
                keys = keys_of(routes, part, self.spec.keys)
                slots = pl.Series(routes.storage_slots(keys, seed=(time.batch << 32) + ordinal))
                for slot in slots.unique().sort():
                    received[slot].append(part.filter(slots == slot))
        return received, late_rows

    def _advance_slot(
        self, slot: int, received: list[pl.DataFrame], combined: bool, time: OperatorTime, moving: Routes | None
    ) -> tuple[Advanced, tuple[RunRef, ...]]:
        standing = SlotStanding(self.phases, slot) if self.phases.needs_standing else None

        def advance(state: RunsOfSlot) -> Advanced:
            if self.handoffs.get(slot) and isinstance(self.kernel.meeting, MeetingInTime):
                self.kernel.meeting.absorb_parts(self.handoffs[slot], state, time)
            elif self.handoffs.get(slot):
                self.kernel.absorb(self.handoffs[slot], state)
            fired = self.kernel.advance(received, combined, state, time, standing)
            clocks = self._clocks_to_split(state, moving, time)
            return fired, clocks, {} if moving is None else self._hand_off(state, moving, slot, time)

        files: Any = self.files
        recovered = advance_on_intact_runs(self.runs.get(slot, ()), files, advance)
        self.repairs += len(recovered.problems)
        return recovered.outcome, recovered.state.runs()

    def _clocks_to_split(self, state: RunsOfSlot, moving: Routes | None, time: OperatorTime) -> SplitKeyClocks | None:
        meeting = self.kernel.meeting
        if moving is None or not isinstance(meeting, MeetingInTime):
            return None
        fresh = np.setdiff1d(moving.table.split_keys(), self.phases.routes.table.split_keys())
        return meeting.clocks_of(state, fresh, time)

    def _hand_off(self, state: RunsOfSlot, routes: Routes, slot: int, time: OperatorTime) -> dict[int, RunRef]:
        passed_us = max(time.fired_us, time.closed_us, time.fire_us)
        handing = {}
        for target, frames in state.hand_off(moving_to(routes, self.spec.keys, slot)).items():
            rows = self.kernel.stored(frames, passed_us)
            if rows.height:
                self.moved_rows += rows.height
                handing[target] = self.files.write(rows)
        return handing

    def _follow(self, change: RouteChange | None, waits: bool, time: OperatorTime) -> None:
        if change is None:
            self.phases = settle(self.phases, self.window, max(time.fired_us, time.closed_us, time.fire_us))
        elif waits and self.window is not None and self.latest_us != BEGINNING_OF_TIME:
            earlier = Earlier(self.phases.routes, switch_after(self.latest_us, self.window))
            self.phases = PhasedRoutes(change.routes, earlier)
        else:
            self.phases = PhasedRoutes(change.routes)
        for slot in [slot for slot in self.runs if slot >= self.phases.slots]:
            assert not self.runs.pop(slot), "a slot that goes still has state"


def run_on_slots(
    slots: ManySlots,
    batches: Sequence[Batch],
    times: Sequence[OperatorTime],
    combined: bool,
    changes: Sequence[RouteChange | None],
    disturb: Callable[[ManySlots], None] | None = None,
    note: Callable[[OperatorTime], None] | None = None,
) -> list[Outcome]:
    """Feed a stream to an operator on several slots; each batch has its change, and may be disturbed before it.

    ``note`` is told of every batch when it is over.
    """
    padded = [*batches, Batch((), 0)][: len(times)]
    outcomes = []
    for batch, time, change in zip(padded, times, changes, strict=True):
        if disturb is not None:
            disturb(slots)
        outcomes.append(slots.advance(batch, time, combined, change))
        if note is not None:
            note(time)
    return outcomes

"""Keys that fell silent lose their clocks: state shrinks, nothing is emitted twice, and nobody else is harmed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from anabranch.control.decisions import RouteChange
from anabranch.model import (
    AggregateSpec,
    Clock,
    CountWindowSpec,
    OperatorSpec,
    OperatorTime,
    OrderSpec,
    ProcessSpec,
    RoutingTable,
    TopKSpec,
    WindowSpec,
)
from anabranch.routing import Routes
from unit.operators import oracle
from unit.operators.many_slots import HashKeys, ManySlots
from unit.operators.moving import hash_apart, hash_together, is_drained, make_changes
from unit.operators.once_only import KINDS, OnceOnly, Passing
from unit.operators.processors_under_test import FRAME_OUTPUT, OUTPUT, Scripted, ScriptedFrames
from unit.operators.streams import EPOCH, SCHEMA, SECOND_US, Batch, Row
from unit.operators.streams_by_key import AGGREGATES

TEN_SECONDS = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US)
UPDATED = replace(TEN_SECONDS, late="update", lateness_us=6 * SECOND_US)
SLIDING = WindowSpec("sliding", 10 * SECOND_US, 4 * SECOND_US)
SESSION = WindowSpec("session", 5 * SECOND_US, 5 * SECOND_US)
CLOCK = Clock("key", 2 * SECOND_US, idle_us=4 * SECOND_US)


def by_key(window: WindowSpec, clock: Clock = CLOCK) -> AggregateSpec:
    return AggregateSpec(("key",), AGGREGATES, window, "ts", clock=clock)


SPECS: dict[str, OperatorSpec] = {
    "tumbling": by_key(TEN_SECONDS),
    "sliding": by_key(SLIDING),
    "updated": by_key(UPDATED),
    "remembered for longer": by_key(TEN_SECONDS, replace(CLOCK, forget_us=9 * SECOND_US)),
    "sessions": by_key(SESSION),
    "sessions updated": by_key(replace(SESSION, late="update", lateness_us=6 * SECOND_US)),
    "best of windows": TopKSpec(("key",), "whole", 2, True, ("real",), TEN_SECONDS, "ts", clock=CLOCK),
    "count windows": AggregateSpec(("key",), AGGREGATES, None, "ts", count_window=CountWindowSpec(5, 5, 4 * SECOND_US)),
    "processor": ProcessSpec(("key",), Scripted(), SCHEMA, OUTPUT, "ts", CLOCK),
    "processor in order": ProcessSpec(("key",), Scripted(), SCHEMA, OUTPUT, "ts", CLOCK, ordered=True),
    "processor without state": ProcessSpec(("key",), Passing(), SCHEMA, {"key": pl.Int64()}, "ts", CLOCK),
    "in order": OrderSpec(("key",), "ts", CLOCK, "side"),
}


class OneKey:
    """An operator on one slot, fed by hand: batches of (key, second), each at a second of the wall clock."""

    def __init__(self, spec: OperatorSpec, hashes: Any = hash_apart) -> None:
        self.slots = ManySlots(spec, Routes.even(1, 4), hashes)
        self.batch = 0
        self.now = 0

    def add(self, now: int, *rows: tuple[int, int]) -> list[tuple[int, int, int]]:
        """Run a batch; return (key, start, rows) of the windows that it emits."""
        time = OperatorTime(self.batch, now_us=now * SECOND_US, last_now_us=self.now * SECOND_US)
        self.batch, self.now = self.batch + 1, now
        split = tuple(Row(key, second, 1) for key, second in rows)
        outcome = self.slots.advance(Batch((split,), 0), time, True)
        self.late_rows = outcome.late_rows
        return sorted(
            (row["key"], int((row["window_start"] - EPOCH).total_seconds()), row["rows"]) for row in outcome.rows
        )

    @property
    def state_rows(self) -> int:
        return sum(ref.live_rows for ref in self.slots.runs[0])


def test_silent_keys_clock_is_dropped_when_the_wall_clock_has_passed_it_for_as_long() -> None:
    keys = OneKey(by_key(TEN_SECONDS))
    keys.add(98, (1, 95))
    assert keys.add(102) == [(1, 90, 1)], "what it had open closes when it is idle"
    assert keys.state_rows > 0, "its clock stands at 100 s, two seconds ago"
    keys.add(103, (1, 99))
    assert keys.late_rows == 1
    keys.add(106)
    assert keys.state_rows > 0, "it spoke three seconds ago"
    keys.add(107)
    assert keys.state_rows == 0


def test_key_that_comes_back_starts_anew_and_nothing_fires_twice() -> None:
    keys = OneKey(by_key(TEN_SECONDS))
    keys.add(100, (1, 95))
    assert keys.add(110) == [(1, 90, 1)]
    assert keys.state_rows == 0
    assert keys.add(120, (1, 97), (1, 105)) == []
    assert keys.late_rows == 1, "the row of the window that was emitted"
    assert keys.add(124) == [(1, 100, 1)]


def test_clock_that_is_ahead_stays_until_the_wall_clock_gets_there_and_harms_no_new_key() -> None:
    keys = OneKey(by_key(TEN_SECONDS), lambda frame: pl.Series([7] * frame.height, dtype=pl.UInt64))
    keys.add(100, (1, 3_000))
    assert keys.add(104) == [(1, 3_000, 1)]
    for now in (200, 3_000):
        keys.add(now)
        assert keys.state_rows > 0
        keys.add(now + 1, (2, now - 3))
        assert keys.late_rows == 0
        assert keys.add(now + 6) == [(2, now // 10 * 10 - 10, 1)]
    keys.add(3_014)
    assert keys.state_rows == 0


def test_nobody_is_forgotten_while_the_flow_has_not_listened_for_as_long() -> None:
    keys = OneKey(by_key(TEN_SECONDS))
    keys.add(100, (1, 95))
    time = OperatorTime(1, now_us=200 * SECOND_US, last_now_us=100 * SECOND_US, since_us=198 * SECOND_US)
    keys.slots.advance(Batch((), 0), time, True)
    assert keys.state_rows == 1


def test_processors_state_outlives_its_silence() -> None:
    spec = ProcessSpec(("key",), ScriptedFrames(), SCHEMA, FRAME_OUTPUT, "ts", CLOCK)
    slots = ManySlots(spec, Routes.even(1, 4), hash_apart)
    slots.advance(Batch(((Row(1, 95, 1),),), 0), OperatorTime(0, now_us=100 * SECOND_US), False)
    for number in range(1, 4):
        now_us = (100 + 100 * number) * SECOND_US
        slots.advance(Batch((), 0), OperatorTime(number, now_us=now_us, last_now_us=now_us - 100 * SECOND_US), False)
    assert slots.values(OperatorTime(4))["rows"].to_list() == [1]


def live_stream(chance: random.Random, count: int) -> list[Batch]:
    """Return a stream beside the wall clock: keys are a little behind, come back after a while, or send old rows."""
    made = []
    for number in range(count):
        now = 3 * number
        rows = [
            Row(chance.randrange(6), now - chance.choice([0, 1, 2, 3, 8, 20]), chance.randrange(-9, 9), chance.random())
            for _ in range(chance.choice([0, 0, 1, 3, 6]))
        ]
        cut = chance.randrange(len(rows) + 1)
        made.append(Batch((tuple(rows[:cut]), tuple(rows[cut:])), 0, now * SECOND_US))
    return made


def times_of_live(batches: Sequence[Batch], drains: bool) -> list[OperatorTime]:
    nows = [batch.now_us for batch in batches]
    times = [
        OperatorTime(number, now_us=now, last_now_us=before)
        for number, (now, before) in enumerate(zip(nows, [-1, *nows], strict=False))
    ]
    last = OperatorTime(len(times), now_us=nows[-1] + SECOND_US, last_now_us=nows[-1], fire_us=2**62)
    return [*times, last] if drains else times


def check_on_slots(name: str, seed: int, count: int = 24) -> ManySlots:
    """Fail unless slots under wild routes, with damaged runs, emit what one slot emits, and forget the same."""
    spec = SPECS[name]
    chance = random.Random(f"{name} {seed}")
    batches = live_stream(chance, count)
    times = times_of_live(batches, is_drained(spec))
    first, changes = make_changes(seed, spec, hash_apart, len(times))
    many = ManySlots(spec, first, hash_apart)
    one = ManySlots(spec, Routes.even(1, 4), hash_apart)
    for number, (time, change) in enumerate(zip(times, changes, strict=True)):
        batch = batches[number] if number < len(batches) else Batch((), 0)
        for refs in many.runs.values():
            many.files.damaged |= {ref.file for ref in refs if ref.made_from and chance.random() < 0.3}
        got = many.advance(batch, time, True, RouteChange(change.routes, "state") if change is not None else None)
        oracle.assert_same([got], [one.advance(batch, time, True)])
    if one.clocks.forgotten is not None:
        assert many.clocks.forgotten is not None
        assert (one.clocks.forgotten.clocks_us == many.clocks.forgotten.clocks_us).all()
    return one


@pytest.mark.thorough
@pytest.mark.parametrize("name", SPECS)
def test_what_is_forgotten_does_not_depend_on_slots_moves_and_damage(name: str) -> None:
    forgotten = check_on_slots(name, seed=5).clocks.forgotten
    assert "count" in name or (forgotten is not None and (forgotten.clocks_us > 0).any()), "somebody was forgotten"


SPLIT, WHOLE = {0: 0.5, 1: 0.5}, {2: 1.0}


def run_split(
    spec: OperatorSpec,
    moments: Sequence[tuple[int, Sequence[int], dict[int, float]]],
    hashes: HashKeys = hash_apart,
    beside: int | None = None,
) -> ManySlots:
    """Run a key that is split from the first batch on: seconds of the wall clock and of rows, where it goes then.

    Fails unless every batch emits, and leaves of what is forgotten, what one slot does.
    """
    (key_hash,) = hashes(pl.DataFrame({"key": [1]}))
    whole = Routes.even(3, 12)
    many = ManySlots(spec, whole.with_table(RoutingTable.of({key_hash: SPLIT})), hashes)
    one = ManySlots(spec, Routes.even(1, 4), hashes)
    last_us = -1
    for number, (now, seconds, following) in enumerate(moments):
        rows = [Row(1, second, 1) for second in seconds]
        if beside is not None:
            # Another key speaks in every batch.
            rows.append(Row(beside, now, 1))
        batch = Batch((tuple(rows),), 0)
        time = OperatorTime(number, now_us=now * SECOND_US, last_now_us=last_us)
        change = RouteChange(whole.with_table(RoutingTable.of({key_hash: following})), "state")
        oracle.assert_same([many.advance(batch, time, True, change)], [one.advance(batch, time, True)])
        last_us = time.now_us
        if one.clocks.forgotten is not None:
            assert many.clocks.forgotten is not None
            assert (many.clocks.forgotten.clocks_us == one.clocks.forgotten.clocks_us).all()
    return many


@pytest.mark.parametrize("following", [SPLIT, WHOLE], ids=["split", "whole"])
def test_lateness_counts_once_for_a_split_key_that_is_forgotten_before_its_parts_heard(
    following: dict[int, float],
) -> None:
    silence = [(now, (), following) for now in (120, 124, 128, 132)]
    slots = run_split(SPECS["updated"], [(98, (95,), SPLIT), *silence])
    assert slots.clocks.forgotten is not None
    assert slots.clocks.forgotten.clocks_us.max() == (100 + 6) * SECOND_US, "the end of its window, and the lateness"
    assert slots.split_keys is None
    assert all(ref.live_rows == 0 or following is SPLIT for refs in slots.runs.values() for ref in refs)


@pytest.mark.parametrize("following", [SPLIT, WHOLE], ids=["split", "whole"])
@pytest.mark.parametrize("back_at", [123, 126, 129])
def test_split_key_that_comes_back_is_judged_by_what_is_left_of_its_group(
    following: dict[int, float], back_at: int
) -> None:
    moments = [
        (98, (95, 96, 88), SPLIT),
        (120, (), following),
        (back_at, (95, 101, 107, 119), following),
        (back_at + 3, (105, 118), following),
        (back_at + 20, (), following),
        (back_at + 40, (99, 111), following),
    ]
    run_split(SPECS["updated"], moments)


@pytest.mark.parametrize("following", [SPLIT, WHOLE], ids=["split", "whole"])
def test_forgotten_split_key_starts_anew_though_another_key_of_its_hash_goes_on(following: dict[int, float]) -> None:
    silence = [(now, (), SPLIT) for now in (120, 124, 128)]
    moments = [(98, (95, 96, 88), SPLIT), *silence, (130, (95, 104, 107), following), (150, (), following)]
    run_split(SPECS["updated"], moments, hash_together, beside=1 + 3)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [41, 46, 47, 56])
def test_lateness_counts_once_under_routes_of_chance(seed: int) -> None:
    check_on_slots("updated", seed, count=60)


@pytest.mark.parametrize("name", ["tumbling", "sliding", "remembered for longer"])
@pytest.mark.parametrize("seed", range(2))
def test_no_window_is_emitted_twice_however_late_rows_come(name: str, seed: int) -> None:
    slots = ManySlots(SPECS[name], Routes.even(1, 4), hash_apart)
    batches = live_stream(random.Random(seed), 80)
    emitted: Counter[tuple[Any, ...]] = Counter()
    for batch, time in zip(batches, times_of_live(batches, drains=False), strict=True):
        outcome = slots.advance(batch, time, True)
        emitted.update((row["key"], row["window_start"]) for row in outcome.rows)
    assert slots.clocks.forgotten is not None
    assert (slots.clocks.forgotten.clocks_us > 0).any()
    assert set(emitted.values()) == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_state_of_keys_that_come_once_stays_as_small_as_what_is_live(kind: str) -> None:
    keys = 200_000 if kind == "tumbling" else 20_000
    seen = OnceOnly(kind, keys_a_batch=keys // 20).run(batches=20)
    assert seen.results == keys
    # A key is live for about three batches; files hold twice as much at most, and what a batch adds.
    assert seen.most_state_rows <= 8 * keys // 20
    assert seen.last_state_rows == 0


def test_state_of_keys_that_come_once_grows_for_ever_without_idle() -> None:
    seen = OnceOnly("tumbling", keys_a_batch=1_000, idle_us=None).run(batches=20)
    assert seen.last_state_rows == 20_000

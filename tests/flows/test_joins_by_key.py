"""Joins whose keys have their own time: whatever the kind, the bounds, the disorder, the slots and the moves, answers
are those of a model that goes through the rows one by one."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.model.joins import JOIN_KINDS
from anabranch.state import Checkpoint, open_store
from anabranch.state.inspect import read_rows
from anabranch.testing import FlowTester, Killed
from flows.running import FlowBench, LocalBench
from flows.test_moves import Steerings
from property_tests import tries

START = datetime(2026, 1, 1)
NEVER = -(10**9)
BOUNDS = ("within", "window", "sliding", "ttl")
SCHEMA = {"key": pl.Int64, "ts": pl.Datetime("us")}


def moment(second: int) -> datetime:
    return START + timedelta(seconds=second)


@dataclass(frozen=True)
class Row:
    key: int | None
    second: int
    number: int


@dataclass(frozen=True)
class Case:
    """A join of streams whose keys are up to hours apart."""

    how: str
    bounds: str
    delays: tuple[int, int]
    interval: tuple[int, int]
    size: int
    every: int
    batches: list[tuple[list[Row], list[Row]]]

    @property
    def options(self) -> dict[str, Any]:
        before, after = (timedelta(seconds=second) for second in self.interval)
        return {
            "within": {"within": (-before, after)},
            "window": {"window": timedelta(seconds=self.size)},
            "sliding": {"window": timedelta(seconds=self.size), "every": timedelta(seconds=self.every)},
            "ttl": {"ttl": after - before},
        }[self.bounds]

    def build(self, flow: ab.Flow, sink: Any, **clock: Any) -> None:
        streams = []
        for side, column in enumerate("ab"):
            frames = [to_frame(batch[side], column) for batch in self.batches]
            delay = timedelta(seconds=self.delays[side])
            streams.append(flow.read(ab.memory(*frames)).watermark("ts", delay, per="key", **clock))
        streams[0].join(streams[1], on="key", how=self.how, **self.options).write(sink)


def to_frame(rows: list[Row], column: str) -> pl.DataFrame:
    made = [(row.key, moment(row.second), row.number) for row in rows]
    return pl.DataFrame(made, schema=SCHEMA | {column: pl.Int64}, orient="row")


class Model:
    """One join, row by row: what is late, who met whom, and when it shows that a row meets nobody."""

    def __init__(self, case: Case) -> None:
        self._case = case
        least, most = case.interval
        self._interval = (least, most) if case.bounds == "within" else (least - most, most - least)
        self._clocks: dict[tuple[int, int], int] = defaultdict(lambda: NEVER)
        self._times: dict[int | None, int] = defaultdict(lambda: NEVER)
        self._placed: list[list[tuple[Row, int]]] = [[], []]
        self._met: list[set[tuple[int, int]]] = [set(), set()]
        self._gone: list[set[tuple[int, int]]] = [set(), set()]
        self.late_rows = 0

    def _starts(self, row: Row) -> list[int]:
        size, every = self._case.size, self._case.every if self._case.bounds == "sliding" else self._case.size
        return list(range((row.second - size) // every * every + every, row.second + 1, every))

    def _over(self, side: int, row: Row, start: int) -> float:
        """The time of its key at which a row can meet nobody any more; a microsecond is a thousandth here."""
        if self._case.bounds in ("window", "sliding"):
            return start + self._case.size
        return row.second + (self._interval[1] if side == 0 else -self._interval[0]) + 0.001

    def _take(self, side: int, row: Row) -> list[tuple[Row, int]]:
        time = self._times[row.key] if row.key is not None else NEVER
        if self._case.bounds in ("window", "sliding"):
            opened = [(row, start) for start in self._starts(row) if start + self._case.size > time]
        else:
            opened = [(row, 0)] if row.second >= time else []
        self.late_rows += not opened
        return opened

    def run(self, batch: tuple[list[Row], list[Row]], *, drains: bool = False) -> list[Any]:
        """Return the results of a batch."""
        new = [[placed for row in rows for placed in self._take(side, row)] for side, rows in enumerate(batch)]
        results = []
        for side in (0, 1):
            results += [self._pair(side, one, other) for one in new[side] for other in self._placed[1 - side]]
            self._placed[side] += new[side] if side == 0 else []
        self._placed[1] += new[1]
        for side, rows in enumerate(batch):
            for row in rows:
                if row.key is not None:
                    clock = row.second - self._case.delays[side]
                    self._clocks[row.key, side] = max(self._clocks[row.key, side], clock)
        for key in {key for key, _ in self._clocks}:
            self._times[key] = max(self._times[key], min(self._clocks[key, side] for side in (0, 1)))
        return [*(pair for pair in results if pair is not None), *self._alone(drains)]

    def _pair(self, side: int, one: tuple[Row, int], other: tuple[Row, int]) -> Any:
        left, right = (one, other) if side == 0 else (other, one)
        fits = left[0].key == right[0].key and left[0].key is not None and left[1] == right[1]
        if self._case.bounds in ("within", "ttl"):
            fits = fits and self._interval[0] <= right[0].second - left[0].second <= self._interval[1]
        if not fits:
            return None
        for number, placed in enumerate((left, right)):
            assert (placed[0].number, placed[1]) not in self._gone[number], "a row meets somebody after it went alone"
        first = (left[0].number, left[1]) not in self._met[0]
        for number, placed in enumerate((left, right)):
            self._met[number].add((placed[0].number, placed[1]))
        if self._case.how == "anti" or (self._case.how == "semi" and not first):
            return None
        return self._show(left, None if self._case.how == "semi" else right)

    def _alone(self, drains: bool) -> list[Any]:
        preserved = {"left": (0,), "anti": (0,), "right": (1,), "full": (0, 1)}.get(self._case.how, ())
        found = []
        for side in preserved:
            for row, start in self._placed[side]:
                name = (row.number, start)
                over = self._over(side, row, start)
                if name in self._met[side] or name in self._gone[side]:
                    continue
                if drains or row.key is None or over <= self._times[row.key]:
                    self._gone[side].add(name)
                    placed = (row, start)
                    found.append(self._show(placed, None) if side == 0 else self._show(None, placed))
        return found

    def _show(self, left: tuple[Row, int] | None, right: tuple[Row, int] | None) -> tuple[Any, ...]:
        some = left or right
        assert some is not None
        window = (some[1],) if self._case.bounds in ("window", "sliding") else ()
        sides = [left] if self._case.how in ("semi", "anti") else [left, right]
        shown = [(moment(one[0].second), one[0].number) if one is not None else (None, None) for one in sides]
        return (some[0].key, *(value for pair in shown for value in pair), *window)


def shown(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    if "window_start" in frame.columns:
        frame = frame.with_columns(window_start=(pl.col("window_start") - START).dt.total_seconds()).drop("window_end")
    return sorted(frame.drop("joined_at", strict=False).rows(), key=repr)


def make_case(seed: int, how: str, bounds: str) -> Case:
    chance = random.Random(f"{seed} {how} {bounds}")
    keys = chance.choice((1, 3, 12))
    # A key's clock may be hours from that of another, and its sides may be apart, too.
    offsets = {key: chance.choice((0, 40, 5000, -3000)) for key in range(keys)}
    apart = chance.choice((0, 0, 7))
    batches, number = [], 0
    for batch in range(chance.randrange(2, 8)):
        sides = []
        for side in (0, 1):
            rows = []
            for _ in range(chance.choice((1, 1, 4, 20))):
                key = chance.choice([None, *range(keys), *range(keys)])
                second = batch * 4 + offsets.get(key, 0) + chance.randrange(-6, 9) - apart * side  # type: ignore[arg-type]
                rows.append(Row(key, second, number))
                number += 1
            sides.append(rows)
        batches.append((sides[0], sides[1]))
    interval = sorted(chance.randrange(-5, 9) for _ in range(2))
    size, every = chance.choice(((6, 2), (7, 3), (4, 3), (5, 5)))
    delays = (chance.choice((0, 3, 30)), chance.choice((0, 3, 30)))
    if bounds == "ttl" and interval[0] == interval[1]:
        interval[1] += 1
    return Case(how, bounds, delays, (interval[0], interval[1]), size, every, batches)


def check(bench: FlowBench, case: Case, steer: Any = None, *, restarts: bool = False, slots: int = 3) -> None:
    """Compare a join with the model, batch by batch."""
    model = Model(case)
    expected = [sorted(model.run(batch), key=repr) for batch in case.batches]
    expected.append(sorted(model.run(([], []), drains=True), key=repr))
    flow, sink = ab.Flow("joins"), ab.to_memory()
    case.build(flow, sink)
    settings: dict[str, Any] = {"checkpoint": bench.new_checkpoint(), "buckets": 16, "slots": slots}
    late_rows = 0
    for _ in case.batches if restarts else ():
        got = bench.run_steered(flow, [sink], steer, trigger="once", drain=False, **settings)
        late_rows += got.late_rows
    late_rows += bench.run_steered(flow, [sink], steer, **settings).late_rows
    results = dict(sink.batches())
    found = [shown(results[number]) if number in results else [] for number in range(len(case.batches))]
    assert found == expected[:-1], case
    drained = [row for number, frame in results.items() if number >= len(case.batches) for row in shown(frame)]
    assert sorted(drained, key=repr) == expected[-1], case
    assert late_rows == model.late_rows


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("how", JOIN_KINDS)
def test_a_join_by_key_answers_as_the_model(bench: FlowBench, how: str, bounds: str) -> None:
    for seed in range(3):
        check(bench, make_case(seed, how, bounds))


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("how", JOIN_KINDS)
def test_a_join_by_key_answers_as_the_model_while_keys_move(bench: FlowBench, how: str, bounds: str) -> None:
    for seed in (7, 8):
        case = make_case(seed, how, bounds)
        steer = Steerings(seed, [{"key": number} for number in range(12)])
        check(bench, case, steer, restarts=seed == 7)
        assert steer.changes or len(case.batches) < 3


def cases() -> st.SearchStrategy[Case]:
    return st.builds(make_case, st.integers(100, 10**6), st.sampled_from(JOIN_KINDS), st.sampled_from(BOUNDS))


@tries(8)
@given(case=cases(), moves=st.none() | st.integers(0, 10**6), restarts=st.booleans(), slots=st.sampled_from((1, 2, 5)))
def test_any_join_by_key_answers_as_the_model(case: Case, moves: int | None, restarts: bool, slots: int) -> None:
    steer = None if moves is None else Steerings(moves, [{"key": number} for number in range(12)])
    with tempfile.TemporaryDirectory() as folder:
        check(LocalBench(Path(folder)), case, steer, restarts=restarts, slots=slots)


def join_flow(how: str = "left", within: str = "2s", delay: str = "0s", **clock: Any) -> ab.Flow:
    """Return a flow that joins two streams by key, each key in its own time."""
    flow = ab.Flow("joins")
    streams = [
        flow.read(ab.memory(to_frame([], column)), name=column).watermark("ts", delay, per="key", **clock)
        for column in "ab"
    ]
    streams[0].join(streams[1], on="key", within=within, how=how, name="join").write(ab.to_memory())
    return flow


def add(tester: FlowTester, column: str, *rows: tuple[int, int]) -> FlowTester:
    """Give a side rows: key and second; the number of a row is its second."""
    return tester.add(to_frame([Row(key, second, second) for key, second in rows], column), column)


def numbers(tester: FlowTester) -> list[tuple[Any, ...]]:
    return sorted(tester.results().select("key", "a", "b").rows(), key=repr)


def count_stored(tester: FlowTester) -> int:
    """Return how many rows lie in run files, be they over or not."""
    store = open_store(tester.checkpoint)
    manifest = Checkpoint(store).latest()
    assert manifest is not None
    return read_rows(store, manifest.levels[0]).height


def test_a_key_that_is_an_hour_behind_is_late_for_nobody() -> None:
    with FlowTester(join_flow("inner")) as tester:
        add(add(tester, "a", (1, 3600), (2, 0)), "b", (1, 3601), (2, 1)).run()
        add(add(tester, "a", (1, 3603), (2, 3)), "b", (1, 3500), (2, 4)).run()
        assert tester.late_count == 1
        assert numbers(tester) == [(1, 3600, 3601), (1, 3603, 3601), (2, 0, 1), (2, 3, 1), (2, 3, 4)]


def test_nothing_of_a_key_is_over_before_both_streams_have_shown_it() -> None:
    with FlowTester(join_flow()) as tester:
        add(tester, "a", (1, 0), (1, 100)).run()
        add(tester, "a", (1, 200)).run()
        assert tester.results().is_empty()
        add(tester, "b", (1, 0), (1, 50)).run()
        assert tester.late_count == 0
        assert numbers(tester) == [(1, 0, 0)]
        add(tester, "b", (1, 150)).run()
        assert numbers(tester) == [(1, 0, 0), (1, 100, None)]


def test_of_a_key_that_one_stream_is_silent_of_the_other_sets_the_time() -> None:
    with FlowTester(join_flow(idle="30s"), now=START) as tester:
        add(add(tester, "a", (1, 0)), "b", (1, 1)).run()
        tester.advance("20s")
        add(tester, "a", (1, 10), (1, 20)).run()
        tester.advance("9s")
        assert numbers(tester) == [(1, 0, 1)]
        # The right stream is silent for 30 s, the left one is not: time is 20 s by now.
        tester.advance("15s")
        assert numbers(tester) == [(1, 0, 1), (1, 10, None)]
        add(tester, "b", (1, 19), (1, 21)).run()
        assert (tester.late_count, numbers(tester)) == (1, [(1, 0, 1), (1, 10, None), (1, 20, 21)])


def test_what_waits_of_a_key_that_is_silent_comes_out_and_leaves_the_state() -> None:
    with FlowTester(join_flow(idle="30s"), now=START) as tester:
        add(tester, "a", (1, 0), (1, 5)).run()
        tester.advance("2m")
        assert numbers(tester) == [(1, 0, None), (1, 5, None)]
        assert count_stored(tester) == 0
        # Rows of what came out are late; later ones are not.
        add(tester, "b", (1, 5), (1, 7), (1, 8)).run()
        assert tester.late_count == 2
        add(tester, "a", (1, 9)).run()
        assert (1, 9, 8) in numbers(tester)


@pytest.mark.parametrize("how", ["inner", "semi", "full"])
def test_rows_and_clocks_of_silent_keys_leave_the_state(how: str) -> None:
    with FlowTester(join_flow(how, idle="10s"), now=START) as tester:
        for batch in range(12):
            rows = [(100 * batch + key, 5 * batch) for key in range(50)]
            add(add(tester, "a", *rows), "b", *rows).run()
            tester.advance("5s")
            assert count_stored(tester) < 1200
        tester.advance("1m")
        assert count_stored(tester) == 0
        assert tester.results().height == 600


def test_a_key_far_behind_the_median_follows_it() -> None:
    with FlowTester(join_flow(behind="1m")) as tester:
        add(tester, "a", (1, 0)).run()
        for second in (100, 200):
            others = [(key, second) for key in range(2, 42)]
            add(add(tester, "a", *others), "b", *others).run_all()
        tester.run_all()
        assert (1, 0, None) in numbers(tester)


def test_a_drain_closes_what_waits_and_later_rows_go_on_behind_it() -> None:
    with FlowTester(join_flow()) as tester:
        add(tester, "a", (1, 10), (2, 50)).run()
        tester.drain()
        assert numbers(tester) == [(1, 10, None), (2, 50, None)]
        add(tester, "b", (1, 11), (1, 13), (2, 51)).run()
        assert tester.late_count == 2
        add(tester, "a", (1, 14)).run()
        assert numbers(tester)[1] == (1, 14, 13)


@pytest.mark.parametrize("moment_of_death", ["in-slot-after-state", "before-manifest", "after-manifest"])
def test_a_kill_leaves_the_same_results(moment_of_death: str) -> None:
    case = make_case(3, "full", "within")
    found = []
    for kills in (False, True):
        flow = ab.Flow("joins")
        case.build(flow, ab.to_memory())
        with FlowTester(flow, slots=3, buckets=16) as tester:
            for number, (left, right) in enumerate(case.batches):
                tester.add(to_frame(left, "a"), 0).add(to_frame(right, "b"), 1)
                if kills and number == 1:
                    tester.kill_at(moment_of_death)
                    with pytest.raises(Killed):
                        tester.run()
                tester.run_all()
                if number == 0:
                    tester.move(0, 2)
            tester.drain()
            found.append((sorted(tester.results().rows(), key=repr), tester.late_count))
    assert found[0] == found[1]


def test_rows_that_are_over_leave_the_state_while_their_key_goes_on() -> None:
    with FlowTester(join_flow("full")) as tester:
        for batch in range(60):
            rows = [(key, 10 * batch + key) for key in range(20)]
            add(add(tester, "a", *rows), "b", *rows).run()
        shown_rows = tester.state()
        assert shown_rows.group_by("input").len().sort("input").rows() == [("left", 20), ("right", 20)]
        assert tester.state(raw=True).height < 100
        # Of 2,400 rows, and as many clocks.
        assert count_stored(tester) < 1500


def test_explain_says_that_each_key_has_its_own_time() -> None:
    assert "each key follows its own time: the smallest of ts less 3s, ts less 3s" in join_flow(delay="3s").explain()


def test_parts_of_a_key_have_its_time_together() -> None:
    with FlowTester(join_flow("full"), slots=3) as tester:
        add(add(tester, "a", (1, 0), (1, 9)), "b", (1, 1)).run()
        tester.split(1, [0, 1, 2])
        tester.tick()
        # Left rows are dealt to three slots, and the latest of all of them counts on each.
        add(add(tester, "a", *((1, second) for second in range(10, 40))), "b", (1, 39)).run()
        met_nobody = [(1, second, None) for second in range(9, 37)]
        assert numbers(tester) == sorted([(1, 0, 1), *((1, n, 39) for n in (37, 38, 39)), *met_nobody], key=repr)
        add(add(tester, "a", (1, 5), (1, 38)), "b", (1, 5), (1, 38), (1, 100)).run()
        assert tester.late_count == 4
        tester.merge(1)
        tester.tick()
        add(add(tester, "a", (1, 41), (1, 100)), "b", (1, 43)).run()
        assert (1, 41, 43) in numbers(tester) and tester.late_count == 4


STEPS = st.one_of(
    st.tuples(
        st.just("rows"),
        st.lists(st.tuples(st.integers(0, 2), st.integers(-8, 8)), max_size=6),
        st.lists(st.tuples(st.integers(0, 2), st.integers(-8, 8)), max_size=6),
    ),
    st.tuples(st.just("wait"), st.sampled_from(("3s", "11s", "25s"))),
    st.tuples(st.just("place"), st.integers(0, 2), st.sets(st.integers(0, 2), min_size=1)),
    st.tuples(st.just("restart")),
)


def run_steps(steps: list[tuple[Any, ...]], how: str, clock: dict[str, Any], *, disturbed: bool) -> list[Any]:
    """Return what had come out after each step, and how many rows were late; keys are placed if it is disturbed."""
    seen: list[Any] = []
    with FlowTester(join_flow(how, within="4s", delay="2s", **clock), now=START, slots=3, buckets=16) as tester:
        second = 0
        add(add(tester, "a", (0, 0), (1, 20)), "b", (0, 0)).run()
        for kind, *given in steps:
            if kind == "rows":
                second += 3
                for column, rows in zip("ab", given, strict=True):
                    if rows:
                        add(tester, column, *((key, second + 20 * key + off) for key, off in rows))
                tester.run_all()
            elif kind == "wait":
                tester.advance(given[0])
            elif kind == "restart":
                # Silence counts from here on, whatever becomes of keys.
                tester.restart()
                tester.tick()
            elif disturbed:
                key, slots = given
                if len(slots) > 1:
                    tester.split(key, sorted(slots))
                else:
                    tester.move(key, *slots)
            columns = [name for name in ("key", "a", "b") if name in tester.results().columns]
            results = sorted(tester.results().select(columns).rows(), key=repr)
            waiting = [tuple(value for value in row if value is not None) for row in tester.state().rows()]
            seen.append((results, tester.late_count, sorted(waiting, key=repr)))
        tester.drain()
        seen.append((sorted(tester.results().rows(), key=repr), tester.late_count))
    return seen


@tries(12)
@given(
    steps=st.lists(STEPS, min_size=2, max_size=14),
    how=st.sampled_from(JOIN_KINDS),
    clock=st.sampled_from(({}, {"idle": "10s"}, {"idle": "10s", "forget": "30s"})),
)
def test_silence_says_the_same_however_keys_move_and_are_split(
    steps: list[tuple[Any, ...]], how: str, clock: dict[str, Any]
) -> None:
    expected = run_steps(steps, how, clock, disturbed=False)
    assert run_steps(steps, how, clock, disturbed=True) == expected

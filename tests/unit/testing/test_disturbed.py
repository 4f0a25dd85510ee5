"""Whatever happens to a flow under test, its results are those of an undisturbed one: each row counts once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.engine.faults import killed_at, reach
from anabranch.testing import MOMENTS, FlowTester, Killed
from property_tests import tries
from unit.testing.flows import SCHEMA, SILENCE_SCHEMA, START, at, silence_flow, topic, window_flow

NOW = "2026-01-01T00:00:00"
SIZE = timedelta(seconds=10)
DISORDER = 5


def test_a_fault_ends_the_block_that_waits_for_it_and_nothing_else() -> None:
    reach("after-job", 1)
    with killed_at("after-job", batch=2):
        reach("after-job", 1)
        reach("before-job", 2)
        with pytest.raises(Killed, match="killed at after-job of batch 2") as killed:
            reach("after-job", 2)
    assert (killed.value.moment, killed.value.batch) == ("after-job", 2)
    assert not isinstance(killed.value, Exception), "no part of the engine may take it for a failure"
    reach("after-job", 2)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_any_moment_loses_and_repeats_nothing(moment: str) -> None:
    with FlowTester(window_flow(late="side"), now=NOW) as tester:
        tester.add([at(1), at(2), at(3, sensor=2)]).run()
        tester.kill_at(moment, batch=1)
        with pytest.raises(Killed, match=f"{moment} of batch 1"):
            tester.add([at(13), at(14, sensor=2)]).run()
        tester.add(at(25)).run_all()
        windows = tester.results("windows").select("sensor", "readings").rows()
        assert sorted(windows) == [(1, 1), (1, 2), (2, 1), (2, 1)]
        assert tester.last.number == 2


def test_between_sinks_one_has_the_batch_and_the_other_has_not_until_the_next_driver_comes() -> None:
    with FlowTester(window_flow(late="side"), now=NOW) as tester:
        tester.add(at(30)).run()
        tester.kill_at("between-sinks")
        with pytest.raises(Killed):
            tester.add([at(1), at(42)]).run()
        assert (tester.results("windows").height, tester.late().height) == (1, 0)
        tester.run_all()
        assert (tester.results("windows").height, tester.late().height) == (1, 1)


def test_a_kill_comes_once_and_only_at_moments_that_there_are() -> None:
    with FlowTester(window_flow(), now=NOW) as tester:
        tester.kill_at("before-job")
        with pytest.raises(Killed):
            tester.add(at(1)).run()
        assert tester.run().progress.rows_in == 1
        with pytest.raises(ab.FlowError, match="no moment 'before-jobs'; did you mean 'before-job'"):
            tester.kill_at("before-jobs")


class Forgetful(ab.Processor):
    """Counts in itself, which no checkpoint knows."""

    readings = ab.value(pl.Int64(), default=0)

    def __init__(self) -> None:
        self.seen = 0

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        self.seen += 1
        state.readings += 1
        yield {"why": "seen", "readings": self.seen - state.readings, "now": None}


@pytest.mark.parametrize("how", ["kill", "restart"])
def test_what_a_processor_keeps_in_itself_ends_with_its_driver(how: str) -> None:
    processor = Forgetful()
    with FlowTester(silence_flow(processor), now=NOW) as tester:
        tester.add(at(1)).run()
        getattr(tester, how)()
        assert tester.add(at(2)).run().results()["readings"].to_list() == [-1]
        assert processor.seen == 0, "the user's own object is not the one that runs"


def test_a_processor_that_cannot_be_sent_is_refused() -> None:
    processor = Forgetful()
    processor.seen = (number for number in range(3))  # type: ignore[assignment]
    with pytest.raises(ab.FlowError, match="process silence: Forgetful cannot be copied, as it is when it is sent"):
        FlowTester(silence_flow(processor))


def test_a_flow_that_a_function_makes_is_made_for_every_driver() -> None:
    made: list[ab.Flow] = []

    def make() -> ab.Flow:
        made.append(window_flow())
        return made[-1]

    with FlowTester(make, now=NOW) as tester:
        tester.add(at(1)).run()
        tester.kill()
        tester.kill()
        tester.add(at(13)).run()
        tester.restart()
        assert len(made) == 3 and tester.results()["readings"].to_list() == [1]


def test_timers_and_state_outlive_restarts_and_other_slots() -> None:
    with FlowTester(silence_flow(), now=NOW, slots=1) as tester:
        tester.add([at(1, sensor=sensor) for sensor in range(8)]).run()
        tester.restart(slots=4)
        tester.add(at(2)).run()
        tester.kill()
        tester.add(at(3)).run()
        assert len(tester.last.progress.slot_rows) == 4
        tester.advance("1m")
        assert sorted(tester.results().select("sensor", "readings").rows()) == [
            (sensor, 3 if sensor == 1 else 1) for sensor in range(8)
        ]


def test_another_version_of_a_flow_goes_on_and_one_that_cannot_is_refused() -> None:
    with FlowTester(window_flow(), now=NOW) as tester:
        tester.add([at(1), at(2)]).run()
        other = ab.Flow("windows")
        other.read(topic()).key_by("sensor").agg(readings=ab.count()).write(ab.console())
        with pytest.raises(ab.CheckpointError, match="this checkpoint belongs to another flow"):
            tester.restart(other)
        tester.restart(window_flow(late="side", delay="1s"))
        tester.add(at(12)).run()
        assert tester.results("windows")["readings"].to_list() == [2]


def test_a_source_that_is_gone_is_refused_as_in_production_unless_it_is_dropped() -> None:
    moved = ab.Flow("windows")
    elsewhere = ab.files("/nowhere/else", format="json", schema=SCHEMA)
    stream = moved.read(elsewhere).filter(pl.col("volts") >= 0).key_by("sensor").watermark("ts", delay="2s")
    stream.window("10s").agg(readings=ab.count(), total=ab.sum("volts")).write(ab.console(), name="windows")
    with FlowTester(window_flow(), now=NOW) as tester:
        tester.add(at(1)).run()
        with pytest.raises(ab.CheckpointError, match="has read the source 'readings'"):
            tester.restart(moved)
        tester.restart(moved, drop_sources=("readings",))
        tester.add(at(13), "else").run()
        assert tester.results()["readings"].to_list() == [1]


def test_keys_are_moved_split_and_merged_and_refusals_say_why() -> None:
    with FlowTester(window_flow(), now=NOW, slots=3) as tester:
        with pytest.raises(ab.FlowError, match="agg has not run yet"):
            tester.move(1, 2)
        tester.add([at(1), at(2)]).run()
        assert "key 1 goes to slot" in tester.move(1, 2) + tester.move(1, 1)
        tester.tick(), tester.tick()
        assert "key 1 goes to slots 0, 2" in tester.split(1, [0, 2], operator="agg")
        changes = tester.add([at(3), at(4)]).run().progress.changes
        assert "key 1 goes to slots 0, 2" in changes[0]
        assert sum(rows > 0 for rows in tester.add([at(5)] * 10).run().progress.slot_rows) >= 1
        assert "goes home, whole" in tester.merge(1)
        assert "4" in tester.ctl("slots", count=4)
        tester.tick(), tester.tick()
        assert len(tester.add(at(6)).run().progress.slot_rows) == 4
        tester.drain()
        assert tester.results()["readings"].to_list() == [15]
        with pytest.raises(ab.FlowError, match="there is no slot 9"):
            tester.move(1, 9)
        with pytest.raises(ab.FlowError, match="no operator 'x'; the flow has agg"):
            tester.merge(1, operator="x")
        with pytest.raises(ab.FlowError, match="ctl: move takes key, slot"):
            tester.ctl("move", key="1")
        with pytest.raises(ab.FlowError, match="ctl: no action 'slot'; did you mean 'slots'"):
            tester.ctl("slot", count=4)  # type: ignore[arg-type]


def test_keys_of_several_columns_are_named_as_tuples() -> None:
    flow = ab.Flow("pairs")
    stream = flow.read(ab.memory(schema={"site": pl.String, "day": pl.Date}))
    stream.key_by("site", "day").agg(n=ab.count()).write(ab.console())
    with FlowTester(flow, now=NOW) as tester:
        tester.add({"site": "a", "day": "2026-01-01"}).run()
        assert "key a,2026-01-01 goes" in tester.move(("a", START.date()), 1)


# -- any order of events -------------------------------------------------------------------------------------------


class Totals(ab.Processor):
    """Says at the end of each 10 s what a sensor has shown until then."""

    total = ab.value(pl.Int64(), default=0)
    waiting = ab.mapped(pl.Int64(), pl.Int64())

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> None:
        window = int((row["ts"] - START) // SIZE)
        state.waiting[window] = state.waiting.get(window, 0) + row["value"]
        timers.at(START + SIZE * (window + 1))

    def on_timer(self, timer: ab.Timer, state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        state.total += state.waiting.pop(int((timer.time - START) // SIZE) - 1, 0)
        yield {"end": timer.time, "total": state.total}


def both_flow() -> ab.Flow:
    """Sum up windows, and windows of all sensors behind them; and let a processor keep totals."""
    flow = ab.Flow("both")
    rows = flow.read(ab.memory(schema={"sensor": pl.Int64, "ts": pl.Datetime("us"), "value": pl.Int64}))
    keyed = rows.key_by("sensor").watermark("ts", delay=timedelta(seconds=DISORDER))
    windows = keyed.window("10s").agg(rows=ab.count(), total=ab.sum("value"), name="first")
    windows.write(ab.console(), name="windows")
    of_all = windows.with_columns(every=pl.lit(0)).key_by("every").window("10s")
    of_all.agg(rows=ab.sum("rows"), sensors=ab.count(), name="second").write(ab.console(), name="all")
    schema = {"sensor": pl.Int64, "end": pl.Datetime("us"), "total": pl.Int64}
    keyed.process(Totals(), schema=schema, name="totals").write(ab.console(), name="totals")
    return flow


def make_rows(seed: int) -> pl.DataFrame:
    """Return rows by the time at which they come, at most the disorder behind others."""
    chance = random.Random(seed)
    times = [START + timedelta(seconds=second + chance.random() * DISORDER) for second in range(0, 60, 2)]
    values = {
        "sensor": [chance.randrange(4) for _ in times],
        "ts": times,
        "value": [chance.randrange(9) for _ in times],
    }
    return pl.DataFrame(values, schema={"sensor": pl.Int64, "ts": pl.Datetime("us"), "value": pl.Int64})


def expected(rows: pl.DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    """Return what Polars makes of the rows alone."""
    starts = rows.with_columns(start=pl.col("ts").dt.truncate("10s"))
    windows = starts.group_by("start", "sensor").agg(rows=pl.len(), total=pl.col("value").sum())
    of_all = windows.group_by("start").agg(rows=pl.col("rows").sum(), sensors=pl.len())
    totals = windows.sort("start").select(
        "sensor", pl.col("start") + SIZE, pl.col("total").cum_sum().over("sensor", order_by="start")
    )
    return {
        "windows": sorted(windows.rows()),
        "all": sorted(of_all.rows()),
        "totals": sorted(totals.rows()),
    }


def found(tester: FlowTester) -> dict[str, list[tuple[Any, ...]]]:
    return {
        "windows": sorted(tester.results("windows").select("window_start", "sensor", "rows", "total").rows()),
        "all": sorted(tester.results("all").select("window_start", "rows", "sensors").rows()),
        "totals": sorted(tester.results("totals").select("sensor", "end", "total").rows()),
    }


EVENTS = st.one_of(
    st.just(("nothing",)),
    st.just(("kill",)),
    st.tuples(st.just("kill_at"), st.sampled_from(MOMENTS)),
    st.tuples(st.just("restart"), st.integers(1, 4)),
    st.tuples(st.just("move"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("split"), st.integers(0, 3)),
    st.just(("advance",)),
)


def disturb(tester: FlowTester, event: tuple[Any, ...]) -> None:
    match event:
        case ("kill",):
            tester.kill()
        case ("kill_at", moment):
            tester.kill_at(moment)
        case ("restart", slots):
            tester.restart(slots=slots)
        case ("move", key, slot):
            with suppress(ab.FlowError):
                tester.move(key, slot, operator="totals")
                tester.move(key, slot, operator="first")
        case ("split", key):
            with suppress(ab.FlowError):
                tester.split(key, [0, 1], operator="first")
        case ("advance",):
            tester.advance("10s")


@tries(30)
@given(st.integers(0, 1000), st.lists(st.tuples(st.integers(1, 12), EVENTS), max_size=12), st.integers(1, 3))
def test_results_are_those_of_polars_whatever_happens(
    seed: int, steps: list[tuple[int, tuple[Any, ...]]], slots: int
) -> None:
    rows = make_rows(seed)
    with FlowTester(both_flow(), now=NOW, slots=slots) as tester:
        read = 0
        for size, event in [*steps, (rows.height, ("nothing",))]:
            tester.add(rows[read : read + size])
            read += size
            with suppress(Killed):
                disturb(tester, event)
                tester.run_all()
        with suppress(Killed):
            tester.drain()
        tester.drain()
        assert found(tester) == expected(rows)
        assert tester.late_count == 0 and tester.dead_letters().is_empty()


def test_the_schema_of_a_silent_flow_is_known() -> None:
    with FlowTester(silence_flow()) as tester:
        assert dict(tester.results().schema) == SILENCE_SCHEMA

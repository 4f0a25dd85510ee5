"""The tester: rows in, batches, a clock, and everything that comes out, without Spark."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import anabranch as ab
from anabranch.testing import Batch, FlowTester
from kept import readings_flow
from unit.testing.flows import SCHEMA, START, Silence, at, silence_flow, topic, window_flow

NOW = "2026-01-01T00:00:00"


@pytest.fixture
def windows() -> Iterator[FlowTester]:
    with FlowTester(window_flow(late="side"), now=NOW) as tester:
        yield tester


@pytest.fixture
def silence() -> Iterator[FlowTester]:
    with FlowTester(silence_flow(), now=NOW) as tester:
        yield tester


def counts(frame: pl.DataFrame) -> list[tuple[int, int, int]]:
    """Return (second at which the window begins, sensor, readings)."""
    begins = (pl.col("window_start") - START).dt.total_seconds()
    return sorted(frame.select(begins, "sensor", "readings").rows())


# -- batches -------------------------------------------------------------------------------------------------------


def test_a_batch_reads_all_that_was_added_and_returns_what_it_did(windows: FlowTester) -> None:
    windows.add([at(1), at(2, sensor=2)]).add(at(3))
    batch = windows.run()
    assert (batch.number, batch.progress.rows_in, batch.results("windows").height) == (0, 3, 0)
    assert repr(batch) == "<Batch 0: 3 rows in, 0 out>"
    batch = windows.add(at(13)).run()
    assert counts(batch.results("windows")) == [(0, 1, 2), (0, 2, 1)]
    assert windows.last.number == 1 and [progress.batch for progress in windows.progress] == [0, 1]


def test_results_are_those_of_all_batches_or_of_one(windows: FlowTester) -> None:
    for second in (1, 13, 25):
        windows.add(at(second)).run()
    assert counts(windows.results("windows")) == counts(windows.results(0)) == [(0, 1, 1), (10, 1, 1)]
    assert counts(windows.last.results("windows")) == [(10, 1, 1)]
    assert counts(windows.drain()[-1].results("windows")) == [(20, 1, 1)]


def test_results_have_their_columns_before_there_are_any(windows: FlowTester) -> None:
    schema = windows.results("windows").schema
    assert schema["readings"] == pl.Int64 and schema["window_start"] == pl.Datetime("us")
    windows.add([at(1), at(13)]).run()
    assert windows.results("windows").schema == schema


def test_to_run_nothing_is_an_error_and_a_tick_is_not(windows: FlowTester) -> None:
    with pytest.raises(ab.FlowError, match="no batch has run yet"):
        _ = windows.last
    with pytest.raises(ab.FlowError, match=r"nothing to run.*tick\(\) runs an empty one"):
        windows.run()
    assert windows.run_all() == []
    assert windows.tick().progress.rows_in == 0
    assert windows.add(at(1)).tick().progress.rows_in == 1


def test_a_drain_reads_what_was_added_and_fires_what_is_open(windows: FlowTester) -> None:
    windows.add([at(1), at(14)])
    batches = windows.drain()
    assert [batch.progress.drained for batch in batches] == [False, True]
    assert counts(windows.results("windows")) == [(0, 1, 1), (10, 1, 1)]
    assert windows.drain() == []


def group_flow() -> ab.Flow:
    """Groups of keys have their own time, which the driver tells slots of in the next batch."""
    flow = ab.Flow("groups")
    stream = flow.read(topic()).key_by("sensor").watermark("ts", per="group", groups=1)
    stream.window("10s").agg(n=ab.count()).write(ab.console())
    return flow


def test_batches_that_the_flow_asks_for_run_one_at_a_time_or_until_it_is_quiet() -> None:
    ways: list[Callable[[FlowTester], list[Batch]]] = [lambda t: [t.run(), t.run()], lambda t: t.run_all()]
    for run in ways:
        with FlowTester(group_flow(), now=NOW) as tester:
            tester.add([at(1), at(45)])
            done = [(batch.progress.rows_in, batch.results().height) for batch in run(tester)]
            assert done == [(2, 0), (0, 1)]
            assert tester.run_all() == []


# -- names ---------------------------------------------------------------------------------------------------------


def two_sources() -> ab.Flow:
    flow = ab.Flow("two")
    north = flow.read(ab.files("/nowhere/north", format="json", schema=SCHEMA))
    south = flow.read(topic(), name="south")
    north.union(south).write(ab.parquet("/nowhere/all"))
    south.filter("volts > 1").write(ab.console())
    return flow


def test_sources_and_sinks_go_by_name_number_or_the_name_that_the_checkpoint_gave_them() -> None:
    with FlowTester(two_sources(), now=NOW) as tester:
        tester.add(at(1), "north").add(at(2, volts=2), "south").add(at(3), 0).add(at(4, volts=2), 1)
        tester.run()
        assert tester.results("all").height == tester.results(0).height == 4
        assert tester.results(1)["volts"].to_list() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda t: t.add(at(1)), "the flow has 2 sources; say which: north, south"),
        (lambda t: t.add(at(1), "nort"), "no source 'nort'; did you mean 'north'?"),
        (lambda t: t.add(at(1), 2), "no source 2; there are north, south"),
        (lambda t: t.results(), "the flow has 2 sinks; say which: all, console"),
        (lambda t: t.results("others"), "no sink 'others'; there are all, console"),
        (lambda t: t.add({"senso": 1}, "north"), "add to 'north': row 0: no column 'senso'"),
    ],
)
def test_unknown_names_are_refused_with_those_that_there_are(wrong: Any, said: str) -> None:
    with FlowTester(two_sources()) as tester, pytest.raises(ab.FlowError) as raised:
        wrong(tester)
    assert said in str(raised.value)


# -- time ----------------------------------------------------------------------------------------------------------


def test_time_passes_only_by_the_test_and_timers_go_off_at_their_moment(silence: FlowTester) -> None:
    silence.add([at(1, sensor=1)]).run()
    silence.advance("10s")
    silence.add([at(2, sensor=2)]).run()
    assert silence.advance("19s") == []
    assert silence.now == START + timedelta(seconds=29)
    batches = silence.advance("1h")
    assert [batch.results()["sensor"].to_list() for batch in batches] == [[1], [2]]
    assert silence.results()["now"].to_list() == [START + timedelta(seconds=seconds) for seconds in (30, 40)]
    assert silence.now == START + timedelta(seconds=29, hours=1)


def test_to_set_the_clock_runs_nothing_and_what_is_due_runs_then(silence: FlowTester) -> None:
    silence.add([at(1, sensor=1), at(2, sensor=2)]).run()
    silence.set_time(START + timedelta(hours=1))
    assert silence.results().is_empty()
    assert silence.run().results()["now"].to_list() == [START + timedelta(hours=1)] * 2
    with pytest.raises(ab.FlowError, match=r"shows 2026-01-01 01:00:00, and cannot go back to 2026-01-01 00:00:00"):
        silence.set_time(NOW)
    with pytest.raises(ab.FlowError, match=r"set_time='soon' is no point in time"):
        silence.set_time("soon")


def test_advancing_runs_first_what_was_added(silence: FlowTester) -> None:
    batches = silence.add(at(1)).advance("1m")
    assert [batch.progress.rows_in for batch in batches] == [1, 0]
    assert silence.results()["now"].to_list() == [START + timedelta(seconds=30)]


def test_moments_are_exact_to_the_microsecond() -> None:
    for micros in (1, 3, 333_333, 999_999):
        now = START + timedelta(microseconds=micros)
        with FlowTester(silence_flow(), now=now) as tester:
            tester.add(at(1)).advance("1m")
            assert tester.results()["now"].to_list() == [now + timedelta(seconds=30)]


def test_whoever_is_silent_by_the_clock_holds_nobody_up() -> None:
    flow = ab.Flow("idle")
    stream = flow.read(topic()).key_by("sensor").watermark("ts", per="partition", idle="1m")
    stream.window("10s").agg(n=ab.count()).write(ab.console())
    with FlowTester(flow, now=NOW) as tester:
        tester.add(at(1), partition="slow").add(at(25), partition="quick").run_all()
        assert tester.results().is_empty()
        tester.advance("50s")
        tester.add(at(26), partition="quick").run_all()
        assert tester.results().is_empty()
        tester.advance("10s")
        assert tester.results()["n"].to_list() == [1]


def test_without_a_given_time_the_clock_shows_the_time_of_the_start() -> None:
    before = datetime.now()
    with FlowTester(window_flow()) as tester:
        assert abs(tester.now - before) < timedelta(days=2)
        assert tester.now == tester.now


def test_rows_far_ahead_of_the_clock_are_dead_letters_as_in_production(windows: FlowTester) -> None:
    batch = windows.add([at(1), at(3 * 86_400)]).run()
    assert batch.dead_letters()["reason"].to_list() == windows.dead_letters()["reason"].to_list()
    assert "ahead" in windows.dead_letters()["reason"][0]
    assert repr(batch) == "<Batch 0: 2 rows in, 0 out, 1 set apart>"


# -- what comes out ------------------------------------------------------------------------------------------------


def test_late_rows_are_those_that_the_flow_writes(windows: FlowTester) -> None:
    windows.add(at(30)).run()
    batch = windows.add([at(1, volts=7), at(31)]).run()
    assert windows.late().rows() == windows.late("agg").rows() == [(1, START + timedelta(seconds=1), 7.0)]
    assert (windows.late_count, batch.progress.late_rows) == (1, 1)
    with pytest.raises(ab.FlowError, match="1 rows were late, and the flow writes those of agg to a sink"):
        windows.late("others")


def test_of_late_rows_that_are_dropped_the_number_is_known() -> None:
    with FlowTester(window_flow(late="drop"), now=NOW) as tester:
        tester.add(at(30)).run()
        tester.add([at(1), at(2)]).run()
        assert tester.late_count == 2
        with pytest.raises(ab.FlowError, match=r"2 rows were late.*those of no operator.*late=\"side\""):
            tester.late()


def test_dead_letters_say_where_and_why(windows: FlowTester) -> None:
    windows.add([at(1, sensor=None), at(2)]).run()
    (letter,) = windows.dead_letters().to_dicts()
    assert letter["reason"] == "null key sensor" and '"volts":1.0' in letter["payload"]


def test_state_is_what_the_operator_holds_now(windows: FlowTester) -> None:
    empty = windows.state()
    assert empty.is_empty()
    windows.add([at(1), at(2), at(3, sensor=2)]).run()
    assert sorted(windows.state("agg").select("sensor", "readings").rows()) == [(1, 2), (2, 1)]
    assert windows.state().schema == empty.schema
    raw = windows.state(raw=True)
    with FlowTester(window_flow(), now=NOW, initial_state={"agg": raw}) as other:
        other.add(at(13)).run()
        assert counts(other.results()) == [(0, 1, 2), (0, 2, 1)]
    with pytest.raises(ab.CheckpointError, match="no operator 'sums'; the flow has: agg"):
        windows.state("sums")


def test_timers_are_shown_with_key_time_and_kind(silence: FlowTester) -> None:
    assert silence.timers().is_empty()
    silence.add([at(1, sensor=1), at(5, sensor=2)]).run()
    shown = silence.timers("silence")
    assert shown.rows() == [
        (1, START + timedelta(seconds=30), "processing", "wall"),
        (2, START + timedelta(seconds=30), "processing", "wall"),
        (1, START + timedelta(seconds=61), "event", "event"),
        (2, START + timedelta(seconds=65), "event", "event"),
    ]
    silence.add(at(61, sensor=3)).run()
    assert silence.timers().filter(kind="event")["sensor"].to_list() == [2, 3]


def test_of_timers_it_must_be_said_whose(windows: FlowTester) -> None:
    with pytest.raises(ab.FlowError, match="timers: say which processor; the flow has none"):
        windows.timers()
    with FlowTester(silence_flow()) as tester, pytest.raises(ab.FlowError, match=r"no processor 'x'; .* has silence"):
        tester.timers("x")


def test_a_key_that_is_called_as_a_column_of_timers_keeps_its_name() -> None:
    flow = ab.Flow("kinds")
    source = ab.memory(schema={"kind": pl.String, "ts": pl.Datetime("us")})
    flow.read(source).key_by("kind").watermark("ts").process(Silence(), schema={"kind": pl.String}).write(ab.console())
    with FlowTester(flow, now=NOW) as tester:
        tester.add({"kind": "a", "ts": START}).run()
        assert tester.timers().columns == ["kind", "time", "timer_kind", "tag"]


def test_the_watermark_is_that_of_the_last_batch(windows: FlowTester) -> None:
    assert windows.watermark() is None
    windows.add(at(12)).run()
    assert windows.watermark() == START + timedelta(seconds=10)


def test_what_a_function_fails_on_is_said_as_on_spark() -> None:
    def invert(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"sensor": row["sensor"], "ohms": 1 / row["volts"]}

    flow = ab.Flow("fails")
    flow.read(topic()).flat_map(invert, schema={"sensor": pl.Int64, "ohms": pl.Float64}).write(ab.console())
    with FlowTester(flow, now=NOW) as tester:
        tester.add([at(1), at(2, sensor=7, volts=0)])
        with pytest.raises(ab.FlowError) as raised:
            tester.run()
        said = str(raised.value)
        assert "ZeroDivisionError" in said and "in the step: flat_map invert" in said
        assert "with the row: {'sensor': 7" in said and f'File "{__file__}"' in said and '1 / row["volts"]' in said
        assert "batch 0 is not committed" in said
        # It fails again until the flow is mended; then nothing is lost.
        with pytest.raises(ab.FlowError, match="ZeroDivisionError"):
            tester.run()
        mended = ab.Flow("fails")
        mended.read(topic()).select("sensor", ohms=pl.lit(0.0)).write(ab.console())
        tester.restart(mended)
        assert tester.run().results()["sensor"].to_list() == [1, 7]


# -- how it is started ---------------------------------------------------------------------------------------------


def test_settings_of_a_run_are_taken_and_those_of_spark_are_refused() -> None:
    with FlowTester(window_flow(), slots=3, buckets=16, read_tasks=2, local_merge=False) as tester:
        assert tester.add(at(1)).run().progress.slot_rows.__len__() == 3
    with FlowTester(window_flow()) as tester:
        assert len(tester.add(at(1)).run().progress.slot_rows) == 2
    with pytest.raises(ab.FlowError, match=r"trigger= is for runs on Spark"):
        FlowTester(window_flow(), trigger="once")
    with pytest.raises(ab.FlowError, match=r"unknown setting 'slot'; did you mean 'slots'"):
        FlowTester(window_flow(), slot=3)  # type: ignore[call-arg]
    with pytest.raises(ab.FlowError, match=r"FlowTester takes a flow, or a function that returns one, found a str"):
        FlowTester("flow")  # type: ignore[arg-type]


def test_a_checkpoint_that_is_given_stays_and_another_tester_goes_on_with_it(tmp_path: Path) -> None:
    with FlowTester(window_flow(), now=NOW, checkpoint=tmp_path / "state") as tester:
        assert tester.checkpoint == str(tmp_path / "state")
        tester.add([at(1), at(2)]).run()
    with FlowTester(window_flow(), now=NOW, checkpoint=tmp_path / "state") as tester:
        tester.add(at(13)).run()
        assert counts(tester.results()) == [(0, 1, 2)]


def test_a_checkpoint_of_its_own_goes_with_the_tester() -> None:
    tester = FlowTester(window_flow())
    assert Path(tester.checkpoint).is_dir()
    tester.close()
    assert not Path(tester.checkpoint).exists()


def test_rows_of_another_testers_batch_that_never_ended_are_asked_for(tmp_path: Path) -> None:
    first = FlowTester(window_flow(), now=NOW, checkpoint=tmp_path)
    first.kill_at("before-manifest")
    with pytest.raises(ab.testing.Killed):
        first.add(at(1)).run()
    with (
        FlowTester(window_flow(), checkpoint=tmp_path) as second,
        pytest.raises(ab.SourceError, match="another tester"),
    ):
        second.add(at(2)).run()


def test_a_checkpoint_that_spark_has_left_goes_on_with_given_rows(tmp_path: Path) -> None:
    with tarfile.open(Path(readings_flow.__file__).parent / "readings-0.1.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    flow = readings_flow.make_flow(tmp_path)
    with FlowTester(flow, checkpoint=tmp_path / "checkpoint", now="2026-02-01", buckets=32) as tester:
        assert not tester.state("journal").is_empty() and not tester.timers().is_empty()
        for number in readings_flow.PARTS["second"]:
            for site in readings_flow.SITES:
                tester.add(readings_flow.rows_of(site, number), site)
            tester.run()
        tester.drain()
        wanted = readings_flow.answers()
        totals = tester.results("totals").sort("rows").unique("sensor", keep="last")
        assert_frame_equal(totals, wanted["totals"], check_row_order=False, check_dtypes=False)
        assert_frame_equal(tester.results("journal"), wanted["journal"], check_row_order=False)


def test_a_flow_is_built_explained_checked_and_tested_where_there_is_no_pyspark() -> None:
    code = (
        "import sys\n"
        "sys.modules.update(pyspark=None, py4j=None)\n"
        "import polars as pl, anabranch as ab\n"
        "flow = ab.Flow('x')\n"
        "stream = flow.read(ab.memory(schema={'key': pl.Int64})).key_by('key').agg(n=ab.count())\n"
        "stream.write(ab.console())\n"
        "flow.check()\n"
        "assert 'memory' in str(flow.explain())\n"
        "with ab.testing.FlowTester(flow) as tester:\n"
        "    assert tester.add([{'key': 1}, {'key': 1}]).run().results().rows() == [(1, 2)]\n"
        "import threading; print(threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("1", 0), done.stderr


def test_two_testers_of_one_flow_do_not_see_each_other() -> None:
    flow = window_flow()
    with FlowTester(flow, now=NOW) as one, FlowTester(flow, now=NOW) as other:
        one.add([at(1), at(13)]).run()
        other.add([at(1, sensor=5), at(13)]).run()
        assert_frame_equal(one.results().select("sensor"), pl.DataFrame({"sensor": [1]}))
        assert other.results()["sensor"].to_list() == [5]

"""The applications bench: its inputs, its answers, its figures and its report."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.apps.answers import (
    SCHEMAS,
    ask_oracle,
    check_app_answer,
    follow_crowns,
    read_answer,
    read_flink_answer,
)
from benchmarks.apps.bench import find_latest_ms
from benchmarks.apps.figures import (
    EXCHANGE,
    FLINK,
    READ,
    SPARK,
    AppRun,
    PartRun,
    compute_figures,
    compute_ratios,
    take_apart,
)
from benchmarks.apps.inputs import (
    HOUSEHOLD_FILE,
    LOW_VOLTS,
    AppInput,
    plan_app_input,
    read_household,
    write_app_input,
)
from benchmarks.apps.peers.ours import Settlement
from benchmarks.apps.report import AppsReport, draw_apps, print_report
from benchmarks.apps.rules import APPS, LEVELS, LOW_VOLTAGE, VAULT, VAULT_RULE, WINDOW_MS
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.figures import OURS
from benchmarks.shared.registry import BENCHES, BenchError
from benchmarks.shared.report import write_json
from property_tests import tries

RIGHT = AnswerCheck(True, 10, "d")
WRONG = AnswerCheck(False, 10, "e", "3 rows missing")


def read_all(given: AppInput) -> pl.DataFrame:
    return pl.concat([given.make_rows(index) for index in range(given.file_count)])


# -- inputs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("app", APPS)
def test_rows_depend_on_the_seed_and_the_file_alone(app: str) -> None:
    one, again, other = (plan_app_input(app, 4_000, seed, 100) for seed in (7, 7, 8))
    assert one.make_rows(3).equals(again.make_rows(3))
    assert not one.make_rows(3).equals(other.make_rows(3))
    assert not one.make_rows(3).equals(one.make_rows(4))


@pytest.mark.parametrize("app", APPS)
def test_sums_of_made_up_values_are_exact(app: str) -> None:
    values = read_all(plan_app_input(app, 4_000, 7, 100))["value"]
    assert ((values * 4) % 1 == 0).all()


def test_voltages_sag_for_some_readings_in_a_row() -> None:
    rows = read_all(plan_app_input(LOW_VOLTAGE, 100_000, 7, 1_000))
    low = rows.filter(pl.col("value") < LOW_VOLTS)
    assert 0.005 < low.height / rows.height < 0.05
    most = low.group_by("sensor").len()["len"].max()
    assert isinstance(most, int) and most >= 10


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_crowns_enter_and_leave_every_level(seed: int, tmp_path: Path) -> None:
    planned = plan_app_input(VAULT, 200_000, seed, 1_000)
    # A row a second: hours of a vault in few rows.
    slow = AppInput(VAULT, type(planned.readings)(200_000, 20_000, 0, 1_000, 1_000, seed))
    changes = ask_oracle(VAULT, write_app_input(slow, tmp_path), 0.0)
    assert set(changes["level"]) == set(range(len(LEVELS)))
    assert changes.filter(pl.col("level") < pl.col("was")).height > 0


def test_real_voltages_are_those_of_whole_days(tmp_path: Path) -> None:
    assert read_household(tmp_path) is None
    minutes = [datetime(2008, 3, 1) + timedelta(minutes=number) for number in range(1_440 + 30)]
    volts = pl.Series([200.0 + number for number in range(len(minutes))])
    pl.DataFrame({"ts": minutes, "voltage": volts}).write_parquet(tmp_path / HOUSEHOLD_FILE)
    traces = read_household(tmp_path)
    assert traces is not None and traces.shape == (1, 1_440) and traces[0, 5] == 205.0
    given = plan_app_input(LOW_VOLTAGE, 1_000, 7, 100, traces)
    assert given.name == "low-voltage-real" and given.low_volts != LOW_VOLTS
    rises = read_all(given).select(pl.col("value").diff().over("sensor").drop_nulls())["value"]
    assert set(rises) <= {1.0, -1_439.0}, "a sensor's readings follow each other as they did"


def test_a_file_without_a_whole_day_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"ts": [datetime(2008, 3, 1)], "voltage": [230.0]}).write_parquet(tmp_path / HOUSEHOLD_FILE)
    with pytest.raises(BenchError, match="no whole day"):
        read_household(tmp_path)


# -- answers -----------------------------------------------------------------------------------------------------------


def test_the_oracle_finds_the_windows_that_have_low_readings(tmp_path: Path) -> None:
    given = plan_app_input(LOW_VOLTAGE, 20_000, 7, 100)
    folder = write_app_input(given, tmp_path)
    rows = read_all(given).with_columns(window_start=pl.col("ts") - pl.col("ts") % WINDOW_MS[LOW_VOLTAGE])
    wanted = (
        rows.group_by("window_start", "sensor")
        .agg(readings=pl.len(), low=(pl.col("value") < LOW_VOLTS).sum(), lowest=pl.col("value").min())
        .filter(pl.col("low") > 0)
    )
    assert wanted.height > 10
    found = ask_oracle(LOW_VOLTAGE, folder, LOW_VOLTS)
    check = check_app_answer(LOW_VOLTAGE, wanted.select(found.columns).cast(dict(found.schema)), found, None)
    assert check.equal, check.difference
    assert find_latest_ms(folder) == rows["ts"].max()


def windows_of(*means_um: float) -> pl.DataFrame:
    starts = [number * WINDOW_MS[VAULT] for number in range(len(means_um))]
    return pl.DataFrame({"sensor": [5] * len(means_um), "window_start": starts, "mean_um": list(means_um)})


def test_a_level_is_held_until_both_are_well_below_what_it_was_entered_for() -> None:
    # Within half a minute: the rate does not count yet.
    means = [0.0, 5_000.0, 4_900.0, 3_700.0, 4_900.0, 5_100.0]
    levels = [(row[0] // WINDOW_MS[VAULT], *row[2:4]) for row in follow_crowns(windows_of(*means)).rows()]
    assert levels == [(1, 0, 1), (3, 1, 0), (5, 0, 1)]


def test_the_rate_is_taken_from_a_window_that_is_old_enough() -> None:
    changes = follow_crowns(windows_of(*([0.0] * 6), 1_000.0, 2_000.0))
    assert changes.rows() == [(30_000, 5, 0, 1, 1_000.0, 2_000.0), (35_000, 5, 1, 2, 2_000.0, 4_000.0)]


@given(drift=st.floats(-1e5, 1e5), rate=st.floats(-1e5, 1e5), level=st.integers(0, 3))
def test_a_level_is_the_highest_that_is_entered_or_held(drift: float, rate: float, level: int) -> None:
    entered = [drift >= d or rate >= r for d, r in zip(VAULT_RULE.drift_um, VAULT_RULE.um_per_minute, strict=True)]
    part = VAULT_RULE.left_below
    limits = zip(VAULT_RULE.drift_um, VAULT_RULE.um_per_minute, strict=True)
    held = [drift >= part * d or rate >= part * r for d, r in limits]
    on = [number + 1 for number in range(3) if entered[number] or (held[number] and number < level)]
    assert VAULT_RULE.judge(drift, rate, level) == max(on, default=0)


@given(
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.integers(1, 39), max_size=4),
    gaps=st.floats(0.0, 0.5),
    scale=st.floats(1, 9_000),
)
@example(seed=0, cuts=[], gaps=0.4296875, scale=556.0)
@tries(30)
def test_our_processor_gives_the_oracles_changes_whatever_the_batches(
    seed: int, cuts: list[int], gaps: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    moments = [(number, sensor) for number in range(40) for sensor in range(6) if rng.random() >= gaps]
    windows = pl.DataFrame(moments, schema={"number": pl.Int64, "sensor": pl.Int64}, orient="row").with_columns(
        window_start=pl.col("number") * WINDOW_MS[VAULT],
        mean_um=pl.Series(rng.normal(0, scale, len(moments)).cumsum().round(2)),
    )
    processor = Settlement()
    fields = {
        "first_um": pl.Float64,
        "level": pl.Int64,
        "recent": pl.List(pl.Struct({"at": pl.Datetime("us"), "um": pl.Float64})),
    }
    kept = pl.DataFrame(schema={"sensor": pl.Int64, **fields})
    found = []
    bounds = [0, *sorted(set(cuts)), 40]
    for start, end in pairwise(bounds):
        batch = windows.filter(pl.col("number").is_between(start, end - 1))
        frame = batch.with_columns(pl.from_epoch("window_start", "ms").cast(pl.Datetime("us")))
        touched = batch.select(pl.col("sensor").unique().sort()).join(kept, on="sensor", how="left")
        state = touched.with_columns(pl.col("level").fill_null(0), pl.col("recent").fill_null([]))
        changes, after = processor.process(frame.sample(fraction=1.0, shuffle=True, seed=seed), state, None)
        kept = pl.concat([kept.join(after, on="sensor", how="anti"), after.select(kept.columns)])
        found.append(changes)
    emitted = pl.concat(found).with_columns(pl.col("window_start").dt.epoch("ms"))
    wanted = follow_crowns(windows.select("sensor", "window_start", "mean_um"))
    check = check_app_answer(VAULT, emitted.select(wanted.columns), wanted, None)
    assert check.equal, check.difference


def make_rows(app: str, *rows: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict(SCHEMAS[app]), orient="row")


def test_the_last_emission_of_a_low_window_counts() -> None:
    wanted = make_rows(LOW_VOLTAGE, (0, 1, 3, 2, 200.0))
    again = make_rows(LOW_VOLTAGE, (0, 1, 2, 1, 201.0), (0, 1, 3, 2, 200.0))
    assert check_app_answer(LOW_VOLTAGE, again, wanted, None).equal
    assert not check_app_answer(LOW_VOLTAGE, again.reverse(), wanted, None).equal


def test_a_change_that_is_emitted_twice_is_wrong() -> None:
    wanted = make_rows(VAULT, (0, 1, 0, 1, 5_000.0, 0.0))
    assert check_app_answer(VAULT, wanted, wanted, None).equal
    check = check_app_answer(VAULT, pl.concat([wanted, wanted]), wanted, None)
    assert not check.equal and "1 repeated" in check.difference


def test_a_wrong_number_is_a_wrong_answer() -> None:
    wanted = make_rows(VAULT, (0, 1, 0, 1, 5_000.0, 0.0))
    check = check_app_answer(VAULT, make_rows(VAULT, (0, 1, 0, 1, 5_000.25, 0.0)), wanted, None)
    assert not check.equal and "1 with other values" in check.difference


def test_windows_that_a_system_need_not_have_closed_do_not_count() -> None:
    wanted = make_rows(VAULT, (0, 1, 0, 1, 5_000.0, 0.0), (5_000, 1, 1, 2, 10_000.0, 0.0))
    assert check_app_answer(VAULT, wanted.head(1), wanted, 9_999).equal
    assert not check_app_answer(VAULT, wanted.head(1), wanted, 10_000).equal


@pytest.mark.parametrize("app", APPS)
def test_answers_are_read_as_they_were_written(app: str, tmp_path: Path) -> None:
    columns = SCHEMAS[app]
    rows = [tuple(10 * number + place for place in range(len(columns))) for number in range(3)]
    kinds = [(name, "<f8" if kind is pl.Float64 else "<i8") for name, kind in columns.items()]
    np.array(rows[:2], dtype=kinds).tofile(tmp_path / "part-0-a-9")
    np.array(rows[2:], dtype=kinds).tofile(tmp_path / "part-0-a-10")
    (tmp_path / ".part-0-a-11.inprogress").write_bytes(b"not committed")
    written = make_rows(app, *rows)
    assert read_flink_answer(app, tmp_path).equals(written)
    written.with_columns(pl.from_epoch("window_start", "ms")).write_parquet(tmp_path / "part-1.parquet")
    assert read_answer(app, tmp_path).equals(written)


# -- figures -----------------------------------------------------------------------------------------------------------


def make_run(system: str, rate: float | None, number: int = 0, app: str = LOW_VOLTAGE, **more: Any) -> AppRun:
    common: dict[str, Any] = {"batch_seconds": 1.0, "run_seconds": 9.0, "answer": RIGHT, "emissions": 10}
    return AppRun(system, app, number, 100, rate, **{**common, **more})


def test_ratios_are_of_rounds_and_the_middle_one_is_claimed() -> None:
    rates = [(OURS, 8.0), (FLINK, 2.0)], [(OURS, 12.0), (FLINK, 2.0)], [(OURS, 9.0), (FLINK, 3.0)]
    runs = [make_run(system, rate, number) for number, pair in enumerate(rates) for system, rate in pair]
    (ratio,) = compute_ratios(runs)
    assert (ratio.by_round, ratio.middle, ratio.name) == ((4.0, 6.0, 3.0), 4.0, "low_voltage_x_flink")
    figures = compute_figures(runs)
    assert figures["low_voltage_x_flink"] == 4.0
    assert figures["low_voltage_anabranch_rows_per_second"] == 9.0


def test_a_round_without_a_rate_makes_no_ratio() -> None:
    runs = [make_run(OURS, 8.0), make_run(SPARK, None)]
    assert compute_ratios(runs) == [] and "low_voltage_x_spark" not in compute_figures(runs)


def test_one_wrong_answer_leaves_no_claim() -> None:
    runs = [make_run(OURS, 8.0), make_run(FLINK, 2.0, app=VAULT, answer=WRONG)]
    assert compute_figures(runs) == {"answers_equal": 0, "rows": 100, "batch_seconds": 1.0}
    assert compute_figures([])["answers_equal"] == 0


PARTS = [PartRun(OURS, READ, 10e6), PartRun(FLINK, READ, 4e6), PartRun(FLINK, EXCHANGE, 2e6)]


def test_a_part_is_what_it_adds_to_those_before_it() -> None:
    runs = [make_run(OURS, 5e6), make_run(FLINK, 1e6)]
    assert take_apart(runs, PARTS, FLINK, LOW_VOLTAGE) == pytest.approx({READ: 0.25, EXCHANGE: 0.25, "state": 0.5})
    assert take_apart(runs, PARTS, OURS, LOW_VOLTAGE) == pytest.approx({READ: 0.1, "state": 0.1})
    assert take_apart(runs, PARTS, OURS, VAULT) == {}


# -- report ------------------------------------------------------------------------------------------------------------


def make_report(**more: Any) -> AppsReport:
    runs = [make_run(system, rate, app=app) for app in APPS for system, rate in ((OURS, 8e6), (FLINK, 1e6))]
    given: dict[str, Any] = {"systems": runs, "parts": PARTS, "figures": compute_figures(runs, PARTS)}
    return AppsReport(workload={"name": "apps"}, seed=7, **{**given, **more})


def test_the_report_shows_ratios_and_where_time_goes(tmp_path: Path) -> None:
    text = StringIO()
    print_report(make_report(), Console(file=text, width=140))
    for word in ("Answers equal", "8.00", "low_voltage_x_flink", "vault_x_flink", "µs a row", "sending to keys"):
        assert word in text.getvalue()
    assert all(path.stat().st_size for path in draw_apps(make_report(), tmp_path))
    write_json(make_report(), tmp_path / "apps.json")
    written = json.loads((tmp_path / "apps.json").read_text())
    assert written["figures"]["vault_x_flink"] == 8.0 and len(written["ratios"]) == 2


def test_a_wrong_answer_is_said_and_has_no_rate() -> None:
    runs = [make_run(OURS, 8e6, answer=WRONG)]
    text = StringIO()
    print_report(make_report(systems=runs, figures=compute_figures(runs)), Console(file=text, width=140))
    assert "Wrong answer" in text.getvalue() and "3 rows missing" in text.getvalue()
    assert "8.00" not in text.getvalue()


def test_the_bench_is_listed_with_its_peers() -> None:
    assert BENCHES["apps"].peers == (FLINK, SPARK)

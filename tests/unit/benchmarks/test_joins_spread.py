"""The parts of the joins bench that look at slots: what they receive, how many are needed, and the figures of both."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from benchmarks.joins import tpch
from benchmarks.joins.answers import check_answer
from benchmarks.joins.bench import run
from benchmarks.joins.inputs import JoinInput, write_streams
from benchmarks.joins.spread import measuring
from benchmarks.joins.spread.figures import compute_growth_figures, compute_received_figures
from benchmarks.joins.spread.growth import GrowthRun, measure_growth
from benchmarks.joins.spread.picture import draw_spread
from benchmarks.joins.spread.points import SpreadPoint, plan_input
from benchmarks.joins.spread.received import Costs, Received, ReceivedRun, measure_received
from benchmarks.joins.spread.strategies import BI, BI6, HASH, MATRIX, MNRT, PKG, QMMP, READJ, SPREADINGS
from benchmarks.joins.streams import BNCI, BNCI_WINDOWS, CLOSE_MS, DELAY_MS, EQ5, EQ5_WINDOWS, list_results
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.registry import BenchOptions
from unit.benchmarks.tpch_tables import write_tables

RIGHT = AnswerCheck(True, 10, "d")
ROWS = 4_800
NOTHING = Costs(0, 0.0, 0, 0, 0, 0)
SKEWED = SpreadPoint(EQ5, 1.5)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("tpch"))


@pytest.fixture(autouse=True)
def _no_generator(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpch, "ensure_tables", lambda scale_factor, cache_dir: tables)


def make_input(query: str, exponent: float = 1.5) -> JoinInput:
    return plan_input(SpreadPoint(query, exponent), ROWS, 7, Path("nowhere"))


def receive(query: str, strategy: str, place: Path, slots: int = 2) -> ReceivedRun:
    folder = write_streams(make_input(query), "parquet", place / "input")
    return measure_received(SpreadPoint(query, 1.5), SPREADINGS[strategy], folder, place / strategy, slots)


# -- inputs ------------------------------------------------------------------------------------------------------------


def test_orders_of_bnci_are_drawn_by_the_zipf_law_and_the_rest_is_the_generators(tables: Path) -> None:
    given = make_input(BNCI)
    rows = pl.concat(given.make_rows("lineitem", index) for index in range(given.cut.count))
    counts = rows["l_orderkey"].value_counts(sort=True)["count"]
    assert counts[0] > 0.3 * rows.height
    kept = ("l_linenumber", "l_shipinstruct", "l_shipmode")
    assert rows.select(kept).equals(pl.read_parquet(tables / "lineitem.parquet").head(ROWS).select(kept))


@pytest.mark.parametrize("query", [BNCI, BNCI_WINDOWS])
def test_bncis_oracle_says_what_polars_says(query: str, tmp_path: Path) -> None:
    given = make_input(query)
    folder, output = write_streams(given, "parquet", tmp_path), tmp_path / "output"
    output.mkdir()
    rows = pl.read_parquet(folder / "lineitem" / "part-*")
    left = rows.filter(pl.col("l_shipmode") == "TRUCK")
    right = rows.filter(pl.col("l_shipinstruct") == "NONE", pl.col("l_quantity") > 48)
    near = (pl.col("l_orderkey") - pl.col("l_orderkey_right")).abs() <= 1
    pairs = left.join(right, how="cross").filter(near)
    if query == BNCI_WINDOWS:
        everywhere, before_ms, after_ms = pairs.height, *CLOSE_MS
        pairs = pairs.filter((pl.col("l_at_right") - pl.col("l_at")).is_between(-before_ms, after_ms))
        assert pairs.height < 0.7 * everywhere
        pairs = pairs.with_columns(pl.from_epoch("l_at", "ms"), pl.from_epoch("l_at_right", "ms"))
    pairs = pairs.select(list(list_results(query)))
    pairs.write_parquet(output / "part-0.parquet")
    found = check_answer(query, output, folder, "parquet")
    assert found.equal, found.difference
    assert found.rows == pairs.height > 0


def test_lineitems_of_bnci_in_windows_are_out_of_order_and_none_is_late() -> None:
    given = make_input(BNCI_WINDOWS)
    times = pl.concat(given.make_rows("lineitem", index) for index in range(given.cut.count))["l_at"]
    assert 0 < (times.cum_max() - times).max() < DELAY_MS  # type: ignore[operator]


# -- what slots receive ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "strategy"),
    [
        *((query, name) for query in (EQ5, BNCI) for name in SPREADINGS),
        *((EQ5_WINDOWS, name) for name in (MNRT, READJ, PKG)),
        *((BNCI_WINDOWS, name) for name in (MNRT, HASH, MATRIX, READJ, PKG)),
    ],
)
def test_every_strategy_answers_as_the_oracle_does(query: str, strategy: str, tmp_path: Path) -> None:
    found = receive(query, strategy, tmp_path, slots=4)
    assert found.batch_seconds is not None and 0 < found.batch_seconds < found.run_seconds
    assert found.answer.equal, found.answer.difference
    assert found.answer.rows > 0


def test_slots_receive_every_row_once_by_hash_and_copies_beside(tmp_path: Path) -> None:
    by_hash, dealt = receive(EQ5, HASH, tmp_path), receive(EQ5, BI, tmp_path)
    assert by_hash.costs.copied_rows == 0
    assert by_hash.whole.mean * 2 == by_hash.sent_rows == dealt.sent_rows
    # With one slot a half, each row is stored on one of them and asks the other.
    assert dealt.costs.copied_rows == dealt.sent_rows == dealt.whole.mean
    assert dealt.whole.most == dealt.whole.mean


def test_readj_moves_keys_and_splits_none_and_pkg_gives_every_key_two_slots(tmp_path: Path) -> None:
    by_hash, moved, paired = (receive(EQ5, name, tmp_path, slots=4) for name in (HASH, READJ, PKG))
    assert moved.costs.plans > 0 and moved.costs.moved_bytes > 0
    assert moved.costs.copied_rows == 0
    assert paired.settled.max_over_mean < by_hash.settled.max_over_mean
    assert paired.costs.copied_rows > 0 == paired.costs.plans


def test_planners_see_the_keys_in_the_flow_and_even_slots_out(tmp_path: Path) -> None:
    by_hash, planned = receive(EQ5, HASH, tmp_path), receive(EQ5, MNRT, tmp_path)
    assert planned.costs.plans > 0 and planned.costs.planning_seconds > 0
    assert planned.costs.table_rows > 0 and planned.costs.moved_bytes > 0
    assert by_hash.costs == Costs(0, 0.0, 0, 0, 0, 0)
    assert planned.settled.max_over_mean < by_hash.settled.max_over_mean


# -- how many slots are needed -----------------------------------------------------------------------------------------


def test_slots_are_added_until_none_keeps_more_than_it_may(tmp_path: Path) -> None:
    folder = write_streams(make_input(EQ5), "parquet", tmp_path / "input")
    found = measure_growth(SKEWED, SPREADINGS[MNRT], folder, tmp_path, limit_rows=2_000)
    assert found.answer.equal, found.answer.difference
    assert found.fits and 3 <= found.slots <= 5
    assert found.adjustments == found.slots - 1
    assert found.batch_seconds is not None and found.batch_seconds > 0
    assert found.moved_rows > 0 and found.adjustment_seconds > 0


def test_a_key_that_is_kept_whole_may_need_more_slots_than_there_are(tmp_path: Path) -> None:
    folder = write_streams(make_input(EQ5), "parquet", tmp_path / "input")
    found = measure_growth(SKEWED, SPREADINGS[HASH], folder, tmp_path, limit_rows=1_000, most_slots=6)
    assert found.answer.equal, found.answer.difference
    assert not found.fits and found.slots == 6
    assert compute_growth_figures([found]) == {}


def test_a_full_slot_of_the_matrix_becomes_four() -> None:
    assert [SPREADINGS[MATRIX].grow(slots) for slots in (1, 4)] == [4, 16]
    assert [SPREADINGS[MNRT].grow(slots) for slots in (1, 4)] == [2, 5]


# -- figures -----------------------------------------------------------------------------------------------------------


def make_received(point: SpreadPoint, strategy: str, whole: float, settled: float, most: int) -> ReceivedRun:
    found = (Received(whole, most), Received(settled, most))
    return ReceivedRun(point, strategy, 4, RIGHT, 16, 100, 1_000, *found, NOTHING, 1.0)


def test_mnrt_is_held_against_the_best_of_its_rivals_in_the_worse_half() -> None:
    runs = [
        make_received(SKEWED, MNRT, 110.0, 104.0, 130),
        make_received(SKEWED, QMMP, 100.0, 104.0, 120),
        make_received(SKEWED, BI6, 200.0, 200.0, 100),
        # Slots that are not kept even are no rivals.
        make_received(SKEWED, HASH, 10.0, 10.0, 10),
    ]
    assert compute_received_figures(runs) == {
        "eq5_mnrt_rows_received_over_best_other_z1_5": pytest.approx(1.1),
        "eq5_mnrt_most_received_over_best_other_z1_5": pytest.approx(1.3),
        "mnrt_rows_received_over_best_other": pytest.approx(1.1),
        "mnrt_rows_received_over_best_other_whole_run": pytest.approx(1.1),
        "mnrt_rows_received_over_best_other_second_half": pytest.approx(1.0),
    }


def test_the_claim_is_about_skewed_eq5_alone() -> None:
    points = {SpreadPoint(EQ5, 0.4): 3.0, SpreadPoint(EQ5_WINDOWS, 0.8): 1.5, SpreadPoint(BNCI, 1.5): 2.0}
    runs = [make_received(point, MNRT, 100 * ratio, 100.0, 100) for point, ratio in points.items()]
    runs += [make_received(point, QMMP, 100.0, 100.0, 100) for point in points]
    figures = compute_received_figures(runs)
    assert figures["mnrt_rows_received_over_best_other"] == 1.5
    assert figures["bnci_mnrt_rows_received_over_best_other_z1_5"] == 2.0
    assert compute_received_figures(runs[:3]) == {}


# -- the whole part ----------------------------------------------------------------------------------------------------


def test_the_parts_run_by_name_with_tables_pictures_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "EXPONENTS", {"received": {EQ5: ()}, "growth": {EQ5: ()}})
    monkeypatch.setattr(measuring, "SPREADINGS", {name: SPREADINGS[name] for name in (MNRT, BI)})
    monkeypatch.setattr(measuring, "SLOTS_FILLED", 3)
    path = tmp_path / "report.json"
    options = BenchOptions(
        rows=ROWS,
        only=("received", "growth"),
        exponents=(1.5,),
        slots=2,
        cache_dir=tmp_path / "cache",
        json_path=path,
        out_dir=tmp_path / "pictures",
    )
    output = StringIO()
    report = run(options, Console(file=output, width=200))
    assert report.answers_equal, output.getvalue()
    written = json.loads(path.read_text())
    assert written["figures"]["mnrt_rows_received_over_best_other"] < 1
    assert written["figures"]["rows"] == ROWS
    longest = [
        run["batch_seconds"] for part in ("received", "growth") for run in written[part] if run["strategy"] == MNRT
    ]
    assert written["figures"]["batch_seconds"] == max(longest)
    assert 4 <= written["figures"]["eq5_mnrt_slots_needed_z1_5"] <= 6
    assert {run["strategy"] for run in written["received"]} == {MNRT, BI}
    assert written["workload"]["received"]["eq5"]["slots"] == 2
    shown = " ".join(output.getvalue().split())
    assert "received: eq5, in process" in shown and "4,800 lineitems, scale factor 0.0008" in shown
    assert "a slot may keep 1,630 rows" in shown
    assert [picture.name for picture in report.pictures] == ["joins-slots.png", "joins-slots.svg"]


def test_there_is_no_picture_of_nothing(tmp_path: Path) -> None:
    assert draw_spread([], [], tmp_path) == []


def test_slots_that_do_are_a_figure() -> None:
    kept = GrowthRun(SKEWED, MNRT, 100, RIGHT, 7, 90, 500, 6, 1.0, 10, 1_000)
    assert compute_growth_figures([kept]) == {
        "eq5_mnrt_slots_needed_z1_5": 7,
        "eq5_mnrt_adjustment_seconds_z1_5": 1.0,
    }

"""The joins bench: its inputs, what the oracle answers, how answers are compared, our flows, and its figures."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from argparse import Namespace
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

import anabranch as ab
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from benchmarks.joins import bench as joins
from benchmarks.joins import tpch
from benchmarks.joins.answers import ask_oracle, check_answer
from benchmarks.joins.bench import run
from benchmarks.joins.eq5_input import ANEW, SPREAD, WHOLE, Eq5Input, plan_eq5
from benchmarks.joins.figures import JoinPoint, JoinRun, compute_figures
from benchmarks.joins.inputs import FEWEST_FILES, JoinInput, cut_files, write_streams
from benchmarks.joins.interval_input import ADS_A_CLICK, DISORDER_MS, RESULTS_A_ROW, IntervalInput, plan_interval
from benchmarks.joins.peers import flink, ours
from benchmarks.joins.peers.dbsp import building
from benchmarks.joins.plan import (
    DBSP_BALANCED,
    DBSP_HASH,
    FLINK_HEAP,
    HASHED,
    NAMES,
    PARTS,
    SPARK_MEMORY,
    SPARK_ROCKSDB,
    SPARK_ROCKSDB_4,
    choose_formats,
    choose_systems,
)
from benchmarks.joins.report import JoinsReport, print_report
from benchmarks.joins.streams import (
    AFTER_MS,
    BEFORE_MS,
    DELAY_MS,
    EQ5,
    EQ5_WINDOWS,
    INTERVAL,
    MOMENT,
    NEAREST_MS,
    NEWEST_MS,
    STREAMS,
    TIMED,
    VERSION_MS,
    find_time,
    list_results,
)
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.figures import OURS
from benchmarks.shared.registry import BENCHES, BenchError, BenchOptions
from benchmarks.shared.workload import WorkloadError
from benchmarks.shared.zipf import find_shares
from unit.benchmarks.tpch_tables import SUPPLIERS, write_tables

RIGHT = AnswerCheck(True, 10, "d")
WRONG = AnswerCheck(False, 10, "e", "3 results, 10 are wanted")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("tpch"))


@pytest.fixture(autouse=True)
def _no_generator(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpch, "ensure_tables", lambda scale_factor, cache_dir: tables)


def make_interval(rows: int = 6_000, exponent: float = 1.5, keys: int = 2_000, seed: int = 7) -> IntervalInput:
    return plan_interval(rows, keys, exponent, seed)


def make_eq5(exponent: float = 0.8, suppliers: str = WHOLE) -> Eq5Input:
    return plan_eq5(4_800, exponent, 7, suppliers=suppliers, tables_dir=Path("nowhere"))


def read_all(given: JoinInput, stream: str) -> pl.DataFrame:
    return pl.concat(given.make_rows(stream, index) for index in range(given.count_files(stream)))


def answer_with_polars(given: JoinInput) -> pl.DataFrame:
    """Return what the oracle must say, by other means, with moments as flows have them."""
    rows = {stream: read_all(given, stream) for stream in STREAMS[given.query]}
    if given.query == INTERVAL:
        pairs = rows["ads"].join(rows["clicks"], on="ad")
        joined = pairs.filter((pl.col("clicked") - pl.col("shown")).is_between(-BEFORE_MS, AFTER_MS))
        joined = joined.with_columns(pl.from_epoch("shown", "ms"), pl.from_epoch("clicked", "ms"))
    elif given.query == EQ5_WINDOWS:
        versions = [
            ("supplier", "l_suppkey", "s_suppkey", pl.col("s_at") - pl.col("l_at"), NEAREST_MS),
            ("nation", "s_nationkey", "n_nationkey", pl.col("n_at") - pl.col("s_at"), NEWEST_MS),
            ("region", "n_regionkey", "r_regionkey", pl.col("r_at") - pl.col("n_at"), NEWEST_MS),
        ]
        joined = rows["lineitem"]
        for table, left, right, later_ms, (before_ms, after_ms) in versions:
            pairs = joined.join(rows[table], left_on=left, right_on=right)
            joined = pairs.filter(later_ms.is_between(-before_ms, after_ms))
        joined = joined.with_columns(pl.from_epoch("l_at", "ms"), pl.from_epoch("s_at", "ms"))
    else:
        joined = (
            rows["lineitem"]
            .join(rows["supplier"], left_on="l_suppkey", right_on="s_suppkey")
            .join(rows["nation"], left_on="s_nationkey", right_on="n_nationkey")
            .join(rows["region"], left_on="n_regionkey", right_on="r_regionkey")
        )
    return joined.select(list(list_results(given.query)))


# -- inputs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [0.8, 1.5])
def test_both_streams_are_skewed_as_asked_and_have_other_hot_keys(exponent: float) -> None:
    given = make_interval(60_000, exponent)
    hottest = find_shares(given.keys, exponent)[0]
    hot = []
    for stream in ("ads", "clicks"):
        counts = read_all(given, stream)["ad"].value_counts(sort=True)
        assert counts["count"][0] / counts["count"].sum() == pytest.approx(hottest, rel=0.15)
        hot.append(counts["ad"][0])
    assert hot[0] != hot[1]


@pytest.mark.parametrize(("exponent", "seed"), [(0.8, 1), (1.5, 2), (1.2, 3)])
def test_a_row_of_the_interval_join_gives_two_results_in_the_mean_whatever_the_skew(exponent: float, seed: int) -> None:
    given = make_interval(40_000, exponent, keys=3_000, seed=seed)
    assert answer_with_polars(given).height / given.rows == pytest.approx(RESULTS_A_ROW, rel=0.2)


def test_keys_that_are_too_few_for_so_few_results_are_refused() -> None:
    with pytest.raises(WorkloadError, match="ask for more keys or fewer rows"):
        _ = make_interval(100_000, 1.5, keys=20).ranks_between


def test_one_side_is_four_times_the_other_and_both_go_along_in_time() -> None:
    given = make_interval()
    for index in range(given.cut.count):
        ads, clicks = given.make_rows("ads", index), given.make_rows("clicks", index)
        assert ads.height == ADS_A_CLICK * clicks.height
        assert abs(int(ads["shown"].max()) - int(clicks["clicked"].max())) < DISORDER_MS  # type: ignore[arg-type]


def test_no_row_is_late_for_who_reads_the_files_in_order() -> None:
    given = make_interval()
    for stream, at in (("ads", "shown"), ("clicks", "clicked")):
        times = [given.make_rows(stream, index)[at] for index in range(given.cut.count)]
        assert any(not one.is_sorted() for one in times)
        seen = -(2**62)
        for one in times:
            assert int(one.min()) > seen - DELAY_MS  # type: ignore[arg-type]
            seen = max(seen, int(one.max()))  # type: ignore[arg-type]


def test_equal_seeds_have_equal_rows_and_others_have_others() -> None:
    some, others = make_interval(seed=1), make_interval(seed=2)
    assert some.make_rows("ads", 3).equals(make_interval(seed=1).make_rows("ads", 3))
    assert not some.make_rows("ads", 3).equals(others.make_rows("ads", 3))


def test_suppliers_of_lineitems_are_drawn_by_the_zipf_law(tables: Path) -> None:
    given, flat = make_eq5(1.5), make_eq5(0.0)
    shares = [
        read_all(one, "lineitem")["l_suppkey"].value_counts(sort=True)["count"][0] / 4_800 for one in (given, flat)
    ]
    assert shares[0] == pytest.approx(find_shares(SUPPLIERS, 1.5)[0], rel=0.1)
    assert shares[1] < 2 / SUPPLIERS
    others = pl.exclude("l_suppkey", "l_comment", "^l_.*(price|quantity|discount)$")
    assert (
        read_all(given, "lineitem")
        .select(others)
        .equals(pl.read_parquet(tables / "lineitem.parquet").head(4_800).select(others))
    )


def test_spread_suppliers_are_the_same_ones_with_some_in_every_file() -> None:
    whole, spread = make_eq5(), make_eq5(suppliers=SPREAD)
    assert (whole.count_files("supplier"), spread.count_files("supplier")) == (1, spread.cut.count)
    assert all(spread.make_rows("supplier", index).height for index in range(spread.cut.count))
    assert read_all(spread, "supplier").sort("s_suppkey").equals(read_all(whole, "supplier"))
    assert whole.describe()["scale_factor"] == pytest.approx(4_800 / 6_000_000)


def test_every_small_row_is_sent_anew_as_often_as_a_version_is_good_for() -> None:
    given = make_eq5(suppliers=ANEW)
    for stream, key in (("supplier", "s_suppkey"), ("nation", "n_nationkey"), ("region", "r_regionkey")):
        versions = read_all(given, stream).sort(key, find_time(EQ5_WINDOWS, stream))
        assert versions.height == given.count_rows()[stream] > read_all(make_eq5(), stream).height
        apart = versions.select(pl.col(str(find_time(EQ5_WINDOWS, stream))).diff().over(key)).to_series().drop_nulls()
        assert apart.unique().to_list() == [VERSION_MS]


def test_a_lineitem_meets_one_version_of_its_supplier() -> None:
    given = make_eq5(suppliers=ANEW)
    answer = answer_with_polars(given)
    assert not answer.select("l_orderkey", "l_linenumber").is_duplicated().any()
    # At the begin and at the end, some come too early or too late for one.
    assert 0.6 * 4_800 < answer.height < 4_800


def test_rows_are_cut_into_whole_files_and_too_few_are_refused() -> None:
    cut = cut_files(1_000_001)
    assert (cut.count - 1) * cut.rows_per_file < 1_000_001 <= cut.count * cut.rows_per_file
    with pytest.raises(WorkloadError, match="ask for more rows"):
        cut_files(FEWEST_FILES - 1)


# -- answers -----------------------------------------------------------------------------------------------------------


def list_inputs() -> list[tuple[JoinInput, str]]:
    eq5 = [(make_eq5(), "parquet"), (make_eq5(suppliers=ANEW), "parquet")]
    return [(make_interval(), "json"), (make_interval(), "parquet"), *eq5]


@pytest.mark.parametrize(("given", "file_format"), list_inputs())
def test_the_oracle_says_what_polars_says_in_any_order(given: JoinInput, file_format: str, tmp_path: Path) -> None:
    folder, output = write_streams(given, file_format, tmp_path), tmp_path / "output"
    output.mkdir()
    answer = answer_with_polars(given)
    answer.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(output / "part-0.parquet")
    found = check_answer(given.query, output, folder, file_format)
    assert found.equal, found.difference
    assert found.rows == answer.height > 0


@pytest.mark.parametrize("change", ["missing", "repeated", "changed", "swapped"])
def test_answers_that_differ_in_anything_are_found(change: str, tmp_path: Path) -> None:
    given = make_interval()
    folder, output = write_streams(given, "parquet", tmp_path), tmp_path / "output"
    output.mkdir()
    answer = answer_with_polars(given)
    answer = {
        "missing": answer.tail(-1),
        "repeated": pl.concat([answer, answer.head(1)]),
        "changed": answer.with_columns(pl.when(pl.int_range(pl.len()) == 5).then(-1.0).otherwise("paid").alias("paid")),
        # Every column has the values that it must have, in other rows.
        "swapped": answer.with_columns(pl.col("user").reverse()),
    }[change]
    answer.write_parquet(output / "part-0.parquet")
    found = check_answer(INTERVAL, output, folder, "parquet")
    wanted = ask_oracle(INTERVAL, folder, "parquet").rows
    assert not found.equal
    assert f"{answer.height} results, {wanted} are wanted" in found.difference
    assert ("a missing one" in found.difference) == (change != "repeated")
    columns = found.difference.partition("columns that differ: ")[2].partition(";")[0].split(", ")
    assert columns == {"changed": ["paid", "whole row"], "swapped": ["whole row"]}.get(change, columns)


def test_results_that_are_not_committed_do_not_count(tmp_path: Path) -> None:
    given = make_eq5()
    folder, output = write_streams(given, "parquet", tmp_path), tmp_path / "output"
    (output / "_temporary").mkdir(parents=True)
    assert check_answer(EQ5, output, folder, "parquet").difference == "there are no results; 4800 are wanted"
    answer = answer_with_polars(given)
    for path in (".part-1", "_temporary/part-2.parquet", "part-of-flink-without-an-ending"):
        answer.write_parquet(output / path)
    assert check_answer(EQ5, output, folder, "parquet").equal


# -- systems -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placing", [{}, {"balance": None}])
@pytest.mark.parametrize(("given", "file_format"), [*list_inputs(), (make_eq5(1.5, SPREAD), "parquet")])
def test_our_flows_answer_as_the_oracle_does(
    given: JoinInput, file_format: str, placing: dict[str, None], tmp_path: Path
) -> None:
    folder = write_streams(given, file_format, tmp_path)
    flow = ab.Flow("joins")
    told = Namespace(query=given.query, input=folder, format=file_format, files_per_batch=2)
    ours.build(flow, told, placing).write(ab.parquet(tmp_path / "output"))
    settings = make_settings(checkpoint=str(tmp_path / "checkpoint"), trigger="available-now", slots=2)
    local = LocalRun(flow, settings, cores=2)
    try:
        progress = local.run_to_end()
    finally:
        local.close()
    assert sum(batch.rows_in for batch in progress) == sum(given.count_rows().values())
    found = check_answer(given.query, tmp_path / "output", folder, file_format)
    assert found.equal, found.difference


@pytest.mark.parametrize(("given", "file_format"), [one for one in list_inputs() if one[0].query in TIMED])
def test_lanes_have_every_row_once_and_all_streams_side_by_side(
    given: JoinInput, file_format: str, tmp_path: Path
) -> None:
    folder = write_streams(given, file_format, tmp_path)
    lanes = flink.write_lanes(folder, 2)
    streams = STREAMS[given.query]
    columns = list(dict.fromkeys(name for columns in streams.values() for name in columns))
    read = pl.read_ndjson if file_format == "json" else pl.read_parquet
    frames = [read(path).select(columns) for path in sorted(lanes.iterdir())]
    assert len(frames) == 2
    moments = [str(find_time(given.query, stream)) for stream in streams]
    for frame in frames:
        times = frame.select(pl.coalesce(moments)).to_series()
        assert (times.cum_max() - times).max() < DELAY_MS  # type: ignore[operator]
    rows = pl.concat(frames)
    for stream, at in zip(streams, moments, strict=True):
        wanted = read_all(given, stream)
        found = rows.filter(pl.col(at).is_not_null()).select(
            pl.col(name).cast(wanted[name].dtype) for name in wanted.columns
        )
        assert found.sort(pl.all()).equals(wanted.sort(pl.all()))


def test_every_peer_has_systems_in_every_part_and_all_have_names() -> None:
    for part in PARTS.values():
        systems = [system for peer in BENCHES["joins"].peers for system in part.list_variants(peer)]
        assert {OURS, HASHED, *systems} <= set(NAMES)
        assert part.list_variants("flink") and part.list_variants("spark")
    assert [part for part in PARTS if not PARTS[part].list_variants("dbsp")] == ["eq5-windows"]


def test_peers_are_asked_for_by_name_or_by_some_of_their_ways() -> None:
    known = BENCHES["joins"].peers
    peers, ways = choose_systems(None, known)
    assert peers == known and {FLINK_HEAP, SPARK_ROCKSDB_4, DBSP_BALANCED} <= ways
    assert choose_systems(("spark-memory", FLINK_HEAP), known) == (("flink", "spark"), {FLINK_HEAP, SPARK_MEMORY})
    assert choose_systems(("spark",), known) == (("spark",), {SPARK_MEMORY, SPARK_ROCKSDB, SPARK_ROCKSDB_4})
    assert choose_systems((DBSP_BALANCED,), known) == (("dbsp",), {DBSP_BALANCED})
    assert choose_systems((), known) == ((), frozenset())
    with pytest.raises(
        BenchError, match=r"unknown peers storm; joins knows flink, spark, dbsp, and of these.*flink-heap"
    ):
        choose_systems(("storm",), known)


def test_formats_are_those_of_the_part_that_were_asked_for() -> None:
    assert choose_formats(PARTS["interval"], None) == ("json", "parquet")
    assert choose_formats(PARTS["interval"], ("parquet",)) == ("parquet",)
    assert choose_formats(PARTS["eq5"], ("json",)) == ()
    with pytest.raises(BenchError, match="unknown formats csv"):
        choose_formats(PARTS["eq5"], ("csv",))


def test_who_asks_for_dbsp_alone_hears_why_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building.shutil, "which", lambda name: None)
    with pytest.raises(BenchError, match="no cargo to build it with; install Rust"):
        run(BenchOptions(only=("eq5",), peers=("dbsp",), cache_dir=tmp_path))


def test_a_build_that_fails_is_told_with_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cargo = tmp_path / "cargo"
    cargo.write_text("#!/bin/sh\nls Cargo.toml src/main.rs && echo 'error: rustc is too old' && exit 101\n")
    cargo.chmod(0o755)
    monkeypatch.setattr(building.shutil, "which", lambda name: str(cargo))
    with pytest.raises(building.AbsentPeerError, match=r"(?s)status 101.*src/main.rs\nerror: rustc is too old"):
        building.prepare_command(tmp_path)


def test_the_program_on_dbsp_has_exact_versions_and_says_which_dbsp_it_is_built_with() -> None:
    folder = Path(building.__file__).parent
    manifest = tomllib.loads((folder / "Cargo.toml").read_text())
    assert manifest["package"]["version"] == building.find_version()
    wanted = [one if isinstance(one, str) else one["version"] for one in manifest["dependencies"].values()]
    assert all(version.startswith("=") for version in wanted)
    # It would name a registry.
    assert not (folder / "Cargo.lock").exists()


def test_the_program_on_dbsp_has_the_columns_and_the_interval_of_all_others() -> None:
    code = (Path(building.__file__).parent / "src" / "queries.rs").read_text()
    for query, rows in ((INTERVAL, "Shown"), (EQ5, "Sold")):
        declared = code.partition(f"impl Joined for {rows} {{")[2].partition("];")[0]
        kinds = {"BIGINT": "Long", "INT": "Int", "DOUBLE": "Double", "STRING": "Text", "BOOLEAN": "Flag"}
        kinds |= {"DATE": "Day", MOMENT: "Moment"}
        wanted = [(name, kinds[kind]) for name, kind in list_results(query).items()]
        assert re.findall(r'\("(\w+)", Kind::(\w+)\)', declared) == wanted
    numbers = {name: int(number.replace("_", "")) for name, number in re.findall(r"const (\w+): i64 = ([\d_]+);", code)}
    assert numbers == {"BEFORE_MS": BEFORE_MS, "AFTER_MS": AFTER_MS, "DELAY_MS": DELAY_MS}


# -- figures -----------------------------------------------------------------------------------------------------------


def make_run(point: JoinPoint, system: str, rate: float | None, answer: AnswerCheck = RIGHT) -> JoinRun:
    peer = None if system in (OURS, HASHED) else system.partition("-")[0]
    return JoinRun(point, system, peer, 1_000, rate, 1.5, 10.0, answer)


SKEWED = JoinPoint("eq5", "parquet", 1.5)


def test_medians_are_compared_with_the_fastest_peer_and_with_our_own_hash() -> None:
    runs = [make_run(SKEWED, OURS, rate) for rate in (8.0, 9.0, 4.0)]
    runs += [make_run(SKEWED, HASHED, 4.0), make_run(SKEWED, SPARK_MEMORY, 1.0), make_run(SKEWED, FLINK_HEAP, 2.0)]
    assert compute_figures(runs, 1_000) == {
        "answers_equal": 1,
        "rows": 1_000,
        "batch_seconds": 1.5,
        "eq5_rows_per_second_z1_5": 8.0,
        "eq5_x_hash_z1_5": 2.0,
        "eq5_x_best_peer_z1_5": 4.0,
    }


def test_the_interval_joins_figure_is_the_worst_of_formats_and_skews() -> None:
    rates = {("json", 0.8): 6.0, ("parquet", 0.8): 4.0, ("json", 1.5): 5.0, ("json", 0.0): 1.0}
    points = {JoinPoint("interval", file_format, z): rate for (file_format, z), rate in rates.items()}
    runs = [make_run(point, OURS, rate) for point, rate in points.items()]
    figures = compute_figures(runs + [make_run(point, SPARK_MEMORY, 1.0) for point in points], 1_000)
    assert figures["interval_x_best_peer"] == 4.0
    assert figures["interval_json_x_best_peer_z1_5"] == 5.0
    assert figures["interval_json_x_best_peer_z0"] == 1.0


def test_dbsp_is_shown_and_is_no_best_peer() -> None:
    runs = [make_run(SKEWED, OURS, 8.0), make_run(SKEWED, SPARK_MEMORY, 2.0)]
    runs += [make_run(SKEWED, DBSP_HASH, 10.0), make_run(SKEWED, DBSP_BALANCED, 16.0)]
    figures = compute_figures(runs, 1_000)
    assert figures["eq5_x_best_peer_z1_5"] == 4.0
    assert figures["eq5_x_dbsp_z1_5"] == 0.5
    assert "eq5_x_best_peer_z1_5" not in compute_figures([runs[0], *runs[2:]], 1_000)
    wrong = make_run(SKEWED, DBSP_HASH, 10.0, WRONG)
    assert compute_figures([*runs[:2], wrong], 1_000)["answers_equal"] == 0


def test_every_figure_that_is_asked_for_has_its_name() -> None:
    points = [JoinPoint("interval", file_format, z) for file_format in ("json", "parquet") for z in (0.8, 1.5)]
    points += [JoinPoint("eq5", "parquet", z) for z in (0.8, 1.5)]
    runs = [
        make_run(point, system, rate)
        for point in points
        for system, rate in ((OURS, 6.0), (HASHED, 4.0), (FLINK_HEAP, 2.0), (SPARK_MEMORY, 1.0))
    ]
    figures = compute_figures(runs, 1_000)
    ratios = ("eq5_x_best_peer_z0_8", "eq5_x_best_peer_z1_5", "interval_x_best_peer")
    assert {name: figures[name] for name in ratios} == dict.fromkeys(ratios, 3.0)
    assert figures["eq5_x_hash_z1_5"] == 1.5
    assert (figures["answers_equal"], figures["rows"], figures["batch_seconds"]) == (1, 1_000, 1.5)


def test_what_was_not_run_has_no_figure() -> None:
    assert "eq5_x_best_peer_z1_5" not in compute_figures([make_run(SKEWED, OURS, 8.0)], 1_000)
    too_short = [make_run(SKEWED, OURS, None), make_run(SKEWED, SPARK_MEMORY, 1.0)]
    assert compute_figures(too_short, 1_000) == {"answers_equal": 1, "rows": 1_000, "batch_seconds": 1.5}


def test_the_longest_batch_is_of_the_parts_beside_peers_where_any_ran() -> None:
    alone = compute_figures([], 1_000, [RIGHT], [0.5, None, 0.7])
    assert alone == {"answers_equal": 1, "rows": 1_000, "batch_seconds": 0.7}
    assert compute_figures([make_run(SKEWED, OURS, 8.0)], 1_000, [RIGHT], [9.0])["batch_seconds"] == 1.5
    assert "batch_seconds" not in compute_figures([], 1_000, [RIGHT], [None])


def test_one_wrong_answer_leaves_no_claim() -> None:
    runs = [make_run(SKEWED, OURS, 8.0), make_run(SKEWED, SPARK_MEMORY, 2.0, WRONG)]
    assert compute_figures(runs, 1_000) == {"answers_equal": 0, "rows": 1_000, "batch_seconds": 1.5}


def test_tables_say_who_is_how_fast_on_what_and_who_is_wrong() -> None:
    runs = [make_run(SKEWED, OURS, 8e6), make_run(SKEWED, OURS, 9e6), make_run(SKEWED, SPARK_MEMORY, 2e6)]
    runs += [make_run(SKEWED, FLINK_HEAP, 1e6, WRONG)]
    points = {"parquet_z1_5": {"rows": {"lineitem": 1_000, "region": 5}, "scale_factor": 0.5}}
    workload = {"slots": 2, "cores": 2, "rounds": 3, "parts": {"eq5": {"arrival": "in order", "points": points}}}
    report = JoinsReport(workload=workload, figures=compute_figures(runs, 1), systems=runs, seed=7)
    output = StringIO()
    print_report(report, Console(file=output, width=200))
    shown = output.getvalue()
    assert "8.000–9.000" in shown and "4.25" in shown
    assert "1,005 rows, scale factor 0.5; in order; 2 slots on 2 cores" in " ".join(shown.split())
    assert "Wrong answer: Flink, heap, eq5, parquet, z = 1.5: 3 results" in shown


def test_an_unknown_join_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="unknown parts bnci; there are interval, eq5"):
        run(BenchOptions(only=("bnci",), cache_dir=tmp_path))


# -- the whole bench, with stand-ins that are fast to start ------------------------------------------------------------

STAND_IN = """
import argparse, json, pathlib, sys
import polars as pl

parser = argparse.ArgumentParser()
for name in ("query", "input", "format", "output", "checkpoint", "result"):
    parser.add_argument(f"--{name}", required=True)
for name in ("files-per-batch", "memory", "slots", "cores", "balance", "state-store", "state-format"):
    parser.add_argument(f"--{name}")
for name in ("rest-port", "state", "mini-batch"):
    parser.add_argument(f"--{name}")
given = parser.parse_args()
system = (given.balance, given.state_store, given.state_format, given.state)
if system == (None, "rocksdb", "4", None):
    sys.exit("no memory is left")
seconds = {
    ("auto", None, None, None): 1.0,
    ("none", None, None, None): 2.0,
    (None, "memory", "2", None): 8.0,
    (None, "rocksdb", "2", None): 4.0,
    (None, None, None, "heap"): 5.0,
    (None, None, None, "rocksdb"): 6.0,
}[system]
folder = pathlib.Path(given.input)
rows = {name: pl.read_parquet(f"{folder}/{name}/part-*") for name in ("lineitem", "supplier", "nation", "region")}
answer = (
    rows["lineitem"]
    .join(rows["supplier"], left_on="l_suppkey", right_on="s_suppkey")
    .join(rows["nation"], left_on="s_nationkey", right_on="n_nationkey")
    .join(rows["region"], left_on="n_regionkey", right_on="r_regionkey")
)
pathlib.Path(given.output).mkdir()
answer.write_parquet(pathlib.Path(given.output) / "part-0.parquet")
total = sum(frame.height for frame in rows.values())
samples = [(seconds * done / 4, total * done // 4) for done in range(1, 5)]
samples += [(seconds * 7 / 8, total * 7 // 8)] if given.state else []
batches = [{"rows": total // 4, "seconds": seconds / 4, "state_bytes": 7}] * 4
result = {"samples": sorted(samples), "settings": {}, **({} if given.state else {"batches": batches})}
pathlib.Path(given.result).write_text(json.dumps(result))
"""


def test_systems_take_turns_and_peers_keep_to_their_fastest_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(STAND_IN)
    monkeypatch.setattr(joins, "our_script", lambda module: [sys.executable, str(stand_in)])
    monkeypatch.setattr(flink, "prepare_command", lambda cache_dir: [sys.executable, str(stand_in)])
    monkeypatch.setattr(building.shutil, "which", lambda name: None)
    path = tmp_path / "report.json"
    options = BenchOptions(
        rows=4_800, only=("eq5",), exponents=(0.8,), cache_dir=tmp_path / "cache", json_path=path, slots=3, rounds=2
    )
    output = StringIO()
    report = run(options, Console(file=output, width=160))
    flinks = list(PARTS["eq5"].list_variants("flink"))
    first = [OURS, HASHED, *flinks, SPARK_MEMORY, SPARK_ROCKSDB]
    assert [run.system for run in report.systems] == [*first, SPARK_ROCKSDB, flinks[0], HASHED, OURS]
    assert report.answers_equal, output.getvalue()
    assert report.figures["eq5_x_best_peer_z0_8"] == pytest.approx(4.0)
    assert report.figures["eq5_x_hash_z0_8"] == pytest.approx(2.0)
    assert [note for note in report.notes if "Spark, RocksDB, format 4" in note and "failed" in note]
    assert [note for note in report.notes if note.startswith("dbsp was left out: ") and "no cargo" in note]
    written = json.loads(path.read_text())
    assert written["figures"] == report.figures
    assert (written["workload"]["slots"], written["workload"]["cores"]) == (3, 2)
    told = written["workload"]["parts"]["eq5"]
    assert told["points"]["parquet_z0_8"]["rows"] == {
        "lineitem": 4_800,
        "supplier": SUPPLIERS,
        "nation": 25,
        "region": 5,
    }
    assert told["arrival"].startswith("region, nation and supplier whole in the first batch")
    assert SPARK_ROCKSDB_4 not in {run.system for run in report.systems}


def test_our_own_failure_ends_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "our_script", lambda module: [sys.executable, "-c", "raise SystemExit(3)"])
    options = BenchOptions(rows=4_800, peers=(), only=("eq5",), exponents=(0.8,), cache_dir=tmp_path, rounds=1)
    with pytest.raises(BenchError, match="ended with status 3"):
        run(options, Console(file=StringIO()))

from __future__ import annotations

import io
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from anabranch.cli.demo.answers import compare_answers, compute_answers, read_alerts, rows_by_home_slot
from anabranch.cli.demo.command import show_picture
from anabranch.cli.demo.flow import make_flow, make_source
from anabranch.cli.demo.picture import draw_picture
from anabranch.cli.demo.scale import LOW_VOLTS, DemoScale
from anabranch.cli.demo.sensors import WorstSensors
from anabranch.cli.loading import load
from anabranch.connectors.generator.streams import GeneratorSource
from anabranch.query import FlowGraph
from unit.cli.builders import batch, history_of

SCALE = DemoScale(sensors=2_000, rows_per_second=5_000, seconds=12)
START = datetime(2026, 1, 1, 12, 0, 0)
EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "low_voltage"


@pytest.fixture(scope="module")
def source() -> GeneratorSource:
    return make_source(SCALE, START)


@pytest.fixture(scope="module")
def expected(source: GeneratorSource) -> pl.DataFrame:
    return compute_answers(source, SCALE.rows).alerts


def test_the_answers_are_those_of_a_loop_over_the_rows(source: GeneratorSource, expected: pl.DataFrame) -> None:
    windows: dict[tuple[int, int], list[float]] = {}
    for outcome in source.read({"from": 0, "to": SCALE.rows}):
        for sensor, ts, volts in outcome.frame.with_columns(pl.col("ts").dt.epoch("s")).iter_rows():
            windows.setdefault((ts // 5 * 5, sensor), []).append(volts)
    low = {key: volts for key, volts in sorted(windows.items()) if min(volts) < LOW_VOLTS}
    assert low, "the demo must have something to find"
    assert expected.select(pl.col("window_start").dt.epoch("s"), "sensor").rows() == list(low)
    assert expected["readings"].to_list() == [len(volts) for volts in low.values()]
    assert expected["low_readings"].to_list() == [sum(v < LOW_VOLTS for v in volts) for volts in low.values()]
    assert expected["lowest"].to_list() == [min(volts) for volts in low.values()]
    assert expected["mean"].to_list() == pytest.approx([sum(volts) / len(volts) for volts in low.values()])


def test_all_readings_are_counted(source: GeneratorSource) -> None:
    assert compute_answers(source, SCALE.rows).readings["readings"].sum() == SCALE.rows


def test_equal_answers_are_equal(expected: pl.DataFrame) -> None:
    check = compare_answers(expected, expected)
    assert check.equal and check.rows == expected.height


@pytest.mark.parametrize(
    ("column", "change"),
    [("readings", 1), ("low_readings", -1), ("lowest", 0.015625), ("mean", 1e-6), ("sensor", 1)],
)
def test_one_wrong_value_is_found_and_named(expected: pl.DataFrame, column: str, change: float) -> None:
    row = expected.height // 2
    kind = expected.schema[column]
    wrong = expected.with_columns(
        pl.when(pl.int_range(pl.len()) == row).then(pl.col(column) + change).otherwise(pl.col(column)).cast(kind)
    )
    check = compare_answers(wrong, expected)
    assert not check.equal
    assert check.difference is not None and f"{column} is " in check.difference


def test_a_missing_window_is_found(expected: pl.DataFrame) -> None:
    check = compare_answers(expected.head(-1), expected)
    assert check.difference == f"{expected.height - 1} windows were found, {expected.height} expected"
    assert not compare_answers(pl.DataFrame(), expected).equal


def test_results_are_read_from_all_parts(expected: pl.DataFrame, tmp_path: Path) -> None:
    expected.tail(5).write_parquet(tmp_path / "part-000000000000-00000.parquet")
    expected.head(-5).write_parquet(tmp_path / "part-000000000001-00000.parquet")
    assert read_alerts(tmp_path).equals(expected)
    assert read_alerts(tmp_path / "none").is_empty()


def test_rows_by_home_slot_lose_no_reading(source: GeneratorSource) -> None:
    readings = compute_answers(source, SCALE.rows).readings
    by_slot = rows_by_home_slot(readings, slots=4, buckets=512)
    assert len(by_slot) == 4 and sum(by_slot) == SCALE.rows


def test_the_worst_sensors_follow_the_part_files(expected: pl.DataFrame, tmp_path: Path) -> None:
    worst = WorstSensors(tmp_path)
    worst.refresh()
    assert worst.ranking.is_empty()
    for number, rows in enumerate((expected.head(-10), expected.tail(10))):
        rows.write_parquet(tmp_path / f"part-{number:012d}-00000.parquet")
        worst.refresh()
        worst.refresh()
    assert worst.windows == expected.height
    assert worst.ranking["low_readings"].sum() == expected["low_readings"].sum()
    assert worst.ranking["lowest"].is_sorted() and worst.ranking["lowest"][0] == expected["lowest"].min()


def test_the_worst_sensors_table_has_a_row_a_sensor(expected: pl.DataFrame, tmp_path: Path) -> None:
    expected.write_parquet(tmp_path / "part-000000000000-00000.parquet")
    worst = WorstSensors(tmp_path, most_shown=5)
    worst.refresh()
    screen = io.StringIO()
    Console(file=screen, width=80).print(worst)
    lines = screen.getvalue().splitlines()
    assert len([line for line in lines if " V " in line and "sensor" not in line]) == 5
    assert max(map(len, lines)) <= 80


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    history = history_of(*(batch(number, slot_rows=(5, 6, 7)) for number in range(12)), batch(12, rows_in=0))
    draw_picture(history, (500, 100, 20), 100_000, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("installed", [True, False])
def test_the_demo_says_where_its_picture_is_or_what_is_missing_for_it(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    history = history_of(*(batch(number, slot_rows=(5, 6, 7)) for number in range(3)))
    readings = pl.DataFrame({"sensor": [1, 2], "readings": [3, 4]})
    stream: Any = SimpleNamespace(display=SimpleNamespace(history=history), scale=SCALE, out=tmp_path)
    screen = io.StringIO()
    show_picture(stream, readings, Console(file=screen, width=200))
    assert (tmp_path / "throughput.png").exists() is installed
    assert ("throughput.png" in screen.getvalue()) is installed
    assert ("pip install 'anabranch[pictures]'" in " ".join(capsys.readouterr().err.split())) is not installed


def shape_of(flow: FlowGraph) -> list[str]:
    """Return a flow's steps, without what differs between the demo and the example: rates and places."""
    return [node.label for node in flow.nodes.values() if not node.label.startswith(("generator", "parquet"))]


@pytest.mark.parametrize("name", ["flow.yaml", "flow.py"])
def test_the_example_is_the_demos_flow(name: str, source: GeneratorSource, tmp_path: Path) -> None:
    assert shape_of(load(str(EXAMPLES / name)).graph) == shape_of(make_flow(source, tmp_path))

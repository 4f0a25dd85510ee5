"""Sources and sinks may be reordered, renamed, added and dropped; nothing is counted twice and nothing is lost."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import CheckpointError
from flows.running import FlowBench

SCHEMA = {"key": pl.Int64(), "value": pl.Int64()}


class Folders:
    """Directories of JSON lines, and the sum that a flow must come to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.total = 0
        self._files = 0

    def write(self, folder: str, *values: int, name: str | None = None) -> None:
        """Put values into a file of a directory; equal names in several directories are usual."""
        self._files += 1
        lines = "".join(f'{{"key": 1, "value": {value}}}\n' for value in values)
        (self.root / folder).mkdir(exist_ok=True)
        (self.root / folder / (name or f"{self._files}.json")).write_text(lines)
        self.total += sum(values)

    def source(self, folder: str, **options: Any) -> Any:
        return ab.files(str(self.root / folder), schema=SCHEMA, **options)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def total_of(flow: ab.Flow, checkpoint: str) -> int:
    return int(flow.read_state(checkpoint)["total"][0])


def run(bench: FlowBench, checkpoint: str, *sources: Any, sinks: tuple[Any, ...] = (), **settings: Any) -> ab.Flow:
    """Run a flow that sums the union of sources, given alone or with the names of ``read``."""
    flow = ab.Flow("sums")
    streams = [flow.read(one[0], **one[1]) if isinstance(one, tuple) else flow.read(one) for one in sources]
    united = streams[0].union(*streams[1:]) if streams[1:] else streams[0]
    result = united.key_by("key").agg(total=ab.sum("value"), name="sums")
    for sink in sinks or (ab.to_memory(),):
        result.write(sink)
    bench.run_flow(flow, [], checkpoint=checkpoint, drain=False, **settings)
    return flow


def test_swapped_inputs_of_a_union_are_not_read_again(bench: FlowBench, folders: Folders) -> None:
    checkpoint = bench.new_checkpoint()
    folders.write("north", 1, 2, name="a.json")
    folders.write("south", 10, 20, name="b.json")
    run(bench, checkpoint, folders.source("north"), folders.source("south"))
    folders.write("north", 100, name="b.json")
    folders.write("south", 1000, name="a.json")
    flow = run(bench, checkpoint, folders.source("south"), folders.source("north"))
    assert total_of(flow, checkpoint) == folders.total


def test_a_source_is_added_and_one_is_dropped(
    bench: FlowBench, folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = bench.new_checkpoint()
    folders.write("north", 1)
    folders.write("south", 10)
    run(bench, checkpoint, folders.source("north"), folders.source("south"))
    folders.write("east", 100)
    with caplog.at_level(logging.WARNING, "anabranch"):
        flow = run(bench, checkpoint, folders.source("east"), folders.source("north"), folders.source("south"))
    assert "source 'east'" in caplog.text
    assert total_of(flow, checkpoint) == folders.total
    folders.write("north", 1000)
    with pytest.raises(CheckpointError, match="--drop-source south"):
        run(bench, checkpoint, folders.source("north"), folders.source("east"))
    flow = run(bench, checkpoint, folders.source("north"), folders.source("east"), drop_sources=("south",))
    assert total_of(flow, checkpoint) == folders.total
    folders.write("east", 10_000)
    flow = run(bench, checkpoint, folders.source("east"), folders.source("north"))
    assert total_of(flow, checkpoint) == folders.total


def test_another_directory_with_equal_file_names_is_another_source(bench: FlowBench, folders: Folders) -> None:
    checkpoint = bench.new_checkpoint()
    folders.write("north", 1, name="a.json")
    run(bench, checkpoint, folders.source("north"))
    folders.write("copy", 5, name="a.json")
    with pytest.raises(CheckpointError, match=r"formerly='north'.*--drop-source north"):
        run(bench, checkpoint, folders.source("copy"))
    flow = run(bench, checkpoint, folders.source("copy"), drop_sources=("north",))
    assert total_of(flow, checkpoint) == folders.total


def test_a_directory_that_moved_goes_on_where_it_was(bench: FlowBench, folders: Folders) -> None:
    checkpoint = bench.new_checkpoint()
    folders.write("north", 1, name="a.json")
    run(bench, checkpoint, folders.source("north"))
    (folders.root / "north").rename(folders.root / "moved")
    folders.write("moved", 5, name="b.json")
    flow = run(bench, checkpoint, (folders.source("moved"), {"formerly": "north"}))
    assert total_of(flow, checkpoint) == folders.total


def test_swapped_sinks_get_what_was_staged_for_them(bench: FlowBench, folders: Folders) -> None:
    """A driver that dies after the commit leaves results to its successor, which has its sinks in another order."""
    checkpoint = bench.new_checkpoint()
    folders.write("north", 1, 2)
    flow = ab.Flow("two")
    rows = flow.read(folders.source("north"))
    left, right = ab.parquet(folders.root / "left"), ab.parquet(folders.root / "right")

    class Broken(type(right)):  # type: ignore[misc]
        def publish(self, *_: Any) -> None:
            msg = "no"
            raise ab.SinkError(msg)

    broken = Broken(right.directory, right.suffix)
    rows.select("key").write(left)
    rows.select("value").write(broken)
    with pytest.raises(ab.SinkError):
        bench.run_flow(flow, [], checkpoint=checkpoint, drain=False, slots=None)
    again = ab.Flow("two")
    rows = again.read(folders.source("north"))
    rows.select("value").write(right)
    rows.select("key").write(left)
    bench.run_flow(again, [], checkpoint=checkpoint, drain=False, slots=None)
    assert pl.read_parquet(folders.root / "left" / "*.parquet").to_dict(as_series=False) == {"key": [1, 1]}
    assert pl.read_parquet(folders.root / "right" / "*.parquet").to_dict(as_series=False) == {"value": [1, 2]}


def test_watermarks_stay_with_their_sources_when_inputs_change_places(bench: FlowBench, tmp_path: Path) -> None:
    """One input is an hour ahead: by its watermark alone, all rows of the other would be late."""
    schema = {"key": pl.Int64(), "ts": pl.Datetime("us")}

    def put(folder: str, name: str, *minutes: int) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        lines = (f'{{"key": 1, "ts": "2026-01-01T{m // 60:02d}:{m % 60:02d}:00"}}\n' for m in minutes)
        (tmp_path / folder / name).write_text("".join(lines))

    def go(order: tuple[str, ...], drain: bool) -> list[ab.BatchProgress]:
        flow = ab.Flow("clocks")
        read = [flow.read(ab.files(str(tmp_path / name), schema=schema)).watermark("ts") for name in order]
        counted = read[0].union(*read[1:]).key_by("key").window("10m").agg(rows=ab.count(), name="counted")
        counted.write(ab.parquet(tmp_path / "counted"))
        return bench.run_flow(flow, [], checkpoint=checkpoint, drain=drain).progress

    checkpoint = bench.new_checkpoint()
    put("slow", "1.json", 1, 5)
    put("fast", "1.json", 61, 65)
    go(("slow", "fast"), drain=False)
    put("slow", "2.json", 7, 12)
    put("fast", "2.json", 70)
    late = sum(batch.late_rows for batch in go(("fast", "slow"), drain=False))
    # A third joins: it has said nothing, and what has fired stays closed.
    put("third", "1.json", 2)
    put("third", "2.json", 90)
    late += sum(batch.late_rows for batch in go(("third", "fast", "slow"), drain=True))
    assert late == 1
    rows = pl.read_parquet(tmp_path / "counted" / "*.parquet").sort("window_start")
    minutes = (rows["window_start"].dt.hour().cast(pl.Int64) * 60 + rows["window_start"].dt.minute()).to_list()
    assert dict(zip(minutes, rows["rows"], strict=True)) == {0: 3, 10: 1, 60: 2, 70: 1, 90: 1}


def test_a_missing_entry_of_the_split_log_stops_the_flow_and_going_back_repairs_it(
    bench: FlowBench, folders: Folders
) -> None:
    checkpoint = bench.new_checkpoint()
    for value in (1, 10, 100):
        folders.write("north", value)
        run(bench, checkpoint, folders.source("north"))
    folders.write("north", 1000)
    (Path(checkpoint) / "sources" / "000000000002.json").unlink()
    with pytest.raises(CheckpointError, match=r"000000000002\.json is missing.*rollback --to 1"):
        run(bench, checkpoint, folders.source("north"))
    import time

    from anabranch.state import Checkpoint, Owner, open_store
    from anabranch.state.rollback import roll_back

    roll_back(Checkpoint(open_store(checkpoint)), 1, Owner.this_process(), time.time)
    flow = run(bench, checkpoint, folders.source("north"))
    assert total_of(flow, checkpoint) == folders.total


def test_answers_do_not_depend_on_the_order_in_which_sources_and_sinks_are_written(
    bench: FlowBench, folders: Folders
) -> None:
    """Every start has another order, and some batches are planned before the order changes and run after it."""
    chance = random.Random(1)
    checkpoint = bench.new_checkpoint()
    names = ["east", "north", "south"]
    for number in range(4):
        for name in names:
            folders.write(name, *(chance.randrange(1000) for _ in range(chance.randrange(1, 5))), name=f"{number}.json")
        chance.shuffle(names)
        sinks = [ab.parquet(folders.root / "out" / str(place)) for place in range(2)]
        chance.shuffle(sinks)
        flow = ab.Flow("sums")
        first, *others = [flow.read(folders.source(name, max_files=1)) for name in names]
        fails = number in (0, 2)
        united = first.union(*others).map_batches(_fail if fails else _pass_on)
        keyed = united.key_by("key").agg(total=ab.sum("value"), last=ab.last("value"), name="sums")
        for sink in sinks:
            keyed.write(sink)
        try:
            bench.run_flow(flow, [], checkpoint=checkpoint, drain=False, job_attempts=1)
        except ab.AnabranchError:
            assert fails
    assert total_of(flow, checkpoint) == folders.total
    for place in range(2):
        out = pl.read_parquet(folders.root / "out" / str(place) / "*.parquet")
        assert out["total"].max() == folders.total


def _pass_on(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def _fail(frame: pl.DataFrame) -> pl.DataFrame:
    """Fail on rows, and so leave a batch behind that is planned and not committed."""
    if frame.height:
        msg = "not now"
        raise ValueError(msg)
    return frame

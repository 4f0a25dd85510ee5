"""A checkpoint belongs to one flow and one driver; damage and lack of space are found, and nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, CheckpointError, StateDamaged
from flows.running import FlowBench, frames_of, reading
from oracle import Running, answer_flow, assert_same_batches, compute

BATCHES = [[reading(1, 0, 2), reading(2, 4, 3)], [reading(1, 11, 5), reading(3, 12, 7)], [reading(2, 25, 11)]]
WANTED = {"rows": ("count", None), "total": ("sum", "whole")}


def expected_of(batches: Any) -> Any:
    return answer_flow(batches, [Running(["key"], lambda group: [compute(group, WANTED)])], drain=True)


def make_flow(source: Any, name: str = "test", **aggregates: Any) -> tuple[ab.Flow, Any]:
    flow, sink = ab.Flow(name), ab.to_memory()
    given = aggregates or {"rows": ab.count(), "total": ab.sum("whole")}
    flow.read(source).key_by("key").agg(**given).write(sink)
    return flow, sink


def committed_batches(checkpoint: str) -> list[str]:
    return sorted(path.name for path in Path(checkpoint, "commits").glob("*.json"))


def test_a_changed_flow_on_an_old_checkpoint_is_told_what_changed_and_what_may_change(bench: FlowBench) -> None:
    source = ab.memory(*frames_of(BATCHES))
    checkpoint = bench.new_checkpoint()
    flow, sink = make_flow(source)
    bench.run_flow(flow, [sink], checkpoint=checkpoint, trigger="once", drain=False)
    before = committed_batches(checkpoint)

    changed = [
        (make_flow(source, rows=ab.count())[0], "total"),
        (make_flow(source, rows=ab.count(), total=ab.max("whole"))[0], "max"),
        (make_flow(source, name="other")[0], "'test'"),
    ]
    windowed = ab.Flow("test")
    keyed = windowed.read(source).watermark("ts").key_by("key").window("10s")
    keyed.agg(rows=ab.count(), total=ab.sum("whole")).write(ab.to_memory())
    changed.append((windowed, "window"))
    for other, word in changed:
        with pytest.raises(CheckpointError, match=word) as caught:
            bench.run_flow(other, [], checkpoint=checkpoint)
        assert "may change" in str(caught.value)
    assert committed_batches(checkpoint) == before

    # A stateless step may change, and the flow goes on.
    flow = ab.Flow("test")
    same = flow.read(source).filter(pl.col("whole") > 0).key_by("key")
    same.agg(rows=ab.count(), total=ab.sum("whole")).write(sink)
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert_same_batches(sink.batches(), expected_of(BATCHES).batches)


def test_a_checkpoint_of_another_format_is_refused_by_its_version(bench: FlowBench) -> None:
    source = ab.memory(*frames_of(BATCHES))
    checkpoint = bench.new_checkpoint()
    flow, sink = make_flow(source)
    bench.run_flow(flow, [sink], checkpoint=checkpoint, trigger="once", drain=False)
    from anabranch.state.manifest import Manifest

    path = sorted(Path(checkpoint, "commits").glob("*.json"))[-1]
    manifest = Manifest.decode(path.read_bytes(), path.name)
    path.write_bytes(_with_format(manifest, 999))
    with pytest.raises(CheckpointError, match="999"):
        bench.run_flow(flow, [sink], checkpoint=checkpoint)


def _with_format(manifest: Any, version: int) -> bytes:
    from dataclasses import replace

    encoded: bytes = replace(manifest, format_version=version).encode()
    return encoded


def test_a_lost_spark_checkpoint_is_made_good_from_the_split_log(bench: FlowBench) -> None:
    source = ab.memory(*frames_of(BATCHES[:2]))
    checkpoint = bench.new_checkpoint()
    flow, sink = make_flow(source)
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    shutil.rmtree(Path(checkpoint, "spark"))
    source.add(frames_of(BATCHES[2:])[0])
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert_same_batches(sink.batches(), expected_of(BATCHES).batches)


def test_a_lost_split_log_is_noticed(bench: FlowBench) -> None:
    source = ab.memory(*frames_of(BATCHES))
    checkpoint = bench.new_checkpoint()
    flow, sink = make_flow(source)
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    rows = sink.frame()
    shutil.rmtree(Path(checkpoint, "spark"))
    shutil.rmtree(Path(checkpoint, "sources"))
    source.add(frames_of([[reading(9, 40, 1)]])[0])
    # Everything would be read again, in other batches: all frames at once.
    object.__setattr__(source, "max_frames", None)
    with pytest.raises(StateDamaged, match="is missing: it says what a batch has read"):
        bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert sink.frame().equals(rows)


def test_a_damaged_state_file_is_found_and_the_way_back_is_named(bench: FlowBench) -> None:
    source = ab.memory(*frames_of(BATCHES[:2]))
    flow, sink = make_flow(source)
    intact = bench.new_checkpoint()
    bench.run_flow(flow, [sink], checkpoint=intact, drain=False)
    rows = sink.frame()
    # Keys 1 and 2 come again in the next batch, so all state is looked at.
    source.add(frames_of([[reading(1, 20), reading(2, 25), reading(3, 26)]])[0])
    for deed in (flip_a_byte, cut_the_end_off, Path.unlink):
        checkpoint = bench.new_checkpoint()
        shutil.copytree(intact, checkpoint)
        files = sorted(Path(checkpoint, "state").rglob("*.arrow"))
        assert files
        for path in files:
            deed(path)
        with pytest.raises(AnabranchError, match=r"rollback|no kept batch is intact") as caught:
            bench.run_flow(flow, [sink], checkpoint=checkpoint)
        assert any(path.name in str(caught.value) for path in files)
        assert committed_batches(checkpoint) == committed_batches(intact)
        assert sink.frame().equals(rows)
    bench.run_flow(flow, [sink], checkpoint=intact)
    assert sink.frame().height == rows.height + 3


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def cut_the_end_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], check=False, capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_stops_the_flow_with_the_last_commit_intact(bench: FlowBench, small_disk: Path) -> None:
    chance = random.Random(5)
    batches = [[reading(chance.randrange(10**9), i, chance.randrange(9)) for i in range(4000)] for _ in range(3)]
    source = ab.memory(*frames_of(batches))
    flow, sink = make_flow(source)
    checkpoint = str(small_disk / "checkpoint")
    bench.run_flow(flow, [sink], checkpoint=checkpoint, trigger="once", drain=False)
    committed = committed_batches(checkpoint)
    ballast = small_disk / "ballast"
    free = shutil.disk_usage(small_disk).free
    # Room for Spark's own small files, not for the state of a batch.
    ballast.write_bytes(b"\0" * (free - 64 * 1024))
    with pytest.raises(AnabranchError, match=r"(?i)no space left"):
        bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert committed_batches(checkpoint) == committed
    ballast.unlink()
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert_same_batches(sink.batches(), expected_of(batches).batches)

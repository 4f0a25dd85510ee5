"""Run one flow after the other in one warm session, each with its own exchange; note what crossed the wires."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.lab.wires import read_link
from benchmarks.exchange.answers import STORE_TABLE
from benchmarks.exchange.figures import AHEAD, GLOBAL, HELD, LOCAL, PLAIN
from benchmarks.exchange.inputs import DELAY_MS, FILE_FORMAT, MIXED, PARTITIONED, PARTITIONS, WINDOW_MS
from benchmarks.shared.peers.cluster import wait_for_executors
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import CommitClock, describe_batch, list_versions
from benchmarks.shared.workload import SCHEMA

_KEYED_BY_WAY: dict[str, dict[str, Any]] = {
    PLAIN: {"exchange": "routed"},
    LOCAL: {"exchange": "local"},
    HELD: {"exchange": "local", "merge": ab.LocalMerge(at="window")},
    GLOBAL: {"exchange": "global"},
    AHEAD: {"exchange": "ahead"},
}


def build_flow(way: str, folder: Path, output: Path) -> ab.Flow:
    """Return the flow: readings of each sensor in windows, counted and summed, with the rows of a key met this way."""
    source = ab.files(
        folder / (PARTITIONED if way == AHEAD else MIXED),
        format=FILE_FORMAT,
        schema=SCHEMA,
        recursive=way == AHEAD,
        max_files=PARTITIONS,
        max_bytes=None,
    )
    flow = ab.Flow("exchange")
    windows = (
        flow.read(source)
        .with_columns(ts=pl.from_epoch("ts", "ms"))
        .watermark("ts", delay=f"{DELAY_MS}ms")
        .key_by("sensor", **_KEYED_BY_WAY[way])
        .window(f"{WINDOW_MS}ms")
        .agg(readings=ab.count(), total=ab.sum("value"))
    )
    windows.write(ab.global_store(output, table=STORE_TABLE) if way == GLOBAL else ab.parquet(str(output)))
    return flow


def run_way(
    spark: SparkSession, given: Mapping[str, Any], output: Path, checkpoint: Path, slots: int, links: Sequence[str]
) -> dict[str, Any]:
    """Run one flow and return its commits, batches and bytes; ``links`` are the hosts' wires, behind the bridge."""
    output.parent.mkdir(parents=True, exist_ok=True)
    flow = build_flow(given["way"], Path(given["folder"]), output)
    clock = CommitClock()
    shuffled, crossed = _count_shuffled(spark), _count_crossed(links)
    progress = flow.run(
        str(checkpoint), spark=spark, on_progress=clock.note, trigger="available-now", drain=True, slots=slots
    )
    shuffled, crossed = _count_shuffled(spark) - shuffled, _subtract(_count_crossed(links), crossed)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return {
        "way": given["way"],
        "samples": clock.samples,
        "shuffle_bytes": shuffled,
        "crossed_bytes": crossed,
        "batches": [
            describe_batch(batch, "exchanged_bytes", "state_bytes", "slot_rows", "late_rows") for batch in progress
        ],
    }


def _count_shuffled(spark: SparkSession) -> int:
    """Return the bytes that executors, those that are gone included, wrote for shuffles."""
    executors: Any = spark.sparkContext._jsc.sc().statusStore().executorList(False).iterator()
    total = 0
    while executors.hasNext():
        total += int(executors.next().totalShuffleWrite())
    return total


def _count_crossed(links: Sequence[str]) -> dict[str, int]:
    # What an end of a wire at the bridge, or the bridge itself, received: what its host, or all of them, sent there.
    return {link: read_link(link).received_bytes for link in links}


def _subtract(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {link: count - before[link] for link, count in after.items()}


def main() -> None:
    """Run all flows of a JSON file and write what was seen as JSON."""
    arguments = read_options(
        {"executors": 0, "settings": "{}", "links": ""}, runs=str, slots=int, memory=str, master=str
    )
    runs: list[Mapping[str, Any]] = json.loads(Path(arguments.runs).read_text())
    settings: dict[str, str] = json.loads(arguments.settings)
    links = [link for link in arguments.links.split(",") if link]
    spark = ab.local_session(master=arguments.master, memory=arguments.memory, config=settings)
    wait_for_executors(spark, arguments.executors)
    seen = []
    for number, given in enumerate(runs):
        output = Path(arguments.output) / str(number)
        checkpoint = Path(arguments.checkpoint) / str(number)
        seen.append(run_way(spark, given, output, checkpoint, arguments.slots, links))
    spark.stop()
    Path(arguments.result).write_text(json.dumps({"runs": seen, "versions": list_versions()}))


if __name__ == "__main__":
    main()

"""The query of the part ``recovery`` as Spark runs it by itself: state in RocksDB, checkpoint on the same store.

Same keys and payloads, as files in a folder that all hosts have; the same host is killed. What a batch gives out is
written by ``foreachBatch``, so that answers can be compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from anabranch.lab.lab import Lab
from anabranch.lab.record import RecordFile
from anabranch.lab.wires import WireLimit
from anabranch.spark.executors import list_executors
from benchmarks.replicas.peers.ours_recovery import make_frames, touch
from benchmarks.shared.peers.cluster import wait_for_executors
from benchmarks.shared.peers.native_spark import STATE_STORES, start_spark
from benchmarks.shared.peers.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": STATE_STORES["rocksdb"],
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
_PATIENCE_SECONDS = 900.0


class Native:
    """The query, and what is seen of it."""

    def __init__(self, spark: SparkSession, checkpoint: str, output: Path) -> None:
        from pyspark.sql import functions as F

        self.watched, self.written = output / "in", output / "out"
        self.watched.mkdir(parents=True)
        self.written.mkdir()
        self._files, self.fed = 0, 0
        written = str(self.written)

        def write(frame: DataFrame, batch: int) -> None:
            frame.select("key", "rows").write.mode("overwrite").parquet(f"{written}/{batch}")

        read = spark.readStream.schema("key bigint, payload string").option("maxFilesPerTrigger", 1)
        rows = read.parquet(str(self.watched))
        last = rows.groupBy("key").agg(F.count("*").alias("rows"), F.last("payload").alias("payload"))
        begun = last.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", checkpoint)
        self.query: StreamingQuery = begun.start()

    def feed(self, frame: pl.DataFrame) -> float:
        """Give it rows, and return when they were through."""
        hidden = self.watched / f".{self._files:05d}.parquet"
        frame.write_parquet(hidden)
        hidden.rename(self.watched / hidden.name.removeprefix("."))
        self._files += 1
        self.fed += frame.height
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while sum(batch["numInputRows"] for batch in self.query.recentProgress) < self.fed:
            problem = self.query.exception()
            if problem is not None or time.monotonic() > deadline:
                msg = f"the native query did not take its rows: {problem or 'out of patience'}"
                raise RuntimeError(msg)
            time.sleep(0.02)
        return time.monotonic()

    def read_answer(self) -> pl.DataFrame:
        """Return the last count of each key."""
        return pl.read_parquet(self.written / "*" / "*.parquet").group_by("key").agg(pl.col("rows").max()).sort("key")


def recover(spark: SparkSession, lab: Lab, given: Mapping[str, Any], output: Path) -> dict[str, Any]:
    """Build state up, kill a host that has some of it, and note when results come again."""
    native = Native(spark, given["checkpoint"], output)
    for frame in make_frames(given["keys"], given["seed"]):
        native.feed(frame)
    changed = [touch(given["keys"], number) for number in (0, 1)]
    began = time.monotonic()
    usual_seconds = native.feed(changed[0]) - began
    states = native.query.recentProgress[-1]["stateOperators"][0]
    lab.limit(given["store"], WireLimit(given["store_mbit"]))
    lost = next(executor for executor in list_executors(spark) if executor.host == given["address"])
    killed_at = time.monotonic()
    lab.kill(given["host"])
    while lost.id in {one.id for one in list_executors(spark)}:
        time.sleep(0.01)
    found_at = time.monotonic()
    committed_at = native.feed(changed[1])
    lab.limit(given["store"], None)
    native.query.stop()
    answer = native.read_answer()
    expected = 1 + answer["key"].is_in(pl.concat(changed)["key"].implode()).cast(pl.Int64)
    return {
        "kind": "native",
        "name": given["name"],
        "degree": 1,
        "is_right": answer.height == given["keys"] and bool((answer["rows"] == expected).all()),
        "state_bytes": states["customMetrics"].get("rocksdbSstFileSize", states["memoryUsedBytes"]),
        "usual_seconds": usual_seconds,
        "detection_seconds": found_at - killed_at,
        "recovery_seconds": committed_at - found_at,
    }


def main() -> None:
    """Run the query once, and write what was seen as JSON."""
    given = read_options(run=str, master=str, settings=str, record=str, executors=int)
    run = json.loads(given.run)
    settings = {**json.loads(given.settings), **SETTINGS, "spark.sql.shuffle.partitions": str(run["slots"])}
    spark = start_spark("replicas-native", {"spark.master": given.master, "spark.driver.memory": "1g", **settings})
    wait_for_executors(spark, given.executors)
    output = Path(given.output)
    output.mkdir(parents=True, exist_ok=True)
    seen = recover(spark, Lab(RecordFile(Path(given.record))), run, output)
    spark.stop()
    Path(given.result).write_text(json.dumps({"runs": [seen]}))


if __name__ == "__main__":
    main()

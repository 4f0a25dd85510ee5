"""Run one operator over visits on Spark's own Structured Streaming, in a process of its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.operators.plan import (
    BEST,
    DELAY_MS,
    DISTINCT_ERROR,
    GAP_US,
    LEVEL,
    MINUTE_MS,
    PERCENTILE,
    PERCENTILE_ACCURACY,
    SLIDE_MS,
    WINDOW_MS,
)
from benchmarks.shared.peers.native_spark import configure, describe_batch, start_spark, write_outcome
from benchmarks.shared.peers.options import read_options

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

_WINDOW, _SLIDE, _MINUTE, _DELAY = (f"{length} milliseconds" for length in (WINDOW_MS, SLIDE_MS, MINUTE_MS, DELAY_MS))
_LEVELS = "user string, level long"


def _totals() -> list[Any]:
    from pyspark.sql import functions as F

    return [F.count("*").alias("readings"), F.sum("value").alias("total")]


def _window_start() -> Any:
    from pyspark.sql import functions as F

    return F.unix_millis("window.start").alias("window_start")


def _sliding(visits: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    windows = visits.groupBy(F.window("event_time", _WINDOW, _SLIDE), "user").agg(*_totals())
    return windows.select(_window_start(), "user", "readings", "total")


def _session(visits: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    window = F.session_window("event_time", f"{GAP_US} microseconds").alias("window")
    sessions = visits.groupBy(window, "user").agg(*_totals())
    return sessions.select(_window_start(), "user", "readings", "total")


def _running(visits: DataFrame) -> DataFrame:
    return visits.groupBy("user").agg(*_totals())


def _distinct(visits: DataFrame) -> DataFrame:
    return visits.select("user", "item").dropDuplicates(["user", "item"])


def _two_hops(visits: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    per_user = visits.groupBy(F.window("event_time", _WINDOW), "site", "user").agg(*_totals())
    timed = per_user.select(F.window_time("window").alias("at"), "site", "readings", "total")
    users = timed.groupBy(F.window("at", _MINUTE), "site").agg(
        F.count("*").alias("users"), F.sum("readings").alias("readings"), F.sum("total").alias("total")
    )
    return users.select(_window_start(), "site", "users", "readings", "total")


def _sketches(visits: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    sketches = visits.groupBy(F.window("event_time", _WINDOW), "site").agg(
        F.count("*").alias("readings"),
        F.approx_count_distinct("user", DISTINCT_ERROR).alias("users"),
        F.percentile_approx("value", PERCENTILE, PERCENTILE_ACCURACY).alias("high"),
    )
    return sketches.select(_window_start(), "site", "readings", "users", "high")


def _top_k(visits: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    kept = F.struct("value", "item")
    best = visits.groupBy(F.window("event_time", _WINDOW), "user").agg(F.max_by(kept, "value", BEST).alias("best"))
    ranked = best.select(_window_start(), "user", F.posexplode("best").alias("place", "row"))
    return ranked.select("window_start", "user", (F.col("place") + 1).alias("rank"), "row.value", "row.item")


def _process_rows(visits: DataFrame) -> DataFrame:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Levels(StatefulProcessor):
        """Emits each level that a user's total reaches."""

        def init(self, handle: Any) -> None:
            self._total = handle.getValueState("total", "total double")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            before = self._total.get()[0] if self._total.exists() else 0.0
            for row in rows:
                after = before + row["value"]
                if after // LEVEL > before // LEVEL:
                    yield Row(user=key[0], level=int(after // LEVEL))
                before = after
            self._total.update((before,))

        def close(self) -> None:
            """Nothing is held."""

    keyed = visits.select("user", "value").groupBy("user")
    return keyed.transformWithState(Levels(), outputStructType=_LEVELS, outputMode="Update", timeMode="None")


def _process_frames(visits: DataFrame) -> DataFrame:
    def reach(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        import pandas as pd

        before = state.get[0] if state.exists else 0.0
        after = before + sum(float(frame["value"].sum()) for frame in frames)
        state.update((after,))
        levels = range(int(before // LEVEL) + 1, int(after // LEVEL) + 1)
        if levels:
            yield pd.DataFrame({"user": [key[0]] * len(levels), "level": list(levels)})

    keyed = visits.select("user", "value").groupBy("user")
    return keyed.applyInPandasWithState(reach, _LEVELS, "total double", "update", "NoTimeout")


_TIMED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "sliding": _sliding,
    "session": _session,
    "two-hops": _two_hops,
    "sketches": _sketches,
    "top-k": _top_k,
}
_APPENDED: dict[str, Callable[[DataFrame], DataFrame]] = {"distinct": _distinct}
_UPDATED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "running": _running,
    "process-rows": _process_rows,
    "process-frames": _process_frames,
}


def _run(spark: SparkSession, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the operator to the end of all files; return Spark's reports."""
    from pyspark.sql import functions as F

    visits = (
        spark.readStream.format("parquet")
        .schema("user string, site string, ts long, item long, value double")
        .option("maxFilesPerTrigger", given.files_per_batch)
        .load(given.input)
    )
    if given.operator in _TIMED:
        timed = visits.withColumn("event_time", F.timestamp_millis("ts")).withWatermark("event_time", _DELAY)
        answer = _TIMED[given.operator](timed)
    else:
        answer = (_APPENDED | _UPDATED)[given.operator](visits)
    if given.operator in _UPDATED:
        # Spark's file sink takes no updates: each batch is written to a folder of its own.
        writer = answer.writeStream.outputMode("update").foreachBatch(
            lambda batch, number: batch.write.parquet(f"{given.output}/batch-{number}")
        )
    else:
        writer = answer.writeStream.outputMode("append").format("parquet").option("path", given.output)
    query = writer.option("checkpointLocation", given.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return [json.loads(progress.json) for progress in query.recentProgress]


def main() -> None:
    """Run the query over all files and write samples, batches and settings as JSON."""
    arguments = read_options(input=str, operator=str, state_store=str, files_per_batch=int, memory=str)

    settings = configure(arguments.state_store, arguments.memory)
    spark = start_spark("operators-native", settings)
    reports = _run(spark, arguments)
    spark.stop()
    batches = [describe_batch(report) for report in reports]
    write_outcome(arguments.result, batches, {**settings, "maxFilesPerTrigger": str(arguments.files_per_batch)})


if __name__ == "__main__":
    main()

"""Run an application on Spark's own Structured Streaming.

Low voltage waits as long as the slowest area lags, so that no row is late: late rows would be dropped. Levels of a
vault are kept by a stateful processor behind the windows, which needs the RocksDB state store.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.apps.rules import LOW_VOLTAGE, VAULT_RULE
from benchmarks.shared.peers.native_spark import configure, describe_batch, run_to_end, start_spark, write_outcome
from benchmarks.shared.peers.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

_STATE = "first_um double, level int, starts_ms array<long>, means_um array<double>"
_CHANGES = "window_start long, sensor long, was long, level long, drift_um double, um_per_minute double"


def find_low_voltage(windows: Any, low_volts: float) -> DataFrame:
    """Return the windows in which a sensor was low."""
    from pyspark.sql import functions as F

    found: DataFrame = (
        windows.agg(
            F.count("*").alias("readings"),
            F.count_if(F.col("value") < low_volts).alias("low"),
            F.min("value").alias("lowest"),
        )
        .select(F.unix_millis("window.start").alias("window_start"), "sensor", "readings", "low", "lowest")
        .filter("low > 0")
    )
    return found


def watch_vault(windows: Any) -> DataFrame:
    """Return the changes of every crown's warning level."""
    from pyspark.sql import functions as F

    means: DataFrame = windows.agg((F.sum("value") / F.count("*")).alias("mean_um")).select(
        F.unix_millis("window.start").alias("window_start"), "sensor", "mean_um"
    )
    return means.groupBy("sensor").transformWithState(
        make_settlement(), outputStructType=_CHANGES, outputMode="Append", timeMode="None"
    )


def make_settlement() -> Any:
    """Return the processor; its class is Spark's, which is imported only where Spark runs."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Settlement(StatefulProcessor):
        """Follows drift and rate of each crown by its means over windows, and emits the changes of its level."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._crown = handle.getValueState("crown", _STATE)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            known = self._crown.get() if self._crown.exists() else None
            first_um, level, starts_ms, means_um = known or (None, 0, [], [])
            starts_ms, means_um = list(starts_ms), list(means_um)
            for start_ms, um in sorted((row.window_start, row.mean_um) for row in rows):
                first_um = um if first_um is None else first_um
                starts_ms.append(start_ms)
                means_um.append(um)
                while len(starts_ms) > 1 and starts_ms[1] <= start_ms - VAULT_RULE.rate_over_ms:
                    del starts_ms[0], means_um[0]
                passed_ms = start_ms - starts_ms[0]
                rate = (um - means_um[0]) / (passed_ms / 60_000) if passed_ms >= VAULT_RULE.rate_over_ms else 0.0
                now = VAULT_RULE.judge(um - first_um, rate, level)
                if now != level:
                    yield Row(
                        window_start=start_ms,
                        sensor=key[0],
                        was=level,
                        level=now,
                        drift_um=um - first_um,
                        um_per_minute=rate,
                    )
                    level = now
            self._crown.update((first_um, level, starts_ms, means_um))

        def close(self) -> None:
            pass

    return Settlement()


def main() -> None:
    """Run the query over all files and write samples, batches and settings as JSON."""
    given = read_options(
        app=str, input=str, format=str, files_per_batch=int, memory=str, delay_ms=int, window_ms=int, low_volts=float
    )
    settings = configure("memory" if given.app == LOW_VOLTAGE else "rocksdb", given.memory)
    spark = start_spark(f"{given.app}-native", settings)
    windows = _make_windows(spark, given)
    found = find_low_voltage(windows, given.low_volts) if given.app == LOW_VOLTAGE else watch_vault(windows)
    batches = [describe_batch(progress) for progress in run_to_end(found, given.output, given.checkpoint)]
    spark.stop()
    write_outcome(given.result, batches, {**settings, "maxFilesPerTrigger": str(given.files_per_batch)})


def _make_windows(spark: SparkSession, given: Namespace) -> Any:
    from pyspark.sql import functions as F

    return (
        spark.readStream.format(given.format)
        .schema("sensor long, ts long, value double")
        .option("header", "true")
        .option("maxFilesPerTrigger", given.files_per_batch)
        .load(given.input)
        .withColumn("event_time", F.timestamp_millis("ts"))
        .withWatermark("event_time", f"{given.delay_ms} milliseconds")
        .groupBy(F.window("event_time", f"{given.window_ms} milliseconds"), "sensor")
    )


if __name__ == "__main__":
    main()

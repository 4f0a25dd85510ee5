"""Run an application on Anabranch itself: low voltage by sensor, or the warning levels of a vault."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.bench.apps_rules import LOW_VOLTAGE, VAULT, VAULT_RULE
from anabranch.bench.peers.options import read_options
from anabranch.bench.peers.our_outcome import CommitClock, describe_batch, write_outcome
from anabranch.bench.workload import SCHEMA

_MOMENT = pl.Datetime("us")
_RATE_OVER = timedelta(milliseconds=VAULT_RULE.rate_over_ms)
_CHANGES = {
    "sensor": pl.Int64(),
    "window_start": _MOMENT,
    "was": pl.Int64(),
    "level": pl.Int64(),
    "drift_um": pl.Float64(),
    "um_per_minute": pl.Float64(),
}


class Settlement(ab.Processor):
    """Follows drift and rate of each crown by its means over windows, and emits the changes of its level."""

    first_um = ab.value(pl.Float64())
    level = ab.value(pl.Int64(), default=0)
    recent = ab.listed(pl.Struct({"at": _MOMENT, "um": pl.Float64}))

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        """Judge one window."""
        at, um = row["window_start"], row["mean_um"]
        if state.first_um is None:
            state.first_um = um
        recent = state.recent
        recent.append({"at": at, "um": um})
        # The oldest that is kept is the newest that is old enough: the rate is taken from there.
        while len(recent) > 1 and recent[1]["at"] <= at - _RATE_OVER:
            del recent[0]
        oldest = recent[0]
        passed = at - oldest["at"]
        drift_um = um - state.first_um
        um_per_minute = (um - oldest["um"]) / (passed / timedelta(minutes=1)) if passed >= _RATE_OVER else 0.0
        level = VAULT_RULE.judge(drift_um, um_per_minute, state.level)
        if level != state.level:
            change = {"window_start": at, "was": state.level, "level": level}
            yield {**change, "drift_um": drift_um, "um_per_minute": um_per_minute}
            state.level = level


def find_low_voltage(readings: ab.Stream, given: Namespace) -> ab.Stream:
    """Return the windows in which a sensor was low, by its own time; again whenever a late row changes one."""
    return (
        readings.with_columns(low=(pl.col("value") < given.low_volts).cast(pl.Int64))
        .key_by("sensor")
        .watermark("ts", delay=f"{given.delay_ms}ms", per="key")
        .window(f"{given.window_ms}ms", late="update", lateness=f"{given.lateness_ms}ms")
        .agg(readings=ab.count(), low=ab.sum("low"), lowest=ab.min("value"))
        # No correction is lost by this: a window that had a low reading keeps it.
        .filter(pl.col("low") > 0)
    )


def watch_vault(readings: ab.Stream, given: Namespace) -> ab.Stream:
    """Return the changes of every crown's warning level."""
    return (
        readings.watermark("ts", delay=f"{given.delay_ms}ms")
        .key_by("sensor")
        .window(f"{given.window_ms}ms")
        .agg(readings=ab.count(), total=ab.sum("value"))
        # The end of a window is its result's time, by which the processor gets the windows of a crown in order.
        .select("sensor", "window_start", "window_end", mean_um=pl.col("total") / pl.col("readings"))
        .key_by("sensor")
        .process(Settlement(), schema=_CHANGES)
    )


def read_only(readings: ab.Stream, given: Namespace) -> ab.Stream:
    """Return no rows: what it costs to read them is asked."""
    return readings.filter(pl.col("sensor") < 0)


STREAMS = {LOW_VOLTAGE: find_low_voltage, VAULT: watch_vault, "read": read_only}


def main() -> None:
    """Run the flow over all files and write samples and batches as JSON."""
    given = read_options(
        app=str,
        input=str,
        format=str,
        files_per_batch=int,
        slots=int,
        memory=str,
        delay_ms=int,
        window_ms=int,
        lateness_ms=int,
        low_volts=float,
    )
    source = ab.files(given.input, format=given.format, schema=SCHEMA, max_files=given.files_per_batch, max_bytes=None)
    flow = ab.Flow(given.app)
    readings = flow.read(source).with_columns(ts=pl.from_epoch("ts", "ms"))
    STREAMS[given.app](readings, given).write(ab.parquet(given.output))
    spark = ab.local_session(master=f"local[{given.slots}]", memory=given.memory)
    clock = CommitClock()
    progress = flow.run(
        given.checkpoint, spark=spark, on_progress=clock.note, trigger="available-now", drain=True, slots=given.slots
    )
    spark.stop()
    batches = [describe_batch(batch, "late_rows", "slot_late_rows", "state_bytes") for batch in progress]
    settings = {"slots": given.slots, "max_files": given.files_per_batch, "memory": given.memory}
    write_outcome(given.result, clock, batches, settings)


if __name__ == "__main__":
    main()

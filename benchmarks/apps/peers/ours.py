"""Run an application on Anabranch itself: low voltage by sensor, or the warning levels of a vault."""

from __future__ import annotations

from argparse import Namespace
from datetime import timedelta

import polars as pl

import anabranch as ab
from benchmarks.apps.rules import LOW_VOLTAGE, VAULT, VAULT_RULE
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import run_over_files
from benchmarks.shared.workload import SCHEMA

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


class Settlement(ab.FrameProcessor):
    """Follows drift and rate of each crown by its means over windows, and emits the changes of its level."""

    first_um = ab.value(pl.Float64())
    level = ab.value(pl.Int64(), default=0)
    recent = ab.listed(pl.Struct({"at": _MOMENT, "um": pl.Float64}))

    def process(
        self, frame: pl.DataFrame, state: pl.DataFrame, time: ab.FrameTime
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Judge the windows of a batch, all crowns of a moment at once."""
        new = frame.select("sensor", at=pl.col("window_start").cast(_MOMENT), um="mean_um").sort("at", "sensor")
        before = state.select("sensor", "recent").explode("recent").unnest("recent").drop_nulls()
        known = pl.concat([before, new]).sort("at", maintain_order=True)
        firsts = new.group_by("sensor", maintain_order=True).agg(met_um=pl.col("um").first())
        crowns = (
            state.select("sensor", "first_um", "level")
            .join(firsts, on="sensor", how="left", maintain_order="left")
            .select("sensor", "level", first_um=pl.coalesce("first_um", "met_um"))
        )
        judged = _compare(new, known, crowns)
        changes, levels = _judge(judged, crowns)
        recent = _keep_recent(known)
        after = crowns.select("sensor", "first_um").with_columns(level=levels)
        return changes, after.join(recent, on="sensor", how="left", maintain_order="left")


def _compare(new: pl.DataFrame, known: pl.DataFrame, crowns: pl.DataFrame) -> pl.DataFrame:
    """Return each window with its drift, and its rate against the newest window that is old enough."""
    older = known.select("sensor", old_at="at", old_um="um")
    looked = new.with_columns(limit=pl.col("at") - _RATE_OVER).join_asof(
        older, left_on="limit", right_on="old_at", by="sensor", strategy="backward", check_sortedness=False
    )
    numbered = crowns.select("sensor", "first_um").with_row_index("place")
    found = looked.join(numbered, on="sensor", maintain_order="left")
    passed_us = found.select((pl.col("at") - pl.col("old_at")).dt.total_microseconds().cast(pl.Float64)).to_series()
    # Polars multiplies by the inverse of a constant, which may differ from its quotient in the last bit.
    minutes = pl.Series(passed_us.to_numpy() / 60_000_000.0, nan_to_null=True)
    return found.select(
        "place",
        "sensor",
        "at",
        drift_um=pl.col("um") - pl.col("first_um"),
        um_per_minute=((pl.col("um") - pl.col("old_um")) / minutes).fill_null(0.0),
    )


def _judge(judged: pl.DataFrame, crowns: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Return the changes of level, moment by moment, and the levels of all crowns in the end."""
    levels = crowns["level"].to_numpy().copy()
    changes = [pl.DataFrame(schema=_CHANGES)]
    for _, windows in judged.group_by("at", maintain_order=True):
        places = windows["place"].to_numpy()
        was = levels[places]
        now = VAULT_RULE.judge_all(windows["drift_um"].to_numpy(), windows["um_per_minute"].to_numpy(), was)
        levels[places] = now
        told = windows.with_columns(was=pl.Series(was), level=pl.Series(now), window_start="at")
        changes.append(told.filter(pl.col("was") != pl.col("level")).select(list(_CHANGES)))
    return pl.concat(changes), pl.Series("level", levels)


def _keep_recent(known: pl.DataFrame) -> pl.DataFrame:
    """Return what later rates are taken from: the newest window that is old enough already, and all behind it."""
    last = pl.col("at").max().over("sensor")
    old_enough = pl.col("at") <= last - _RATE_OVER
    oldest = pl.col("at").filter(old_enough).max().over("sensor")
    kept = known.filter(oldest.is_null() | (pl.col("at") >= oldest))
    return kept.group_by("sensor", maintain_order=True).agg(recent=pl.struct("at", "um"))


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
    run_over_files(flow, given, "late_rows", "slot_late_rows", "state_bytes", drain=True)


if __name__ == "__main__":
    main()

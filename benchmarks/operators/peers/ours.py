"""Run one operator over visits on Anabranch itself, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

import anabranch as ab
from benchmarks.operators.inputs import SCHEMA
from benchmarks.operators.plan import (
    BEST,
    DELAY_MS,
    DISTINCT_LG_K,
    GAP_US,
    LEVEL,
    MINUTE_MS,
    PERCENTILE,
    SLIDE_MS,
    WINDOW_MS,
)
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import run_over_files

_WINDOW, _SLIDE, _MINUTE, _DELAY = (f"{length}ms" for length in (WINDOW_MS, SLIDE_MS, MINUTE_MS, DELAY_MS))
_LEVELS = {"user": pl.String, "level": pl.Int64}


def _sliding(visits: ab.Stream) -> ab.Stream:
    return visits.key_by("user").window(_WINDOW, every=_SLIDE).agg(readings=ab.count(), total=ab.sum("value"))


def _session(visits: ab.Stream) -> ab.Stream:
    return visits.key_by("user").session(f"{GAP_US}us").agg(readings=ab.count(), total=ab.sum("value"))


def _running(visits: ab.Stream) -> ab.Stream:
    return visits.key_by("user").agg(readings=ab.count(), total=ab.sum("value"))


def _distinct(visits: ab.Stream) -> ab.Stream:
    return visits.select("user", "item").distinct("user", "item")


def _two_hops(visits: ab.Stream) -> ab.Stream:
    per_user = visits.key_by("site", "user").window(_WINDOW).agg(readings=ab.count(), total=ab.sum("value"))
    users = per_user.key_by("site").window(_MINUTE)
    return users.agg(users=ab.count(), readings=ab.sum("readings"), total=ab.sum("total"))


def _sketches(visits: ab.Stream) -> ab.Stream:
    users, high = ab.approx_distinct("user", DISTINCT_LG_K), ab.quantile("value", PERCENTILE)
    return visits.key_by("site").window(_WINDOW).agg(readings=ab.count(), users=users, high=high)


def _top_k(visits: ab.Stream) -> ab.Stream:
    return visits.key_by("user").window(_WINDOW).top_k(BEST, by="value", columns=["item"])


class _RowLevels(ab.Processor):
    """Emits each level that a user's total reaches."""

    total = ab.value(pl.Float64(), default=0.0)

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        before = state.total
        after = before + row["value"]
        state.total = after
        if after // LEVEL > before // LEVEL:
            yield {"level": int(after // LEVEL)}


class _FrameLevels(ab.FrameProcessor):
    """Does the same, a frame at a time."""

    total = ab.value(pl.Float64(), default=0.0)

    def process(
        self, frame: pl.DataFrame, state: pl.DataFrame, time: ab.FrameTime
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        more = frame.group_by("user", maintain_order=True).agg(pl.col("value").sum().alias("more"))
        joined = state.join(more, on="user", how="left", maintain_order="left")
        after = joined.select("user", pl.col("total") + pl.col("more").fill_null(0.0))
        reached = after["total"] // LEVEL
        levels = pl.int_ranges((state["total"] // LEVEL + 1).cast(pl.Int64), (reached + 1).cast(pl.Int64), eager=True)
        emitted = pl.DataFrame({"user": after["user"], "level": levels}).filter(levels.list.len() > 0)
        return emitted.explode("level"), after


def _process_rows(visits: ab.Stream) -> ab.Stream:
    return visits.select("user", "value").key_by("user").process(_RowLevels(), schema=_LEVELS)


def _process_frames(visits: ab.Stream) -> ab.Stream:
    return visits.select("user", "value").key_by("user").process(_FrameLevels(), schema=_LEVELS)


_TIMED: dict[str, Callable[[ab.Stream], ab.Stream]] = {
    "sliding": _sliding,
    "session": _session,
    "two-hops": _two_hops,
    "sketches": _sketches,
    "top-k": _top_k,
}
_TIMELESS: dict[str, Callable[[ab.Stream], ab.Stream]] = {
    "running": _running,
    "distinct": _distinct,
    "process-rows": _process_rows,
    "process-frames": _process_frames,
}


def build(operator: str, visits: ab.Stream) -> ab.Stream:
    """Add an operator to visits as they are read."""
    if operator in _TIMELESS:
        return _TIMELESS[operator](visits)
    timed = visits.with_columns(ts=pl.from_epoch("ts", "ms")).watermark("ts", delay=_DELAY)
    return _TIMED[operator](timed)


def main() -> None:
    """Run the flow over all files and write samples and batches as JSON."""
    arguments = read_options(input=str, operator=str, files_per_batch=int, slots=int, memory=str)

    source = ab.files(
        arguments.input, format="parquet", schema=SCHEMA, max_files=arguments.files_per_batch, max_bytes=None
    )
    flow = ab.Flow("operators")
    build(arguments.operator, flow.read(source)).write(ab.parquet(arguments.output))
    run_over_files(flow, arguments, "state_bytes", "exchanged_bytes")


if __name__ == "__main__":
    main()

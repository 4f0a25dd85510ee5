"""Processors that make use of everything there is, by what their rows say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import polars as pl

from anabranch.operators.processors.declared_state import listed, mapped, value
from anabranch.operators.processors.processor import FrameProcessor, Processor

OUTPUT: dict[str, pl.DataType] = {
    "key": pl.Int64(),
    "what": pl.String(),
    "at": pl.Datetime("us"),
    "tag": pl.String(),
    "last": pl.Int64(),
    "rows": pl.Int32(),
    "seen": pl.List(pl.Int64()),
    "total": pl.Int64(),
}


class Scripted(Processor):
    """Does with each row what its number says."""

    last = value(pl.Int64(), default=None)
    rows = value(pl.Int32(), default=0)
    seen = listed(pl.Int64())
    totals = mapped(pl.String(), pl.Int64())

    def on_time(self, row: Mapping[str, Any], state: Any, timers: Any) -> Iterator[dict[str, Any]]:
        number = row["whole"]
        state.rows += 1
        if number is None:
            return
        yield self._tell("row", row["ts"], "", state)
        state.last = number
        tag = "ab"[number % 2]
        state.totals[tag] = state.totals.get(tag, 0) + number
        self._act(number, row["ts"], tag, state, timers)

    def _act(self, number: int, at: Any, tag: str, state: Any, timers: Any) -> None:
        match number % 9:
            case 0:
                state.seen.append(number)
                timers.at(at + timedelta(seconds=number % 17 - 4), tag)
            case 1:
                timers.after_processing(timedelta(microseconds=number % 7), tag)
            case 2:
                timers.cancel(at + timedelta(seconds=5), tag)
                timers.at(at + timedelta(seconds=11), tag)
            case 3:
                timers.cancel_all(tag)
            case 4:
                state.clear()
            case 5:
                timers.at(at + timedelta(seconds=30), "again")
            case 6:
                del state.seen
                state.last = None
            case 7:
                timers.at_processing(timers.now - timedelta(microseconds=3), tag)
                timers.at(at + timedelta(seconds=5), tag)

    def on_late(self, row: Mapping[str, Any], state: Any, timers: Any) -> list[dict[str, Any]]:
        if row["whole"] is not None and row["whole"] % 4 == 0:
            timers.at(row["ts"] + timedelta(seconds=2), "late")
        return [self._tell("late", row["ts"], "", state)]

    def on_timer(self, timer: Any, state: Any, timers: Any) -> Iterator[dict[str, Any]]:
        yield self._tell(timer.domain, timer.time, timer.tag, state)
        if timer.tag == "again":
            timers.at(timer.time + timedelta(seconds=9), "again")
        if timer.domain == "processing" and state.rows % 3 == 0:
            timers.at(timer.time + timedelta(seconds=7), "from a clock")
        if timer.tag == "a" and state.seen:
            state.seen.pop(0)
        elif timer.tag == "b":
            state.clear()

    def _tell(self, what: str, at: Any, tag: str, state: Any) -> dict[str, Any]:
        return {
            "what": what,
            "at": at,
            "tag": tag,
            "last": state.last,
            "rows": state.rows,
            "seen": list(state.seen),
            "total": sum(state.totals.values()),
        }


class ScriptedFrames(FrameProcessor):
    """Counts rows, sets a timer five seconds behind the last row of each key, and at times another one behind that."""

    rows = value(pl.Int64(), default=0)
    latest = value(pl.Datetime("us"))
    seen = listed(pl.Int32())

    def process(self, frame: pl.DataFrame, state: pl.DataFrame, time: Any) -> Any:
        sums = (
            frame.filter(~pl.col("late"))
            .group_by("key", maintain_order=True)
            .agg(
                pl.len().cast(pl.Int64).alias("new"),
                pl.col("ts").max().cast(pl.Datetime("us")),
                pl.col("whole").alias("numbers"),
            )
        )
        fired = time.timers.group_by("key", maintain_order=True).agg(pl.len().alias("fired"), pl.col("at").max())
        joined = state.join(sums, on="key", how="left", maintain_order="left")
        joined = joined.join(fired, on="key", how="left", maintain_order="left")
        is_fired = pl.col("fired").is_not_null()
        numbers = pl.concat_list("seen", pl.col("numbers").fill_null([])).list.drop_nulls()
        after = joined.select(
            "key",
            rows=pl.col("rows") + pl.col("new").fill_null(0),
            latest=pl.max_horizontal("latest", "ts"),
            seen=pl.when(is_fired).then([]).otherwise(numbers),
        )
        again = joined.filter(is_fired & (pl.col("rows") % 3 == 0))
        timers = pl.concat(
            [
                sums.select("key", at=pl.col("ts") + pl.duration(seconds=5)),
                again.select("key", at=pl.col("at") + pl.duration(seconds=9)),
            ]
        )
        emitted = joined.filter(is_fired).select("key", "rows", "at", "latest", count=pl.col("seen").list.len())
        return emitted, after, timers


FRAME_OUTPUT: dict[str, pl.DataType] = {
    "key": pl.Int64(),
    "rows": pl.Int64(),
    "at": pl.Datetime("us"),
    "latest": pl.Datetime("us"),
    "count": pl.Int64(),
}

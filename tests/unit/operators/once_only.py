"""Streams of keys that come once and never again, on a slot whose state lies in files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from anabranch.model import (
    HASH,
    ORDER,
    AggregateSpec,
    Clock,
    CountWindowSpec,
    ForgottenClocks,
    OperatorSpec,
    OperatorTime,
    OrderSpec,
    ProcessSpec,
    RunRef,
    WindowSpec,
)
from anabranch.operators.aggregates import functions as agg
from anabranch.operators.kernels import make_kernel
from anabranch.operators.processors.processor import FrameProcessor
from anabranch.routing import hash_keys
from anabranch.state import RunFiles, RunsOfSlot, WriteName, open_store
from unit.operators.streams import SECOND_US

BATCH_SECONDS = 10
IDLE_US = 2 * BATCH_SECONDS * SECOND_US
SCHEMA = {"key": pl.Int64(), "ts": pl.Datetime("us")}
AGGREGATES = {"rows": agg.count()}
TEN_SECONDS = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US)


class Passing(FrameProcessor):
    """Hands rows on, and remembers nothing."""

    def process(self, frame: pl.DataFrame, state: pl.DataFrame, time: object) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the keys of the rows that are not late."""
        return frame.filter(~pl.col("late")).select("key"), state


def _specs(clock: Clock) -> dict[str, OperatorSpec]:
    updated = replace(TEN_SECONDS, late="update", lateness_us=5 * SECOND_US)
    session = WindowSpec("session", 5 * SECOND_US, 5 * SECOND_US)
    counted = CountWindowSpec(2, 2, clock.idle_us)
    return {
        "tumbling": AggregateSpec(("key",), AGGREGATES, TEN_SECONDS, "ts", clock=clock),
        "updated": AggregateSpec(("key",), AGGREGATES, updated, "ts", clock=clock),
        "sessions": AggregateSpec(("key",), AGGREGATES, session, "ts", clock=clock),
        "count windows": AggregateSpec(("key",), AGGREGATES, None, "ts", count_window=counted),
        "processor": ProcessSpec(("key",), Passing(), SCHEMA, {"key": pl.Int64()}, "ts", clock),
        "in order": OrderSpec(("key",), "ts", clock),
    }


KINDS = tuple(_specs(Clock("key")))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a stream left behind."""

    results: int
    most_state_rows: int
    most_state_bytes: int
    last_state_rows: int


class OnceOnly:
    """Feeds an operator with keys that come once; event time goes on beside the wall clock."""

    def __init__(self, kind: str, keys_a_batch: int, idle_us: int | None = IDLE_US, seed: int = 1) -> None:
        self._spec = _specs(Clock("key", SECOND_US, idle_us=idle_us))[kind]
        self._clock = self._spec.clock
        self._kernel = make_kernel(self._spec)
        self._keys_a_batch = keys_a_batch
        self._chance = np.random.default_rng(seed)

    def run(self, batches: int) -> Seen:
        """Run so many batches with new keys in each, and those without rows that it takes until all are silent."""
        forgotten, runs = ForgottenClocks.none(), ()
        results = most_rows = most_bytes = 0
        with _files() as folder:
            for number in range(batches + 12):
                time = self._time(number, forgotten)
                frames = self._rows(number, time) if number < batches else []
                files = RunFiles(open_store(folder), "state", WriteName(1, number, 0, "once"))
                state = RunsOfSlot(runs, files, files)
                fired = self._kernel.advance(frames, False, state, time)
                forgotten = forgotten.plus(time.forget_until_us(self._clock), fired.forgotten_us or {})
                results += fired.frame.height
                _remove(folder, runs, state.runs())
                runs: tuple[RunRef, ...] = state.runs()
                most_rows = max(most_rows, sum(ref.live_rows for ref in runs))
                most_bytes = max(most_bytes, sum(ref.bytes for ref in runs))
        return Seen(results, most_rows, most_bytes, sum(ref.live_rows for ref in runs))

    def _time(self, number: int, forgotten: ForgottenClocks) -> OperatorTime:
        now_us = (1 + number) * BATCH_SECONDS * SECOND_US
        last_now_us = now_us - BATCH_SECONDS * SECOND_US
        return OperatorTime(number, now_us=now_us, last_now_us=last_now_us, forgotten=forgotten)

    def _rows(self, number: int, time: OperatorTime) -> list[pl.DataFrame]:
        count = self._keys_a_batch
        keys = self._chance.permutation(np.arange(number * count, (number + 1) * count))
        times_us = time.now_us - self._chance.integers(0, BATCH_SECONDS * SECOND_US, count)
        frame = pl.DataFrame({"key": keys, "ts": pl.Series(times_us).cast(pl.Datetime("us")), ORDER: np.arange(count)})
        prepared = self._kernel.prepare(frame, time).frame
        return [prepared.with_columns(hash_keys(prepared, ["key"]).alias(HASH))]


@contextmanager
def _files() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _remove(folder: Path, before: tuple[RunRef, ...], after: tuple[RunRef, ...]) -> None:
    """Remove the files that are not needed any more, as retention does some batches later."""
    for ref in {ref.file for ref in before} - {ref.file for ref in after}:
        (folder / ref).unlink()

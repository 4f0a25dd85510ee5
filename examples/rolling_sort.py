"""Rolling sort: every ten seconds, each sorter tells its newest messages in order; busy with memory.

A sorter keeps as many messages as it has room for, and lets the oldest go. What it holds is state that lasts, so that a
sorter which is moved or dies goes on with the same messages elsewhere.

    anabranch run examples/rolling_sort.py

The first run makes up messages in examples/output/rolling_sort, or in ANABRANCH_EXAMPLE_FOLDER; the sorted chunks go to
chunks/ there, with the rank of each message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import anabranch as ab

FOLDER = Path(os.environ.get("ANABRANCH_EXAMPLE_FOLDER", Path(__file__).parent / "output" / "rolling_sort"))
RUN = {"checkpoint": FOLDER / "state", "trigger": "available-now", "drain": True}
MOMENT = pl.Datetime("ms")
MESSAGES = {"sorter": pl.Int64(), "ts": MOMENT, "message": pl.String()}
CHUNKS = {"sorter": pl.Int64(), "emitted": MOMENT, "rank": pl.Int64(), "message": pl.String()}
CHUNK_SIZE = 200
EMIT_EVERY = timedelta(seconds=10)
EPOCH = datetime(1970, 1, 1)


class SortsChunks(ab.Processor):
    """Keeps a sorter's newest messages, and emits them in order whenever a step of time is over in which some came."""

    chunk = ab.listed(pl.String())

    def __init__(self, size: int = CHUNK_SIZE, every: timedelta = EMIT_EVERY) -> None:
        self.size = size
        self.every = every

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> None:
        state.chunk.append(row["message"])
        if len(state.chunk) > self.size:
            del state.chunk[0]
        # The end of the step that the message is in; a second timer for it is none.
        timers.at(row["ts"] + self.every - (row["ts"] - EPOCH) % self.every)

    def on_timer(self, timer: ab.Timer, state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        for rank, message in enumerate(sorted(state.chunk)):
            yield {"emitted": timer.time, "rank": rank, "message": message}


def make_flow(messages: Path, chunks: Path) -> ab.Flow:
    """Return the flow from a folder of messages to a folder of sorted chunks."""
    flow = ab.Flow("rolling-sort")
    (
        flow.read(ab.files(messages, format="json", schema=MESSAGES, max_files=1))
        .key_by("sorter")
        .watermark("ts", delay="2s")
        # Which messages are the newest must not depend on how they were cut into batches.
        .ordered("ts")
        .process(SortsChunks(), schema=CHUNKS)
        .write(ab.parquet(chunks))
    )
    return flow


def write_messages(
    folder: Path, messages: int = 6_000, sorters: int = 8, seconds: int = 120, files: int = 6, seed: int = 8
) -> None:
    """Make up messages of 100 letters, dealt to sorters, by the time they arrive: up to a second late."""
    chance = np.random.default_rng(seed)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
    # No two of a sorter at the same moment: who is first is said by time alone.
    at_ms = np.sort(chance.choice(seconds * 1_000, messages, replace=False))
    written = pl.DataFrame(
        {
            "sorter": chance.integers(0, sorters, messages),
            "ts": pl.Series(at_ms).cast(pl.Duration("ms")) + datetime(2026, 1, 1),
            "message": [chance.choice(letters, 100).tobytes().decode("ascii") for _ in range(messages)],
            "arrived": at_ms + chance.uniform(0, 1_000, messages),
        }
    )
    arrived = written.sort("arrived").drop("arrived")
    unfinished = folder.with_suffix(".tmp")
    unfinished.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(arrived.iter_slices(-(-messages // files))):
        part.write_ndjson(unfinished / f"messages-{number:02}.json")
    unfinished.rename(folder)


def flow() -> ab.Flow:
    """Return what ``anabranch run`` runs."""
    messages = FOLDER / "messages"
    if not messages.exists():
        write_messages(messages)
    return make_flow(messages, FOLDER / "chunks")


if __name__ == "__main__":
    flow().run(**RUN)
    print(pl.read_parquet(FOLDER / "chunks" / "part-*.parquet").sort("emitted", "sorter", "rank"))

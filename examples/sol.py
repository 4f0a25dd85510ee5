"""Sol, "speed of light": messages pass through levels that do nothing, as quickly as they can; busy with the network.

Each level hands every message on to some slot of the next one: what is measured is what sending costs, and nothing
else. Of the messages, the last level tells how long they are and by which way they came.

    anabranch run examples/sol.py

The first run makes up messages of 2,000 bytes in examples/output/sol, or in ANABRANCH_EXAMPLE_FOLDER; what arrived goes
to arrived/ there. ANABRANCH_EXAMPLE_LEVELS says how many levels messages pass, readers included (3).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl

import anabranch as ab

FOLDER = Path(os.environ.get("ANABRANCH_EXAMPLE_FOLDER", Path(__file__).parent / "output" / "sol"))
LEVELS = int(os.environ.get("ANABRANCH_EXAMPLE_LEVELS", "3"))
RUN = {"checkpoint": FOLDER / "state", "trigger": "available-now"}
MESSAGES = {"id": pl.Int64(), "message": pl.String()}
LANES = 1_000


class PassOn(ab.FrameProcessor):
    """Hands messages on, and notes by which lane they came."""

    def __init__(self, lane: str) -> None:
        self.lane = lane

    def process(self, frame: pl.DataFrame, state: pl.DataFrame, time: ab.FrameTime) -> ab.FrameOutcome:
        way = pl.concat_list("way", self.lane)
        return frame.select(self.lane, "id", "message", way=way), None


def make_flow(messages: Path, arrived: Path, levels: int = LEVELS) -> ab.Flow:
    """Return the flow from a folder of messages, through levels, to a folder of what arrived."""
    flow = ab.Flow("sol")
    passing = flow.read(ab.files(messages, format="json", schema=MESSAGES, max_files=1)).with_columns(
        way=pl.lit([], dtype=pl.List(pl.Int64))
    )
    for level in range(1, levels):
        lane = f"lane{level}"
        # Another lane at each level, so that messages which met in a slot part again.
        passing = passing.with_columns(**{lane: (pl.col("id") * (2 * level + 1) + level) % LANES})
        schema = {lane: pl.Int64(), **MESSAGES, "way": pl.List(pl.Int64)}
        passing = (
            passing.key_by(lane).process(PassOn(lane), schema=schema, name=f"level-{level}").select(*MESSAGES, "way")
        )
    passing.select("id", "way", bytes=pl.col("message").str.len_bytes()).write(ab.parquet(arrived))
    return flow


def write_messages(folder: Path, messages: int = 2_400, size: int = 2_000, files: int = 5, seed: int = 7) -> None:
    """Make up messages of chance letters, which do not become smaller when they are packed."""
    chance = np.random.default_rng(seed)
    letters = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-", np.uint8)
    texts = [chance.choice(letters, size).tobytes().decode("ascii") for _ in range(messages)]
    written = pl.DataFrame({"id": np.arange(messages), "message": texts})
    unfinished = folder.with_suffix(".tmp")
    unfinished.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(written.iter_slices(-(-messages // files))):
        part.write_ndjson(unfinished / f"messages-{number:02}.json")
    unfinished.rename(folder)


def flow() -> ab.Flow:
    """Return what ``anabranch run`` runs."""
    messages = FOLDER / "messages"
    if not messages.exists():
        write_messages(messages)
    return make_flow(messages, FOLDER / "arrived")


if __name__ == "__main__":
    progress = flow().run(**RUN)
    seconds = sum(batch.batch_seconds for batch in progress)
    sent = sum(batch.exchanged_bytes for batch in progress)
    rows = sum(batch.rows_in for batch in progress)
    print(f"{rows:,} messages and {sent:,} bytes between slots in {seconds:.1f} s of batches")

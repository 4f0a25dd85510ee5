"""Rolling count: how often each word came in the last 150 seconds, told every 30 seconds; as in practice.

What is talked about changes: words become frequent and are forgotten again. Windows overlap, so that a word counts in
five of them.

    anabranch run examples/rolling_count.py

The first run makes up sentences in examples/output/rolling_count, or in ANABRANCH_EXAMPLE_FOLDER; the counts go to
counts/ there.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

import anabranch as ab

FOLDER = Path(os.environ.get("ANABRANCH_EXAMPLE_FOLDER", Path(__file__).parent / "output" / "rolling_count"))
RUN = {"checkpoint": FOLDER / "state", "trigger": "available-now", "drain": True}
MOMENT = pl.Datetime("ms")
SENTENCES = {"ts": MOMENT, "sentence": pl.String()}
WINDOW = "150s"
EVERY = "30s"


def split_sentences(sentences: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each word of a sentence, with the sentence's time."""
    return sentences.select("ts", word=pl.col("sentence").str.split(" ")).explode("word")


def make_flow(sentences: Path, counts: Path) -> ab.Flow:
    """Return the flow from a folder of sentences to a folder of counts."""
    flow = ab.Flow("rolling-count")
    (
        flow.read(ab.files(sentences, format="json", schema=SENTENCES, max_files=1))
        .map_batches(split_sentences, schema={"ts": MOMENT, "word": pl.String()})
        .watermark("ts", delay="5s")
        .key_by("word")
        .window(WINDOW, every=EVERY)
        .agg(count=ab.count())
        .write(ab.parquet(counts))
    )
    return flow


def write_sentences(
    folder: Path, sentences: int = 12_000, words: int = 2_000, minutes: int = 12, files: int = 6, seed: int = 9
) -> None:
    """Make up sentences of eight words by the time they arrive, up to four seconds late; each minute has its topics."""
    chance = np.random.default_rng(seed)
    at_ms = np.sort(chance.integers(0, minutes * 60_000, sentences))
    shares = 1 / np.arange(1, words + 1)
    ranks = chance.choice(words, (sentences, 8), p=shares / shares.sum())
    # The first of a minute is another word in the next one.
    spoken = (ranks + 7 * (at_ms // 60_000)[:, None]) % words
    written = pl.DataFrame(
        {
            "ts": pl.Series(at_ms).cast(pl.Duration("ms")) + datetime(2026, 1, 1),
            "sentence": [" ".join(f"word{number}" for number in row) for row in spoken],
            "arrived": at_ms + chance.uniform(0, 4_000, sentences),
        }
    )
    arrived = written.sort("arrived").drop("arrived")
    unfinished = folder.with_suffix(".tmp")
    unfinished.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(arrived.iter_slices(-(-sentences // files))):
        part.write_ndjson(unfinished / f"sentences-{number:02}.json")
    unfinished.rename(folder)


def flow() -> ab.Flow:
    """Return what ``anabranch run`` runs."""
    sentences = FOLDER / "sentences"
    if not sentences.exists():
        write_sentences(sentences)
    return make_flow(sentences, FOLDER / "counts")


if __name__ == "__main__":
    flow().run(**RUN)
    print(pl.read_parquet(FOLDER / "counts" / "part-*.parquet").sort("window_start", "count", descending=[False, True]))

"""Word count: how often each word came, of sentences without end; busy with processors.

Readers split sentences, and count the words of a batch before anything is sent. Each batch tells the new counts of the
words that it had; of a word, the largest count is the latest.

    anabranch run examples/word_count.py

The first run makes up sentences in examples/output/word_count, or in ANABRANCH_EXAMPLE_FOLDER; the counts go to counts/
there. It is the first of four usual benchmarks of stream processing, by which energy is measured here; the others are
sol.py, rolling_sort.py and rolling_count.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl

import anabranch as ab

FOLDER = Path(os.environ.get("ANABRANCH_EXAMPLE_FOLDER", Path(__file__).parent / "output" / "word_count"))
RUN = {"checkpoint": FOLDER / "state", "trigger": "available-now"}
SENTENCES = {"sentence": pl.String()}


def split_sentences(sentences: pl.DataFrame) -> pl.DataFrame:
    """Return the words: runs of letters, digits and apostrophes, in small letters."""
    words = pl.col("sentence").str.to_lowercase().str.extract_all(r"[\p{L}\p{N}']+")
    return sentences.select(words.alias("word")).explode("word").drop_nulls()


def make_flow(sentences: Path, counts: Path) -> ab.Flow:
    """Return the flow from a folder of sentences to a folder of counts."""
    flow = ab.Flow("word-count")
    (
        flow.read(ab.files(sentences, format="json", schema=SENTENCES, max_files=1))
        .map_batches(split_sentences, schema={"word": pl.String()})
        .key_by("word")
        .agg(count=ab.count())
        .write(ab.parquet(counts))
    )
    return flow


def write_sentences(folder: Path, sentences: int = 24_000, words: int = 5_000, files: int = 6, seed: int = 6) -> None:
    """Make up sentences of 4 to 16 words; the word of rank r comes about r times less often than the first."""
    chance = np.random.default_rng(seed)
    shares = 1 / np.arange(1, words + 1)
    lengths = chance.integers(4, 17, sentences)
    numbers = chance.choice(words, int(lengths.sum()), p=shares / shares.sum())
    # Some begin a sentence, and are written with a capital; some end in a comma: they are the same words.
    ends = np.cumsum(lengths)
    made = []
    for begin, end in zip(ends - lengths, ends, strict=True):
        first, *others = [f"word{number}" + "," * int(number % 7 == 3) for number in numbers[begin:end]]
        made.append(" ".join([first.capitalize(), *others]).rstrip(",") + ".")
    written = pl.DataFrame({"sentence": made})
    unfinished = folder.with_suffix(".tmp")
    unfinished.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(written.iter_slices(-(-sentences // files))):
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
    counted = pl.read_parquet(FOLDER / "counts" / "part-*.parquet").group_by("word").agg(pl.col("count").max())
    print(counted.sort("count", "word", descending=[True, False]))

"""The search for versions finds what a look at every one of them finds, also where keys share a hash."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import BATCH, BEGINNING_OF_TIME, HASH, ORDER
from anabranch.model.joins import AT, Interval
from anabranch.operators.joins.rows import Piece
from anabranch.operators.joins.versions import NOWHERE, drop_superseded, find_newest

KEYS = ("key", "name")
# Keys share hashes: two of them, whatever they are.
VERSION = st.tuples(st.integers(0, 4), st.integers(0, 12), st.integers(0, 2))
ROWS = st.lists(st.tuples(st.integers(0, 4) | st.none(), st.integers(0, 14)), max_size=30)
WITHIN = st.builds(Interval, st.integers(-5, -1) | st.just(BEGINNING_OF_TIME), st.sampled_from([0, -1]))


def lay_out(rows: list[tuple[Any, ...]], names: list[str]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")
    hashes = (pl.col("key").fill_null(0) % 2).cast(pl.UInt64).alias(HASH)
    return frame.with_columns(hashes, pl.format("n{}", "key").alias("name"))


def number_versions(pieces: list[list[tuple[int, int, int]]]) -> list[pl.DataFrame]:
    """Return versions as runs have them, each with a place in its batch that no other has."""
    frames, order = [], 0
    for piece in pieces:
        rows = [(*row, order + number) for number, row in enumerate(piece)]
        order += len(piece)
        frames.append(lay_out(rows, ["key", AT, BATCH, ORDER]).sort(HASH, AT, BATCH, ORDER))
    return frames


def find(rows: pl.DataFrame, frames: list[pl.DataFrame], within: Interval) -> list[tuple[Any, ...] | None]:
    """Return for each row the (time, batch, order) of its version."""
    pieces = [Piece(frame, is_sorted=True) for frame in frames]
    seeking = Piece(rows.with_row_index("row"), is_sorted=False)
    chosen, places = find_newest(seeking, pieces, within, KEYS)
    found: list[tuple[Any, ...] | None] = [None] * rows.height
    for row, number, place in zip(seeking.rows["row"].to_list(), chosen.tolist(), places.tolist(), strict=True):
        found[row] = None if number == NOWHERE else frames[number].select(AT, BATCH, ORDER).row(place)
    return found


@given(rows=ROWS, pieces=st.lists(st.lists(VERSION, max_size=12), max_size=4), within=WITHIN)
def test_the_newest_version_is_found_in_whatever_run_it_is(
    rows: list[tuple[Any, int]], pieces: list[list[tuple[int, int, int]]], within: Interval
) -> None:
    frames = number_versions(pieces)
    versions = [row for frame in frames for row in frame.select("key", AT, BATCH, ORDER).rows()]
    expected = [
        max(
            (rank for key, *rank in versions if key == wanted and within.least_us <= rank[0] - at <= within.most_us),
            default=None,
        )
        for wanted, at in rows
    ]
    found = find(lay_out(rows, ["key", AT]), frames, within)
    assert [None if one is None else list(one) for one in found] == expected


@given(rows=ROWS, versions=st.lists(VERSION, max_size=30), passed=st.integers(0, 14), within=WITHIN)
def test_what_is_dropped_behind_the_watermark_nobody_ahead_of_it_asks_for(
    rows: list[tuple[Any, int]], versions: list[tuple[int, int, int]], passed: int, within: Interval
) -> None:
    (frame,) = number_versions([versions])
    ahead = lay_out([row for row in rows if row[1] >= passed], ["key", AT])
    kept = drop_superseded(frame, KEYS, passed)
    assert find(ahead, [kept], within) == find(ahead, [frame], within)


def test_of_each_key_the_last_version_behind_the_watermark_stays_and_all_ahead_of_it() -> None:
    (frame,) = number_versions([[(1, 1, 0), (1, 3, 0), (1, 5, 0), (1, 7, 0), (1, 7, 1), (2, 0, 0)]])
    assert sorted(drop_superseded(frame, KEYS, 6).select("key", AT).rows()) == [(1, 5), (1, 7), (1, 7), (2, 0)]

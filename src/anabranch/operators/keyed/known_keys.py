"""The keys of a batch, and rows of the state that have the same ones, told by their hashes first.

Comparing hashes is many times as fast as comparing texts. Rows of one hash are then looked at: where two keys share
a hash, keys decide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from anabranch.compiled.hash_order import Hashes, find_wanted, hashes_of, merge_hashes, order_by_hash, sort_by_hash
from anabranch.eventtime.key_clocks import PLACE
from anabranch.model import HASH
from anabranch.operators.aggregates.partials import concatenate

_KNOWN_PLACE = "__known_place"


def wanted_hashes(rows: pl.DataFrame) -> pl.Series:
    """Return the hashes of rows, sorted, each once."""
    ordered = _sorted_hashes(rows)
    is_new = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return pl.Series(ordered if is_new.all() else ordered[is_new])


def newest_by_key(runs: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """Return of each key the row of the newest run that has it; runs come oldest first."""
    rows = concatenate(runs)
    order, ordered = order_by_hash(rows.get_column(HASH).to_numpy())
    is_last = np.append(ordered[1:] != ordered[:-1], True)
    if is_last.all():
        return rows
    if _has_collisions(rows.select(HASH, *keys)[order], keys):
        return rows.unique(keys, keep="last", maintain_order=True)
    return rows[np.sort(order[is_last])]


def without_known(rows: pl.DataFrame, known: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return the rows whose key is not among the known, which have each key once."""
    places = known.select(HASH).with_row_index(_KNOWN_PLACE)
    matched = rows.select(HASH).with_row_index().join(places, on=HASH, how="inner")
    if matched.is_empty():
        return rows
    some, others = rows.select(keys)[matched["index"]], known.select(keys)[matched[_KNOWN_PLACE]]
    if all((some[key] == others[key]).all() for key in keys):
        is_new = np.ones(rows.height, np.bool_)
        is_new[matched["index"].to_numpy()] = False
        return rows.filter(pl.Series(is_new))
    return rows.join(known, on=keys, how="anti", maintain_order="left")


def place_keys(
    keys: Sequence[str], known: pl.DataFrame | None, arrived: pl.DataFrame | None
) -> tuple[pl.DataFrame, pl.DataFrame | None, pl.DataFrame | None]:
    """Return the keys of a batch, one row each, by hash, and both frames by hash, with the PLACE of each row's key."""
    columns = [HASH, *keys]
    frames = [None if frame is None else sort_by_hash(frame) for frame in (known, arrived)]
    firsts = [frame.select(columns).filter(_differs(HASH)) for frame in frames if frame is not None]
    found = sort_by_hash(concatenate(firsts))
    if any(_has_collisions(frame, keys) for frame in (*frames, found) if frame is not None):
        # Two keys have one hash: rows find theirs by value.
        present = concatenate([frame.select(columns) for frame in frames if frame is not None])
        found = sort_by_hash(present.unique(columns, maintain_order=True))
        numbered = found.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(PLACE))
        placed = [
            None if frame is None else frame.join(numbered, on=columns, how="left", maintain_order="left")
            for frame in frames
        ]
        return found, placed[0], placed[1]
    found = found.filter(_differs(HASH))
    placed = [None if frame is None else frame.with_columns(_places_among(found, frame)) for frame in frames]
    return found, placed[0], placed[1]


def _differs(column: str) -> pl.Expr:
    """Say of each row whether its value is another than that of the row before."""
    return pl.col(column).ne_missing(pl.col(column).shift(1)) | (pl.int_range(pl.len()) == 0)


def _has_collisions(rows: pl.DataFrame, keys: Sequence[str]) -> bool:
    """Say whether rows, by hash, have different keys of one hash."""
    return bool(rows.select((~_differs(HASH) & pl.any_horizontal(_differs(key) for key in keys)).any()).item())


def _places_among(found: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """Return where each row's hash is among those found; both are by hash."""
    hashes = hashes_of(rows)
    begins = np.concatenate(([True], hashes[1:] != hashes[:-1])) if len(hashes) else np.empty(0, np.bool_)
    places, _ = find_wanted(hashes_of(found), hashes[begins])
    return pl.Series(PLACE, places[np.cumsum(begins) - 1].astype(np.int64))


def touched_hashes(arrived: pl.DataFrame | None, due: Hashes) -> Hashes:
    """Return the hashes of all keys that must be looked at, sorted and unique."""
    if arrived is None:
        return due
    return merge_hashes(due, hashes_of(sort_by_hash(arrived.select(HASH))))


def _sorted_hashes(rows: pl.DataFrame) -> Hashes:
    return order_by_hash(rows.get_column(HASH).to_numpy())[1]

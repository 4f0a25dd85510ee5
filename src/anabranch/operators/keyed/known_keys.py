"""Rows of a batch beside rows of the state that have the same keys, told by their hashes first.

Comparing hashes is many times as fast as comparing texts. Rows of one hash are then looked at: where two keys share
a hash, keys decide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from anabranch.compiled.hash_order import Hashes, order_by_hash
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
    ordered = _sorted_hashes(rows)
    if not (ordered[1:] == ordered[:-1]).any():
        return rows
    return rows.unique(keys, keep="last", maintain_order=True)


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


def _sorted_hashes(rows: pl.DataFrame) -> Hashes:
    return order_by_hash(rows.get_column(HASH).to_numpy())[1]

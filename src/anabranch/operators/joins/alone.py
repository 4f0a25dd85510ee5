"""Rows of a join that met nobody on any slot: slots that have copies of a row each say whether it did there."""

from __future__ import annotations

import polars as pl

from anabranch.model import BATCH, HASH, ORDER
from anabranch.model.joins import AT
from anabranch.operators.aggregates.partials import concatenate

_ROW_AT, _ROW_BATCH, _ROW_ORDER = "__row_at", "__row_batch", "__row_order"
_TWIN = "__twin"
"""Which of several rows it is that are equal in everything."""
_SLOTS = "__slots"
"""How many slots have a copy."""
_ID = [HASH, _ROW_AT, _ROW_BATCH, _ROW_ORDER, _TWIN]


def mark_copies(results: pl.DataFrame, rows: pl.DataFrame, slots: pl.Series) -> pl.DataFrame:
    """Return results of rows that met nobody on a slot, with what tells rows apart, and how many slots have them."""
    ids = rows.select(HASH, pl.col(AT).alias(_ROW_AT), pl.col(BATCH).alias(_ROW_BATCH), pl.col(ORDER).alias(_ROW_ORDER))
    ids = ids.with_columns(pl.int_range(pl.len()).over(ids.columns).alias(_TWIN), slots.alias(_SLOTS))
    return pl.concat([results, ids], how="horizontal")


class AloneEverywhere:
    """Where slots that have copies of a row say that it met nobody: it is emitted if all of them do."""

    def meet(self, shared: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the results of rows that met nobody on any slot."""
        return _choose_alone(concatenate(shared)).drop(*_ID, _SLOTS)


def choose_alone(said: pl.DataFrame) -> pl.DataFrame:
    """Return, of marked results, those of rows that met nobody on any slot; some are on one slot only."""
    is_single = pl.col(_SLOTS) == 1
    return pl.concat([said.filter(is_single).sort(_ID), _choose_alone(said.filter(~is_single))])


def _choose_alone(said: pl.DataFrame) -> pl.DataFrame:
    everywhere = said.filter(pl.len().over(_ID) == pl.col(_SLOTS)).unique(_ID, keep="first", maintain_order=True)
    return everywhere.sort(_ID)

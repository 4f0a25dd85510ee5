"""An order of rows behind a hop, by what they are."""

from __future__ import annotations

import polars as pl
import polars_hash as plh

from anabranch.connectors.formats.json_texts import write_json_rows
from anabranch.eventtime.time_range import TIME_TYPES, find_times_out_of_range
from anabranch.model import ORDER


def order_by_content(frame: pl.DataFrame) -> pl.Series:
    """Return a place for each row, the same wherever it is made: slots must not matter, and equal rows may swap."""
    texts = frame.select(_as_text(column) for column in frame.iter_columns())
    text = pl.concat_str(texts.columns, separator="\x1f", ignore_nulls=True)
    return texts.select((plh.concat_str(text).nchash.xxhash64() // 2).cast(pl.Int64).alias(ORDER)).to_series()


def _as_text(column: pl.Series) -> pl.Series:
    # Checkpoints hold such places: a type keeps its text for ever.
    if column.dtype.is_nested():
        return write_json_rows(column.to_frame()).rename(column.name)
    if column.dtype == pl.Binary:
        return column.bin.encode("hex")
    if isinstance(column.dtype, pl.Duration) or (
        isinstance(column.dtype, TIME_TYPES) and find_times_out_of_range(column) is not None
    ):
        column = column.to_physical()
    return column.cast(pl.String)

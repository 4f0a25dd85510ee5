"""Frames of random values, of types that messages hold without loss."""

from __future__ import annotations

from datetime import date, datetime

import polars as pl
from hypothesis import strategies as st
from polars.testing.parametric import column, dataframes

_EXACT = {
    **{kind: None for kind in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.Boolean)},
    pl.String: st.text(max_size=8),
    pl.Float64: st.floats(allow_nan=False, allow_infinity=False),
    pl.Date: st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pl.Datetime("us"): st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)),
    pl.Datetime("ms"): st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(
        lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    ),
    pl.Decimal(20, 3): st.decimals(-(10**16), 10**16, places=3),
}


def frames(*more: type[pl.DataType]) -> st.SearchStrategy[pl.DataFrame]:
    """Return frames of one to three columns with nulls among the values."""
    kinds = [*_EXACT.items(), *((kind, None) for kind in more)]
    columns = st.sampled_from(kinds).map(lambda pair: pair)
    return st.lists(columns, min_size=1, max_size=3).flatmap(
        lambda chosen: dataframes(
            [
                column(f"c{index}", dtype=kind, strategy=values, allow_null=True)
                for index, (kind, values) in enumerate(chosen)
            ],
            min_size=1,
            max_size=4,
            allow_chunks=False,
        )
    )

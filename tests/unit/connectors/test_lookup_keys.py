"""Keys of lookups are compared by what they are; what cannot be equal or is there twice is said before."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.connectors.lookups.cache import FOUND, TableCache
from anabranch.errors import AnabranchError, FlowError, SourceError
from anabranch.model.lookups import LookupTable
from property_tests import tries

INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Int128]
EDGES = [
    edge + step for bits in (7, 8, 15, 16, 31, 32, 63, 64) for edge in (2**bits, -(2**bits)) for step in (-1, 0, 1)
]
NUMBERS = st.one_of(st.sampled_from([0, 1, -1, *EDGES]), st.integers(-300, 300))

Make = Callable[[pl.DataFrame, Path], LookupTable]


def as_parquet(frame: pl.DataFrame, folder: Path) -> LookupTable:
    frame.write_parquet(folder / "table.parquet")
    return ab.parquet_table(folder / "table.parquet")


def as_sqlite(frame: pl.DataFrame, folder: Path) -> LookupTable:
    forms = {pl.Int64: "INTEGER", pl.String: "TEXT"}
    columns = ", ".join(f'"{name}" {forms[dtype.base_type()]}' for name, dtype in frame.schema.items())
    with sqlite3.connect(folder / "table.sqlite") as connection:
        connection.execute(f"CREATE TABLE rows ({columns})")
        connection.executemany(f"INSERT INTO rows VALUES ({', '.join('?' * frame.width)})", frame.rows())
    connection.close()
    return ab.sql_table(f"sqlite:///{folder}/table.sqlite", "rows")


TABLES: dict[str, Make] = {"frame": lambda frame, _: ab.frame_table(frame), "parquet": as_parquet, "sqlite": as_sqlite}


def flow_with(table: LookupTable, key: pl.DataType, columns: Any) -> ab.Flow:
    flow = ab.Flow("looking")
    rows = flow.read(ab.memory(schema={"ad": key, "n": pl.Int64}))
    rows.lookup(table, on="ad", columns=columns).write(ab.to_memory())
    return flow


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_a_key_with_several_rows_is_refused_when_the_flow_is_checked(make: Make, tmp_path: Path) -> None:
    rows = pl.DataFrame({"ad": ["a", "b", "b"], "campaign": [1, 2, 3]})
    flow = flow_with(make(rows, tmp_path), pl.String(), {"campaign": pl.Int64})
    with pytest.raises(SourceError, match=r"several rows for {'ad': 'b'}.*unique\(\)"):
        flow.check()


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_rows_without_a_key_are_no_rows_of_one_key(make: Make, tmp_path: Path) -> None:
    rows = pl.DataFrame({"ad": ["a", None, None, "A"], "campaign": [1, 2, 3, 4]})
    table = make(rows, tmp_path)
    flow_with(table, pl.String(), {"campaign": pl.Int64}).check()
    cache = TableCache(table, {"ad": pl.String()}, {"campaign": pl.Int64()}, 100)
    assert cache.join(pl.DataFrame({"ad": ["a", None, "A"]})).get_column("campaign").to_list() == [1, None, 4]


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(("held", "wanted"), [(["1", "02"], pl.Int64()), ([1, 2], pl.String())])
def test_texts_and_numbers_are_never_equal(make: Make, tmp_path: Path, held: list[Any], wanted: pl.DataType) -> None:
    table = make(pl.DataFrame({"ad": held, "campaign": [1, 2]}), tmp_path)
    with pytest.raises(FlowError, match=r"as its key 'ad', the stream has .*cast one of them"):
        flow_with(table, wanted, {"campaign": pl.Int64}).check()
    # A table that a running flow finds changed is no exception.
    cache = TableCache(table, {"ad": wanted}, {"campaign": pl.Int64()}, 100)
    with pytest.raises(AnabranchError, match="as its key 'ad'"):
        cache.join(pl.DataFrame({"ad": ["1"]}).cast(wanted))


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (pl.Series([1.0, 2.5]), pl.Int64()),
        (pl.Series([b"a"]), pl.String()),
        (pl.Series([True]), pl.Int64()),
        (pl.Series([date(2026, 1, 1)]), pl.Datetime("us")),
        (pl.Series([datetime(2026, 1, 1)]), pl.Datetime("us", "UTC")),
        (pl.Series([1]), pl.Boolean()),
    ],
    ids=["float", "bytes", "boolean", "date", "zone", "number"],
)
def test_types_that_cannot_be_equal_are_refused(held: pl.Series, wanted: pl.DataType) -> None:
    table = ab.frame_table(pl.DataFrame({"ad": held, "campaign": range(held.len())}))
    with pytest.raises(FlowError, match="which is another"):
        flow_with(table, wanted, None).check()


@pytest.mark.parametrize(
    ("held", "wanted", "keys"),
    [
        (pl.Series(["a", "b"], dtype=pl.Categorical), pl.String(), ["b", "c"]),
        (pl.Series(["a", "b"]), pl.Enum(["b", "c"]), ["b", "c"]),
        (pl.Series([Decimal("1.00"), Decimal("2.50")]), pl.Int64(), [1, 2]),
        (pl.Series([1, 2]), pl.Decimal(10, 2), [Decimal("2.00"), Decimal("2.01")]),
        (
            pl.Series([datetime(2026, 1, 1, tzinfo=UTC)]).dt.convert_time_zone("Asia/Tokyo"),
            pl.Datetime("ms", "UTC"),
            [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)],
        ),
    ],
    ids=["categories", "enums", "decimals", "numbers", "zones"],
)
def test_keys_are_compared_by_value(held: pl.Series, wanted: pl.DataType, keys: list[Any]) -> None:
    table = ab.frame_table(pl.DataFrame({"ad": held, "campaign": range(held.len())}))
    flow_with(table, wanted, None).check()
    cache = TableCache(table, {"ad": wanted}, {"campaign": pl.Int64()}, 100)
    found = cache.join(pl.DataFrame({"ad": pl.Series(keys, dtype=wanted)}))
    assert found.get_column(FOUND).fill_null(value=False).to_list() == [True, False]


def test_a_time_with_more_digits_than_the_streams_equals_none_of_them() -> None:
    held = pl.Series([1, 1_000], dtype=pl.Datetime("ns"))
    table = ab.frame_table(pl.DataFrame({"ad": held, "campaign": [0, 1]}))
    cache = TableCache(table, {"ad": pl.Datetime("us")}, {"campaign": pl.Int64()}, 100)
    keys = pl.DataFrame({"ad": pl.Series([0, 1], dtype=pl.Datetime("us"))})
    assert cache.join(keys).get_column("campaign").to_list() == [None, 1]


def fitting(dtype: type[pl.DataType], numbers: list[int]) -> pl.Series:
    found = pl.Series(numbers, dtype=pl.Int128).cast(dtype, strict=False).drop_nulls()
    return found.unique(maintain_order=True).rename("ad")


@tries(80)
@given(
    held=st.sampled_from(INTEGERS),
    wanted=st.sampled_from(INTEGERS),
    there=st.lists(NUMBERS, max_size=12),
    asked=st.lists(NUMBERS, max_size=12),
    whole=st.booleans(),
)
def test_integers_of_any_width_are_equal_by_value(
    held: type[pl.DataType], wanted: type[pl.DataType], there: list[int], asked: list[int], whole: bool
) -> None:
    table = ab.frame_table(pl.DataFrame([fitting(held, there)]).with_row_index("campaign"))
    keys = pl.DataFrame([fitting(wanted, asked)])
    schema, columns = {"ad": wanted()}, {"campaign": pl.UInt32()}
    table.check(schema, columns)
    known = {number: place for place, number in enumerate(table.frame.get_column("ad").to_list())}
    expected = [known.get(number) for number in keys.get_column("ad").to_list()]
    if whole:
        found = TableCache(table, schema, columns, 100).join(keys).get_column("campaign").to_list()
    else:
        fetched = dict(table.fetch(keys, columns).rows())
        found = [fetched.get(number) for number in keys.get_column("ad").to_list()]
    assert found == expected

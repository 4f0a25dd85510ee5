"""Packed grouping is grouping, for every type of key and at the ends of the number range."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS
from anabranch.operators.aggregates import text_codes
from anabranch.operators.aggregates.grouping import count_and_add, group_rows
from anabranch.operators.aggregates.text_codes import code_texts
from property_tests import tries
from unit.compiled_loops import (
    check_added,
    check_best,
    check_codes,
    check_counts,
    check_grouped_texts,
    columns_of_texts,
    compiled_from,
    lists_to_cut,
    rows_to_group,
)

TOTAL = [pl.col("x").sum().alias("total"), pl.len().cast(pl.Int64).alias("rows")]


def plain(frame: pl.DataFrame, by: list[str]) -> list[tuple[object, ...]]:
    return frame.group_by(by, maintain_order=True).agg(TOTAL).rows()


@pytest.mark.parametrize(
    "keys",
    [
        pl.Series([-(2**63), 2**63 - 1, -(2**63), 0], dtype=pl.Int64),
        pl.Series([2**63 - 1, 2**63 - 3, 2**63 - 1, 2**63 - 2], dtype=pl.Int64),
        pl.Series([-128, 127, -128, 0], dtype=pl.Int8),
        pl.Series([0, 2**32 - 1, 0, 1], dtype=pl.UInt32),
        pl.Series([0, 2**64 - 1, 0, 1], dtype=pl.UInt64),
        pl.Series([0, 2**100, 0, 1], dtype=pl.Int128),
        pl.Series([True, False, True, False]),
        pl.Series([date(1, 1, 1), date(9999, 12, 31), date(1, 1, 1), date(1970, 1, 1)]),
        pl.Series([datetime(2024, 1, 1), datetime(1960, 1, 1), datetime(2024, 1, 1), datetime(1970, 1, 1)]),
        pl.Series([timedelta(1), timedelta(2), timedelta(1), timedelta(3)]),
        pl.Series([time(1), time(2), time(1), time(3)]),
        pl.Series(["a", "", "a", "ü"]),
        pl.Series([b"a", b"", b"a", b"\xff"]),
        pl.Series(["a", "b", "a", "c"], dtype=pl.Categorical),
        pl.Series(["a", "b", "a", "c"], dtype=pl.Enum(["c", "b", "a"])),
        pl.Series([0.5, -0.5, 0.5, 1e300]),
        pl.Series([Decimal("1.5"), Decimal("2.5"), Decimal("1.5"), Decimal("0.5")]),
    ],
    ids=lambda series: f"{series.dtype} {series[1]}",
)
def test_keys_of_every_type_are_grouped(keys: pl.Series) -> None:
    frame = pl.DataFrame({"w": [10, 10, 10, 20], "key": keys, "x": [1, 2, 4, 8]})
    grouped = group_rows(frame, ["w", "key"], TOTAL, strides={"w": 10})
    assert grouped.schema == {"w": pl.Int64(), "key": keys.dtype, "total": pl.Int64(), "rows": pl.Int64()}
    assert grouped.rows() == plain(frame, ["w", "key"])
    assert grouped["total"].to_list() == [5, 2, 8]


@given(
    rows=st.lists(
        st.tuples(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), st.integers(-128, 127)),
        min_size=1,
        max_size=30,
    )
)
def test_packed_grouping_equals_plain_grouping(rows: list[tuple[int, int, int]]) -> None:
    frame = pl.DataFrame(rows, schema={"w": pl.Int64, "a": pl.Int64, "b": pl.Int8}, orient="row")
    frame = frame.with_columns(pl.col("w") * 7 + 3, pl.int_range(pl.len()).alias("x"))
    assert group_rows(frame, ["w", "a", "b"], TOTAL, strides={"w": 7}).rows() == plain(frame, ["w", "a", "b"])


def test_grouping_no_rows_gives_the_columns() -> None:
    frame = pl.DataFrame(schema={"key": pl.Int64, "x": pl.Int64})
    assert group_rows(frame, ["key"], TOTAL).schema == {"key": pl.Int64(), "total": pl.Int64(), "rows": pl.Int64()}


@pytest.mark.parametrize("key_type", [pl.Int64, pl.Int16, pl.Date])
def test_many_rows_are_counted_and_added_as_few_are(key_type: type[pl.DataType]) -> None:
    rng = np.random.default_rng(3)
    count = WORTH_COMPILED_CODE_ROWS + 5
    frame = pl.DataFrame(
        {
            "pane": 1_700_000_003_000_000 - 7_000_000 * rng.integers(0, 9, count),
            "key": pl.Series(rng.integers(-500, 500, count)).cast(pl.Int32).cast(key_type),
            "x": rng.random(count),
            "latest": rng.integers(-(2**62), 2**62, count),
        }
    )
    by, strides = ["pane", "key"], {"pane": 7_000_000}
    found = count_and_add(frame, by, ["rows"], {"total": "x"}, strides, ["latest"])
    assert found is not None
    expected = frame.group_by(by).agg(
        pl.len().cast(pl.Int64).alias("rows"), pl.col("x").sum().alias("total"), pl.col("latest").max()
    )
    assert found.drop("total").equals(expected.drop("total").sort(by))
    assert np.allclose(found["total"].to_numpy(), expected.sort(by)["total"].to_numpy(), rtol=1e-12)


@tries(50)
@given(given_rows=rows_to_group())
def test_few_rows_are_counted_and_added_as_plain_python_does(given_rows: tuple[pl.DataFrame, int]) -> None:
    check_counts(*given_rows)
    check_added(*given_rows)


@given(column=columns_of_texts())
def test_texts_are_numbered_in_the_order_in_which_they_come(column: pl.Series) -> None:
    check_codes(column)


@given(column=columns_of_texts())
def test_rows_are_grouped_by_their_texts_with_and_without_numbers(column: pl.Series) -> None:
    check_grouped_texts(column)


def test_more_texts_than_the_first_table_holds_are_numbered() -> None:
    texts = pl.Series("text", range(60_000)).cast(pl.String) + "-with-a-longer-end"
    column = texts[np.random.default_rng(7).integers(0, 60_000, 200_000)]
    coded = code_texts(column)
    assert coded is not None
    assert (coded.texts[coded.codes] == column).all()
    assert len(coded.texts) == column.n_unique()
    assert (np.diff(np.unique(coded.codes, return_index=True)[1]) > 0).all(), "by first row"


def test_few_rows_and_rows_that_have_bytes_of_their_own_keep_their_texts() -> None:
    assert code_texts(pl.Series(["a", "b", "a"])) is None
    column = pl.Series(["a text of more than twelve bytes"] * WORTH_COMPILED_CODE_ROWS)
    assert code_texts(column) is None
    assert code_texts(column.head(1)[np.zeros(len(column), np.int64)]) is not None


def test_two_texts_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_codes, "_hashes_of", lambda column: np.zeros(len(column), np.uint64))
    column = pl.Series("text", ["a long text, and", "another long text"])[[0, 1] * 20]
    with compiled_from(1):
        assert code_texts(column) is None
    check_grouped_texts(column)


@given(lists=lists_to_cut(), k=st.integers(1, 4), descending=st.booleans())
def test_the_best_rows_are_found_with_and_without_sorting_all(lists: pl.Series, k: int, descending: bool) -> None:
    check_best(lists, k, descending)

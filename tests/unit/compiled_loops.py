"""Compiled loops and their plain twins, on inputs that chance makes as ugly as they come.

Each check runs a public function with its loop compiled, however few rows there are, and without, in plain NumPy,
Polars or Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date, timedelta
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.compiled.hash_order import find_wanted, merge_hashes, order_by_hash, order_by_number, take_in_order
from anabranch.operators.aggregates.grouping import add_up, count_and_add, group_rows
from anabranch.operators.aggregates.text_codes import code_texts
from anabranch.operators.keyed.top_k import Best
from anabranch.routing import hash_keys

_WITH_LOOPS = (
    "anabranch.compiled.hash_order",
    "anabranch.operators.windows.open_windows",
    "anabranch.operators.aggregates.distinct_sketches",
    "anabranch.operators.aggregates.grouping",
    "anabranch.operators.aggregates.text_codes",
    "anabranch.operators.keyed.top_k",
    "anabranch.routing.hashing",
)
LARGEST_HASH = 2**64 - 1
SMALLEST_INT64, LARGEST_INT64 = -(2**63), 2**63 - 1


@contextmanager
def compiled_from(rows: int) -> Iterator[None]:
    """Use compiled loops from so many rows on."""
    with ExitStack() as stack:
        for module in _WITH_LOOPS:
            stack.enter_context(patch(f"{module}.WORTH_COMPILED_CODE_ROWS", rows))
        yield


# -- hashes -----------------------------------------------------------------------------------------------------------


@st.composite
def hashes(draw: st.DrawFn, most: int = 200) -> NDArray[np.uint64]:
    """Return hashes as they are not: few different ones, close together, at the ends, all but one alike."""
    alike = draw(st.integers(0, LARGEST_HASH))
    value = draw(
        st.sampled_from(
            [
                st.integers(0, LARGEST_HASH),
                st.integers(0, 3),
                st.integers(max(0, alike - 5), min(LARGEST_HASH, alike + 5)),
                st.sampled_from([0, 1, 2**63 - 1, 2**63, LARGEST_HASH - 1, LARGEST_HASH]),
                st.just(alike) | st.integers(0, LARGEST_HASH),
            ]
        )
    )
    found = np.array(draw(st.lists(value, max_size=most)), np.uint64)
    match draw(st.sampled_from(["as they are", "rising", "falling"])):
        case "rising":
            found = np.sort(found)
        case "falling":
            found = np.sort(found)[::-1]
    # A view with gaps, as a column of a matrix is.
    return np.repeat(found, 2)[::2] if draw(st.booleans()) else found


def check_orders(given: NDArray[np.uint64], values: NDArray[Any]) -> None:
    """Fail unless hashes are put in their stable order, and others with them."""
    with compiled_from(1):
        order, ordered = order_by_hash(given)
        taken = take_in_order(values[: len(given)], order)
    expected = np.argsort(given, kind="stable")
    assert np.array_equal(order, expected)
    assert np.array_equal(ordered, given[expected])
    assert taken.dtype == values.dtype
    assert taken.tobytes() == values[: len(given)][expected].tobytes()


def check_searches(given: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> None:
    """Fail unless sorted hashes are found and merged as sets are."""
    given, wanted = np.sort(given), np.unique(wanted)
    with compiled_from(1):
        positions, found = find_wanted(given, wanted)
        merged = merge_hashes(given, np.sort(wanted))
    assert np.array_equal(positions, np.flatnonzero(np.isin(given, wanted)))
    assert np.array_equal(found, np.isin(wanted, given))
    assert np.array_equal(merged, np.union1d(given, wanted))


def check_numbers(numbers: Sequence[int], count: int) -> None:
    """Fail unless small numbers are put together in their old order."""
    given = np.array(numbers, np.int32)
    with compiled_from(1):
        order, edges = order_by_number(given, count)
    assert np.array_equal(order, np.argsort(given, kind="stable"))
    assert edges.tolist() == [0, *np.cumsum(np.bincount(given, minlength=count)).tolist()]


# -- hashing of whole numbers -----------------------------------------------------------------------------------------

WHOLE_TYPES: dict[pl.DataType, tuple[int, int]] = {
    pl.Int8(): (-128, 127),
    pl.Int16(): (-(2**15), 2**15 - 1),
    pl.Int32(): (-(2**31), 2**31 - 1),
    pl.Int64(): (SMALLEST_INT64, LARGEST_INT64),
    pl.UInt8(): (0, 255),
    pl.UInt16(): (0, 2**16 - 1),
    pl.UInt32(): (0, 2**32 - 1),
    pl.UInt64(): (0, LARGEST_HASH),
}


@st.composite
def whole_numbers(draw: st.DrawFn, most: int = 100) -> pl.Series:
    """Return a column of whole numbers of some width: the ends, powers of ten and their neighbours, nulls."""
    dtype, (lowest, highest) = draw(st.sampled_from(list(WHOLE_TYPES.items())))
    powers = [sign * 10**exponent + step for exponent in range(20) for sign in (1, -1) for step in (-1, 0, 1)]
    edges = [number for number in (*powers, lowest, highest) if lowest <= number <= highest]
    value = st.sampled_from(edges) | st.integers(lowest, highest)
    if draw(st.booleans()):
        value |= st.none()
    return pl.Series("key", draw(st.lists(value, max_size=most)), dtype=dtype)


def check_hashing(numbers: pl.Series) -> None:
    """Fail unless numbers hash as their texts do."""
    with compiled_from(1):
        found = hash_keys(numbers.to_frame(), ["key"])
    texts = numbers.cast(pl.String).to_frame()
    assert found.dtype == pl.UInt64
    assert found.to_list() == hash_keys(texts, ["key"]).to_list()


# -- grouping ---------------------------------------------------------------------------------------------------------

_KEY_VALUES: dict[pl.DataType, st.SearchStrategy[Any]] = {
    pl.Int8(): st.integers(-128, -124) | st.just(127),
    pl.Int16(): st.integers(-3, 3),
    pl.Int64(): st.integers(LARGEST_INT64 - 3, LARGEST_INT64),
    pl.Int32(): st.integers(-(2**31), -(2**31) + 4),
    pl.UInt8(): st.integers(250, 255),
    pl.UInt32(): st.integers(2**32 - 4, 2**32 - 1),
    pl.Date(): st.integers(-3, 3).map(lambda days: date(1970, 1, 1) + timedelta(days=days)),
    pl.Boolean(): st.booleans(),
}
_STRIDES = (1, 7, 10_000_000, 86_400_000_000, 3_600_000_001)


@st.composite
def rows_to_group(draw: st.DrawFn, most: int = 60) -> tuple[pl.DataFrame, int]:
    """Return rows with panes that are strides apart, keys close together, and numbers of every kind."""
    dtype, keys = draw(st.sampled_from(list(_KEY_VALUES.items())))
    stride = draw(st.sampled_from(_STRIDES))
    base = draw(st.sampled_from([0, -stride * 5 + 3, 1_700_000_000_000_000, SMALLEST_INT64 + 10 * stride]))
    count = draw(st.integers(1, most))

    def several(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    edges = st.sampled_from([SMALLEST_INT64, LARGEST_INT64, 0, -1])
    reals = st.floats(width=32) | st.sampled_from([float("inf"), float("-inf"), float("nan"), -0.0, 5e-324])
    frame = pl.DataFrame(
        {
            "pane": pl.Series([base + stride * step for step in several(st.integers(-4, 4))], dtype=pl.Int64),
            "key": pl.Series(several(keys), dtype=dtype),
            "x": pl.Series(several(reals), dtype=pl.Float64),
            "whole": pl.Series(several(st.integers(-(2**50), 2**50)), dtype=pl.Int64),
            "latest": pl.Series(several(edges | st.integers(-5, 5)), dtype=pl.Int64),
            "flag": several(st.booleans()),
        }
    )
    return frame, stride


def check_counts(frame: pl.DataFrame, stride: int) -> None:
    """Fail unless rows are counted, added up and compared as Python does, in the order in which they came."""
    expected: dict[tuple[Any, Any], list[Any]] = {}
    for pane, key, x, _, latest, _ in frame.rows():
        group = expected.setdefault((pane, key), [0, 0.0, SMALLEST_INT64])
        group[0] += 1
        group[1] += x
        group[2] = max(group[2], latest)
    by, strides = ["pane", "key"], {"pane": stride}
    found = {}
    for worth in (1, 10**9):
        with compiled_from(worth):
            found[worth] = count_and_add(frame, by, ["rows"], {"total": "x"}, strides, ["latest"])
    assert (found[1] is None) == (found[10**9] is None)
    for counted in found.values():
        if counted is not None:
            rows = {(pane, key): [*rest] for pane, key, *rest in counted.select(*by, "rows", "total", "latest").rows()}
            assert repr(sorted(rows.items())) == repr(sorted(expected.items()))


def check_added(frame: pl.DataFrame, stride: int) -> None:
    """Fail unless merged rows are added up as Python does, other columns and flags as is said."""
    given = frame.with_columns(pl.col("pane").cast(pl.String).alias("text"), pl.col("x").is_nan().alias("odd"))
    expected: dict[tuple[Any, Any], list[Any]] = {}
    for pane, key, x, whole, _, flag, text, odd in given.rows():
        group = expected.setdefault((pane, key), [0.0, 0, False, text, odd])
        group[0] += x
        group[1] += whole
        group[2] |= flag
    added = add_up(given.drop("latest"), ["pane", "key"], ["x", "whole"], ["flag"], {"pane": stride})
    if added is None:
        return
    rows = added.select("pane", "key", "x", "whole", "flag", "text", "odd").rows()
    assert len(rows) == len(expected)
    # A row by itself stays as it is, which tells -0.0 from the 0.0 that it adds up to.
    plain = {(pane, key): [x + 0.0, *rest] for pane, key, x, *rest in rows}
    assert repr(sorted(plain.items())) == repr(sorted(expected.items()))


# -- texts as numbers -------------------------------------------------------------------------------------------------


@st.composite
def columns_of_texts(draw: st.DrawFn, most: int = 80) -> pl.Series:
    """Return texts in pieces, some of them slices, some with equal texts kept once, some with each for itself."""
    alphabet = st.sampled_from(
        ["", "a", "ab", "ü", "twelve bytes", "thirteen byte", "用户" * 5, "x" * 40, "x" * 39 + "y"]
    )
    texts = draw(st.lists(alphabet | st.text(max_size=20), min_size=1, max_size=8))
    pieces = [pl.Series("text", [], pl.String)] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 4))):
        places = draw(st.lists(st.integers(0, len(texts) - 1), max_size=most // 4))
        kept_once = pl.Series("text", texts, pl.String)[places]
        piece = kept_once if draw(st.booleans()) else pl.Series("text", kept_once.to_list(), pl.String)
        pieces.append(piece[draw(st.integers(0, 3)) :])
    return pl.concat(pieces, rechunk=draw(st.booleans()))


def check_codes(column: pl.Series) -> None:
    """Fail unless texts are numbered in the order in which they first come, or not at all where they do not repeat."""
    expected = list(dict.fromkeys(column.to_list()))
    with compiled_from(0):
        coded = code_texts(column)
    if coded is None:
        # Pieces are looked at one by one, and a long text may have bytes of its own in each row.
        pieces = [piece.to_list() for piece in column.get_chunks()]
        assert any(len(text.encode()) > 12 for text in expected) or any(
            len(set(piece)) > 0.7 * len(piece) for piece in pieces
        )
        return
    assert coded.texts.to_list() == expected
    assert coded.codes.tolist() == [expected.index(text) for text in column]


def check_grouped_texts(column: pl.Series) -> None:
    """Fail unless rows are grouped by their texts, in the order in which groups first come, compiled or not."""
    numbers = pl.Series("x", range(len(column)), pl.Int64)
    frame = pl.DataFrame([(numbers % 3).alias("w"), column, numbers])
    for by in (["text"], ["w", "text"], ["text", "w"]):
        found = []
        for worth in (0, 10**9):
            with compiled_from(worth):
                found.append(group_rows(frame, by, [pl.col("x").sum(), pl.len().alias("rows")]))
        assert found[0].schema == found[1].schema
        assert found[0].rows() == found[1].rows()


# -- best rows --------------------------------------------------------------------------------------------------------

_COMPARED: dict[pl.DataType, st.SearchStrategy[Any]] = {
    pl.Int64(): st.integers(-2, 2) | st.sampled_from([SMALLEST_INT64, LARGEST_INT64]),
    pl.UInt8(): st.integers(0, 255),
    pl.Float64(): st.floats() | st.sampled_from([0.0, -0.0]),
    pl.String(): st.text(max_size=2),
}


@st.composite
def lists_to_cut(draw: st.DrawFn) -> pl.Series:
    """Return lists of rows, with values that tie, of the form in which the best of a key are kept."""
    dtype, values = draw(st.sampled_from(list(_COMPARED.items())))
    lists = draw(st.lists(st.lists(values, max_size=12), min_size=1, max_size=8))
    rows = [[{"by": by, "time": 0, "batch": 0, "order": order} for order, by in enumerate(some)] for some in lists]
    fields = {"by": dtype, "time": pl.Int64(), "batch": pl.Int64(), "order": pl.Int64()}
    return pl.Series(rows, dtype=pl.List(pl.Struct(fields)))


def check_best(lists: pl.Series, k: int, descending: bool) -> None:
    """Fail unless the same rows are kept with compiled code and without it."""
    best = Best("by", k, descending, ())
    found = []
    for worth in (0, 10**9):
        with compiled_from(worth):
            found.append(best._cut_groups(lists))
    assert repr(found[0].to_list()) == repr(found[1].to_list())
    assert [len(rows) for rows in found[0]] == [min(k, len(rows)) for rows in lists]

"""Row for row: whole numbers, texts and times exactly, floats within 1e-9."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

Row = Mapping[str, Any]


def rows_of(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows as plain dicts."""
    return frame.to_dicts()


def assert_same_rows(got: Iterable[Row], expected: Iterable[Row], where: str = "") -> None:
    """Fail unless both have the same rows, in any order, each as often."""
    mine, theirs = _ordered(got), _ordered(expected)
    difference = _first_difference(mine, theirs)
    assert difference is None, f"{where}: {difference}" if where else difference


def assert_same_batches(
    got: Sequence[tuple[int, pl.DataFrame]], expected: Mapping[int, Sequence[Row]], where: str = ""
) -> None:
    """Fail unless the same batches have output, and the same rows each."""
    assert [batch for batch, _ in got] == sorted(expected), where or "other batches have output"
    for batch, frame in got:
        assert_same_rows(rows_of(frame), expected[batch], f"{where} batch {batch}".strip())


def _ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (_exact_part(row), _float_part(row)))


def _exact_part(row: Row) -> str:
    return repr([(name, value) for name, value in sorted(row.items()) if not isinstance(value, float)])


def _float_part(row: Row) -> str:
    # Only to put rows side by side that differ in nothing else; whether they are equal is decided by ``_equal``.
    return repr([f"{value:.6e}" for _, value in sorted(row.items()) if isinstance(value, float)])


def _first_difference(mine: list[Row], theirs: list[Row]) -> str | None:
    for left, right in zip(mine, theirs, strict=False):
        if not _equal(left, right):
            counts = f"{len(mine)} and {len(theirs)} rows"
            return f"the first rows that differ: got {dict(left)}, expected {dict(right)} ({counts})"
    if len(mine) != len(theirs):
        longer = mine if len(mine) > len(theirs) else theirs
        surplus = dict(longer[min(len(mine), len(theirs))])
        return f"got {len(mine)} rows, expected {len(theirs)}; the first without a partner: {surplus}"
    return None


def _equal(left: Row, right: Row) -> bool:
    if set(left) != set(right):
        return False
    return all(_same_value(left[name], right[name]) for name in left)


def _same_value(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and bool(left == right)

"""Aggregates over all rows of a group at once."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oracle.rows import Placed

Reduce = Callable[[Sequence[Any]], Any]

_OF_VALUES: dict[str, Reduce] = {
    "count": len,
    "sum": lambda values: sum(values) if values else None,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
    "mean": lambda values: float(sum(values)) / len(values) if values else None,
    "variance": lambda values: statistics.variance(map(float, values)) if len(values) > 1 else None,
    "stddev": lambda values: statistics.stdev(map(float, values)) if len(values) > 1 else None,
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
}

KINDS = tuple(_OF_VALUES)


def compute(group: Sequence[Placed], wanted: Mapping[str, tuple[str, str | None]]) -> dict[str, Any]:
    """Return result name → value for result name → (kind, column); ``("count", None)`` counts every row."""
    ordered = sorted(group, key=lambda placed: placed.place)
    results: dict[str, Any] = {}
    for name, (kind, column) in wanted.items():
        if column is None:
            results[name] = len(ordered)
            continue
        values = [placed.row[column] for placed in ordered if placed.row[column] is not None]
        results[name] = _OF_VALUES[kind](values)
    return results


def best_rows(
    group: Sequence[Placed], k: int, by: str, columns: Sequence[str], descending: bool = True
) -> list[dict[str, Any]]:
    """Return the k rows with the largest (or smallest) value, with their rank; rows without a value don't compete."""
    competing = sorted((placed for placed in group if placed.row[by] is not None), key=lambda placed: placed.place)
    # Python's sort is stable, reversed too: rows of equal value stay in the order of their places.
    competing.sort(key=lambda placed: placed.row[by], reverse=descending)
    return [
        {"rank": rank, by: placed.row[by], **{column: placed.row[column] for column in columns}}
        for rank, placed in enumerate(competing[:k], start=1)
    ]

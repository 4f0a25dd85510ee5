"""Aggregates by name, for flows that are files."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from anabranch.errors import FlowError
from anabranch.model import Aggregate
from anabranch.operators.aggregates import functions as aggregates
from anabranch.operators.aggregates import sketches

registry: dict[str, Callable[..., Aggregate]] = {
    "approx_distinct": sketches.approx_distinct,
    "count": aggregates.count,
    "first": aggregates.first,
    "last": aggregates.last,
    "max": aggregates.max,
    "mean": aggregates.mean,
    "median": sketches.median,
    "min": aggregates.min,
    "quantile": sketches.quantile,
    "quantiles": sketches.quantiles,
    "stddev": aggregates.stddev,
    "sum": aggregates.sum,
    "variance": aggregates.variance,
}
"""Name → the function that makes the aggregate; add your own before a flow file is read."""

_OTHER_NAMES = {
    "avg": "mean",
    "average": "mean",
    "std": "stddev",
    "var": "variance",
    "percentile": "quantile",
    "nunique": "approx_distinct",
    "n_unique": "approx_distinct",
    "count_distinct": "approx_distinct",
    "len": "count",
    "size": "count",
}


def make_aggregate(name: str, *arguments: Any, **options: Any) -> Aggregate:
    """Return an aggregate by its name, as in ``make_aggregate("quantile", "ms", 0.99)``."""
    factory = registry.get(name)
    if factory is None:
        close = _OTHER_NAMES.get(name) or next(iter(get_close_matches(name, registry, n=1)), None)
        hint = f"; did you mean {close!r}?" if close else ""
        msg = f"unknown aggregate {name!r}; there are {', '.join(sorted(registry))}{hint}"
        raise FlowError(msg)
    try:
        return factory(*arguments, **options)
    except TypeError as error:
        msg = f"aggregate {name!r}: {error}"
        raise FlowError(msg) from error

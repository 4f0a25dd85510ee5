"""Approximate aggregates, from Apache DataSketches: distinct values and quantiles.

Partial results are the sketches' bytes. Equal rows in equal order give equal bytes, in every process: that is why
quantiles come from t-digests and not from KLL sketches, whose compaction is random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl
from datasketches import hll_sketch, hll_union, tdigest_double

from anabranch.errors import FlowError
from anabranch.model import Column
from anabranch.operators.aggregates.distinct_sketches import HLL_TYPE, sketch_groups
from anabranch.operators.aggregates.functions import Argument, as_expression

_DIGEST_K = 200


@dataclass(frozen=True, slots=True, eq=False)
class ApproxDistinct:
    """The number of different values, by a HyperLogLog sketch; exact in practice up to a few hundred.

    The relative error is about 1 / sqrt(2 ** lg_k): 1.6 % with 12, in at most 2 KB a group.
    """

    argument: pl.Expr
    lg_k: int
    accepts: Literal["flat"] = "flat"

    @property
    def kind(self) -> str:
        return f"approx_distinct(lg_k={self.lg_k})"

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {"value": self.argument}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"sketch": _per_group(col("value").drop_nulls(), self._sketch_groups, pl.Binary())}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"sketch": _per_group(col("sketch").drop_nulls(), self._merge_groups, pl.Binary())}

    def finish(self, col: Column) -> pl.Expr:
        return col("sketch").map_batches(self._estimate, return_dtype=pl.Int64(), is_elementwise=True)

    def _sketch_groups(self, groups: pl.Series) -> pl.Series:
        countable = _countable(groups)
        sketches = sketch_groups(countable, self.lg_k)
        if sketches is not None:
            return sketches
        return pl.Series([self._sketch(values) for values in _groups_as_lists(countable)], dtype=pl.Binary)

    def _sketch(self, values: Sequence[Any]) -> bytes | None:
        if not values:
            return None
        sketch = hll_sketch(self.lg_k, HLL_TYPE)
        for value in values:
            sketch.update(value)
        return bytes(sketch.serialize_compact())

    def _merge_groups(self, groups: pl.Series) -> pl.Series:
        return pl.Series([self._merge(sketches) for sketches in _groups_as_lists(groups)], dtype=pl.Binary)

    def _merge(self, sketches: Sequence[bytes]) -> bytes | None:
        if len(sketches) < 2:
            return sketches[0] if sketches else None
        union = hll_union(self.lg_k)
        for sketch in sketches:
            union.update(hll_sketch.deserialize(sketch))
        return bytes(union.get_result(HLL_TYPE).serialize_compact())

    def _estimate(self, sketches: pl.Series) -> pl.Series:
        return pl.Series([0 if b is None else self._estimate_one(b) for b in sketches], dtype=pl.Int64)

    def _estimate_one(self, sketch_bytes: bytes) -> int:
        # A sketch that saw all rows itself knows a little more than a merged one. Merged with itself it forgets that,
        # and the answer no longer depends on how rows were cut.
        sketch = hll_sketch.deserialize(sketch_bytes)
        union = hll_union(self.lg_k)
        union.update(sketch)
        union.update(sketch)
        estimate: float = union.get_estimate()
        return round(estimate)


@dataclass(frozen=True, slots=True, eq=False)
class Quantiles:
    """Quantiles by a t-digest: the closer to 0 or 1, the more exact. NaN is ignored, like null."""

    argument: pl.Expr
    fractions: tuple[float, ...]
    as_list: bool
    accepts: Literal["numbers"] = "numbers"

    @property
    def kind(self) -> str:
        fractions = ", ".join(f"{fraction:g}" for fraction in self.fractions)
        return f"{'quantiles' if self.as_list else 'quantile'}({fractions})"

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {"value": self.argument}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"digest": _per_group(col("value").cast(pl.Float64).drop_nulls(), _digest_groups, pl.Binary())}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"digest": _per_group(col("digest").drop_nulls(), _merge_digest_groups, pl.Binary())}

    def finish(self, col: Column) -> pl.Expr:
        dtype = pl.List(pl.Float64) if self.as_list else pl.Float64()
        return col("digest").map_batches(self._read, return_dtype=dtype, is_elementwise=True)

    def _read(self, digests: pl.Series) -> pl.Series:
        answers = [None if b is None else self._read_one(b) for b in digests]
        if self.as_list:
            return pl.Series(answers, dtype=pl.List(pl.Float64))
        return pl.Series([None if a is None else a[0] for a in answers], dtype=pl.Float64)

    def _read_one(self, digest_bytes: bytes) -> list[float] | None:
        digest = tdigest_double.deserialize(digest_bytes)
        return None if digest.is_empty() else [digest.get_quantile(fraction) for fraction in self.fractions]


def approx_distinct(argument: Argument, lg_k: int = 12) -> ApproxDistinct:
    """Estimate the number of different values; one more ``lg_k`` doubles the memory and takes 30 % off the error.

    Examples:
        >>> collect(readings.with_columns(all=pl.lit(1)).key_by("all").agg(sensors=ab.approx_distinct("sensor")))
        [(1, 2)]
    """
    if not 7 <= lg_k <= 21:
        msg = f"approx_distinct: lg_k must be from 7 to 21, got {lg_k}; 12 gives an error of 1.6 %"
        raise FlowError(msg)
    return ApproxDistinct(as_expression(argument), lg_k)


def quantile(argument: Argument, fraction: float) -> Quantiles:
    """Estimate one quantile: ``quantile("ms", 0.99)``.

    Examples:
        >>> collect(readings.key_by("sensor").agg(p99=ab.quantile("volts", 0.99)))
        [(1, 231.0), (2, 229.5)]
    """
    return Quantiles(as_expression(argument), _checked((fraction,)), as_list=False)


def quantiles(argument: Argument, *fractions: float) -> Quantiles:
    """Estimate several quantiles from one digest, as a list: ``quantiles("ms", 0.5, 0.9, 0.99)``.

    Examples:
        >>> collect(readings.key_by("sensor").agg(volts=ab.quantiles("volts", 0, 0.5, 1)))
        [(1, [206.25, 230.0, 231.0]), (2, [229.5, 229.5, 229.5])]
    """
    return Quantiles(as_expression(argument), _checked(fractions), as_list=True)


def median(argument: Argument) -> Quantiles:
    """Estimate the median.

    Examples:
        >>> collect(readings.key_by("sensor").agg(median=ab.median("volts")))
        [(1, 230.0), (2, 229.5)]
    """
    return quantile(argument, 0.5)


def _checked(fractions: tuple[float, ...]) -> tuple[float, ...]:
    if not fractions or not all(0.0 <= fraction <= 1.0 for fraction in fractions):
        msg = f"a quantile's fraction must be from 0 to 1, got {list(fractions)}; write 0.99 for the 99th percentile"
        raise FlowError(msg)
    return tuple(float(fraction) for fraction in fractions)


def _per_group(values: pl.Expr, function: Callable[[pl.Series], pl.Series], dtype: pl.DataType) -> pl.Expr:
    # Gathered to one list a group, the function is called once, with the lists of all groups.
    return values.implode().map_batches(function, return_dtype=dtype, is_elementwise=True)


def _countable(groups: pl.Series) -> pl.Series:
    """Return lists of what a sketch can hash: numbers or text."""
    inner = groups.dtype.inner  # type: ignore[attr-defined]
    if inner.is_integer() or inner.is_float() or inner == pl.String:
        return groups
    if inner.is_temporal() or inner == pl.Boolean:
        return groups.cast(pl.List(pl.Int64))
    if inner == pl.Binary:
        return groups.list.eval(pl.element().bin.encode("hex"))
    return groups.cast(pl.List(pl.String))


def _groups_as_lists(groups: pl.Series) -> Iterator[list[Any]]:
    """Yield the values of each group; one conversion for all is faster than one a group."""
    values = groups.explode(empty_as_null=False, keep_nulls=False).to_list()
    start = 0
    for length in groups.list.len():
        yield values[start : start + length]
        start += length


def _digest_groups(groups: pl.Series) -> pl.Series:
    # The digest takes no read-only arrays.
    values = groups.explode(empty_as_null=False, keep_nulls=False).to_numpy(writable=True)
    digests: list[bytes | None] = []
    start = 0
    for length in groups.list.len():
        digest = tdigest_double(_DIGEST_K)
        digest.update(values[start : start + length])
        digests.append(_serialized(digest))
        start += length
    return pl.Series(digests, dtype=pl.Binary)


def _merge_digest_groups(groups: pl.Series) -> pl.Series:
    digests: list[bytes | None] = []
    for parts in _groups_as_lists(groups):
        if len(parts) < 2:
            digests.append(parts[0] if parts else None)
            continue
        digest = tdigest_double(_DIGEST_K)
        for part in parts:
            digest.merge(tdigest_double.deserialize(part))
        digests.append(_serialized(digest))
    return pl.Series(digests, dtype=pl.Binary)


def _serialized(digest: tdigest_double) -> bytes | None:
    if digest.is_empty():
        return None
    digest.compress()
    return bytes(digest.serialize())

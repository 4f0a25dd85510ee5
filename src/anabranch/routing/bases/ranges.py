"""Ranges over key values: the base route under which neighbours stay together."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import RouteError
from anabranch.routing.bases.base_routes import SlotRanges, base_route
from anabranch.routing.keys import KeyBatch, KeySample

Kind = Literal["integer", "number", "text"]

_INT64_MAX = 2**63 - 1
_LAST: dict[Kind, int | float | str] = {"integer": _INT64_MAX, "number": sys.float_info.max, "text": "\U0010ffff"}
"""Where the range of a slot begins that comes to a route of one range only: hardly any key is there."""


@base_route("ranges")
@dataclass(frozen=True, slots=True)
class RangeRoute:
    """Slot i owns the keys from ``bounds[i - 1]`` up to, without, ``bounds[i]``; the outer slots own the rest.

    Times are compared as microseconds, dates as days, decimals as floats, bytes as hexadecimal text, and integers
    beyond 64 signed bits as the largest of those. Equal bounds leave the slot between them empty.
    """

    kind: Kind
    bounds: tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
    needs_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if list(self.bounds) != sorted(self.bounds):
            msg = f"range bounds {list(self.bounds)} are not sorted; give them in rising order"
            raise RouteError(msg)

    @classmethod
    def from_sample(cls, sample: KeySample, slots: int) -> Self:
        """Cut the key space so that every range holds about the same number of the sample's rows.

        A key is never cut, so a key hotter than a slot's share leaves neighbours with less.
        """
        if sample.values is None or not len(sample):
            msg = (
                "ranges are cut at the quantiles of a sample of key values, and this one has none; "
                "key by one column and sample some rows, or choose a strategy that goes by the hash, such as 'hash'"
            )
            raise RouteError(msg)
        kind, ordered = order_values(sample.values)
        order = ordered.arg_sort()
        rows_before = np.cumsum(sample.counts[order.to_numpy()]) - sample.counts[order.to_numpy()]
        powers = sample.slot_powers(slots)
        targets = sample.counts.sum() * np.cumsum(powers)[:-1] / powers.sum()
        # A range begins at the key whose middle row is nearest behind the target.
        middles = rows_before + sample.counts[order.to_numpy()] / 2
        positions = np.minimum(np.searchsorted(middles, targets), len(sample) - 1)
        return cls(kind, tuple(ordered.gather(order.gather(positions)).to_list()))

    @property
    def slots(self) -> int:
        return len(self.bounds) + 1

    def slots_of(self, keys: KeyBatch) -> NDArray[np.int32]:
        return self._slots_of_values(keys.require_values("ranges"))

    def slots_between(self, lows: pl.Series | None, highs: pl.Series | None) -> SlotRanges | None:
        """Return by row the slots whose ranges meet [low, high]; a missing side is open.

        An interval whose low end is above its high end meets none: its first slot is above its last.
        """
        side = lows if lows is not None else highs
        if side is None:
            return None
        first = np.zeros(len(side), np.int32) if lows is None else self._slots_of_values(lows)
        last = np.full(len(side), self.slots - 1, np.int32) if highs is None else self._slots_of_values(highs)
        return first, last

    def resized(self, slots: int) -> RangeRoute:
        """A new slot owns an empty range at the upper end until new bounds are cut; a slot that goes leaves its range
        to the one below.
        """
        if slots < 1:
            msg = f"a route over {slots} slots leads nowhere; give at least 1"
            raise RouteError(msg)
        kept = self.bounds[: slots - 1]
        last = self.bounds[-1] if self.bounds else _LAST[self.kind]
        return RangeRoute(self.kind, (*kept, *[last] * (slots - 1 - len(kept))))

    def to_json(self) -> dict[str, Any]:
        return {"values": self.kind, "bounds": list(self.bounds)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["values"], tuple(data["bounds"]))

    def _slots_of_values(self, values: pl.Series) -> NDArray[np.int32]:
        kind, ordered = order_values(values)
        if kind != self.kind:
            msg = f"the ranges were cut over {self.kind} keys, found {kind} ({values.dtype}); cut them anew"
            raise RouteError(msg)
        if kind == "text":
            bounds = pl.Series(self.bounds, dtype=pl.String)
            return bounds.search_sorted(ordered, side="right").to_numpy().astype(np.int32)
        bounds_array = np.array(self.bounds, np.int64 if kind == "integer" else np.float64)
        return np.searchsorted(bounds_array, ordered.to_numpy(), side="right").astype(np.int32)


def order_values(values: pl.Series) -> tuple[Kind, pl.Series]:
    """Return the values as Int64, Float64 or String, in which they keep their order; missing ones are the least."""
    dtype = values.dtype
    if isinstance(dtype, pl.Datetime):
        return "integer", values.dt.timestamp("us").fill_null(-_INT64_MAX)
    if isinstance(dtype, pl.Duration):
        return "integer", values.dt.total_microseconds().fill_null(-_INT64_MAX)
    if dtype.is_integer() or dtype in (pl.Boolean, pl.Date, pl.Time):
        if dtype in (pl.UInt64, pl.UInt128):
            values = values.clip(upper_bound=_INT64_MAX)
        if dtype == pl.Int128:
            values = values.clip(-_INT64_MAX, _INT64_MAX)
        return "integer", values.cast(pl.Int64).fill_null(-_INT64_MAX)
    if dtype.is_numeric():
        return "number", values.cast(pl.Float64).fill_nan(float("inf")).fill_null(float("-inf"))
    if dtype == pl.Binary:
        return "text", values.bin.encode("hex").fill_null("")
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return "text", values.cast(pl.String).fill_null("")
    msg = (
        f"keys of type {dtype} have no order to cut ranges in; choose a strategy that goes by the hash, such as 'hash'"
    )
    raise RouteError(msg)

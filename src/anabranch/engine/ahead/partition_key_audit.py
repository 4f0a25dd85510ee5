"""A topic's promise that no key is in two partitions at once: looked after by a sample of keys that all slots agree on.

A key is in the sample if a hash of it is small enough, whoever looks: so two slots that have it both say so. As long as
there are no more than some thousands of keys (and windows that are open), all of them are in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import HASH, WINDOW, WindowSpec
from anabranch.model.frame_texts import frame_from_text, frame_to_text, key_as_text
from anabranch.routing.hashing import mix

MOST_PAIRS = 4_096
"""Pairs of a key and a window that a slot tells of in a batch, and that the driver remembers."""
EVERY_KEY = 2**64 - 1
_SEED = 907
_MARK, _PLACE, _SLOT = "__mark", "__place", "__slot"


@dataclass(frozen=True, slots=True)
class Breach:
    """A key that was found in two partitions at once."""

    key: str
    window_us: int | None
    """Where its window starts; None where a key must stay for good."""
    slots: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class KeysReport:
    """What the task of one partition saw of an operator's keys: all of them whose mark is at most ``below``."""

    below: int
    pairs: pl.DataFrame
    """Mark of the key, where in time it was, and the key as people read it."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"below": f"{self.below:016x}", "pairs": frame_to_text(self.pairs)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KeysReport:
        """Read what ``to_json`` wrote."""
        return cls(int(data["below"], 16), frame_from_text(data["pairs"]))


class PartitionKeySampler:
    """What the task of one partition sees of an operator's keys."""

    def __init__(self, keys: Sequence[str], window: WindowSpec | None, below: int) -> None:
        """``below``: keys are looked at whose mark is at most this."""
        self._keys = list(keys)
        self._window = window
        self._below = below
        self._seen: list[pl.DataFrame] = []

    def see(self, rows: pl.DataFrame) -> None:
        """Look at rows with HASH and, where there are windows, WINDOW."""
        marks = mix(rows.get_column(HASH).to_numpy(), _SEED)
        marked = rows.select(
            pl.Series(_MARK, marks, dtype=pl.UInt64),
            places_of(rows, self._window).alias(_PLACE),
            *(pl.col(key) for key in self._keys),
        )
        if self._below < EVERY_KEY:
            marked = marked.filter(pl.col(_MARK) <= self._below)
        self._seen.append(marked.unique([_MARK, _PLACE], keep="first", maintain_order=True))

    def report(self) -> KeysReport | None:
        """Return a sample, with its limit, the same for equal rows; None if no row came."""
        if not self._seen:
            return None
        seen = pl.concat(self._seen).unique([_MARK, _PLACE], keep="first", maintain_order=True).sort(_MARK, _PLACE)
        seen, below = _thin_out(seen, self._below)
        shown = pl.concat_str([key_as_text(key, seen.schema[key]) for key in self._keys], separator=", ").alias("key")
        return KeysReport(below, seen.select(_MARK, _PLACE, shown))


@dataclass(frozen=True, slots=True, eq=False)
class AuditedKeys:
    """The pairs of keys and windows that are known, each with its slot, of all keys whose mark is at most ``below``."""

    below: int = EVERY_KEY
    pairs: pl.DataFrame | None = None

    def meet(
        self, reports: Mapping[int, KeysReport], window: WindowSpec | None
    ) -> tuple[AuditedKeys, tuple[Breach, ...]]:
        """Return what is known with what the slots of a batch saw, and the keys that are in two slots."""
        if not reports:
            return self, ()
        frames = [_of_slot(slot, seen.pairs) for slot, seen in sorted(reports.items())]
        below = min([self.below, *(seen.below for seen in reports.values())])
        known = [] if self.pairs is None else [self.pairs.with_columns(pl.lit(None, pl.String).alias("key"))]
        pairs = (
            pl.concat([*frames, *known])
            .filter(pl.col(_MARK) <= below)
            .unique([_MARK, _PLACE, _SLOT], keep="first", maintain_order=True)
            .sort(_MARK, _PLACE, _SLOT)
        )
        breaches = _find_breaches(pairs, 1 if window is None else window.size_us, window is not None)
        pairs, below = _thin_out(pairs.drop("key"), below)
        return AuditedKeys(below, pairs), breaches

    def without_closed(self, window: WindowSpec | None, passed_us: int) -> AuditedKeys:
        """Return what is known of windows that are still open."""
        if window is None or self.pairs is None:
            return self
        return AuditedKeys(self.below, self.pairs.filter(pl.col(_PLACE) > passed_us - window.size_us))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"below": f"{self.below:016x}", "pairs": None if self.pairs is None else frame_to_text(self.pairs)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AuditedKeys:
        """Read what ``to_json`` wrote."""
        return cls(int(data["below"], 16), None if data["pairs"] is None else frame_from_text(data["pairs"]))


def places_of(rows: pl.DataFrame, window: WindowSpec | None) -> pl.Expr:
    """Return where in time rows need their key whole: the start of their window, or of a pane where windows overlap."""
    if window is None or WINDOW not in rows.columns:
        return pl.lit(0, pl.Int64)
    panes = pl.col(WINDOW).cast(pl.Int64)
    if window.kind != "tumbling":
        return panes
    return (panes - window.offset_us) // window.size_us * window.size_us + window.offset_us


def describe_breaches(breaches: Sequence[Breach], keys: Sequence[str], partitions: str) -> str:
    """Return an error that names keys and partitions, and what to do."""
    first = breaches[0]
    where = "" if first.window_us is None else f" in the window from {_as_time(first.window_us)}"
    more = f", and {len(breaches) - 1} more keys are so" if len(breaches) > 1 else ""
    others = "".join(f"; {breach.key!r} in {breach.slots[0]} and {breach.slots[1]}" for breach in breaches[1:4])
    return (
        f'{partitions} break the promise of exchange="ahead": the key {first.key!r} ({", ".join(keys)}) is in '
        f"partitions {first.slots[0]} and {first.slots[1]}{where}{more}{others}; the batch is not committed. "
        'Use exchange="routed", or write the topic with ab.Partitioner, which keeps each key in one partition'
    )


def _find_breaches(pairs: pl.DataFrame, apart_us: int, windowed: bool) -> tuple[Breach, ...]:
    """Return keys of which two slots have rows less than this apart; pairs are sorted."""
    marks, places, slots = (pairs.get_column(name).to_numpy() for name in (_MARK, _PLACE, _SLOT))
    # Neighbours are enough: between two slots that are too near, there is a step from one slot to another.
    broken: NDArray[np.bool_] = (
        (marks[1:] == marks[:-1]) & (slots[1:] != slots[:-1]) & (places[1:] - places[:-1] < apart_us)
    )
    found = {}
    for row in np.flatnonzero(broken).tolist():
        mark = int(marks[row])
        if mark not in found:
            names = pairs.filter(pl.col(_MARK) == mark).get_column("key").drop_nulls()
            name = names[0] if len(names) else f"{mark:016x}"
            window_us = int(places[row + 1]) if windowed else None
            found[mark] = Breach(name, window_us, (int(slots[row]), int(slots[row + 1])))
    return tuple(found.values())


def _thin_out(pairs: pl.DataFrame, below: int) -> tuple[pl.DataFrame, int]:
    """Return the pairs of the keys with the smallest marks, all pairs of each, and the new limit; pairs are sorted."""
    if pairs.height <= MOST_PAIRS:
        return pairs, below
    limit = int(pairs.get_column(_MARK)[MOST_PAIRS]) - 1
    return pairs.filter(pl.col(_MARK) <= limit), limit


def _of_slot(slot: int, pairs: pl.DataFrame) -> pl.DataFrame:
    return pairs.select(pl.col(_MARK), pl.col(_PLACE), pl.lit(slot, pl.Int32).alias(_SLOT), pl.col("key"))


def _as_time(us: int) -> str:
    return str(pl.Series([us]).cast(pl.Datetime("us"))[0])

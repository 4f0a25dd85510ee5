"""What a slot sees of its load: rows by bucket, hot keys, and a sample to judge strategies on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import HASH
from anabranch.model.balance import AUTO, SAMPLED_ROWS_AT_LEAST, SAMPLED_SHARE, SampleRate
from anabranch.model.frame_texts import frame_from_text, frame_to_text, numbers_from_text, numbers_to_text
from anabranch.routing import buckets_of
from anabranch.routing.hashing import GOLDEN_RATIO_64
from anabranch.routing.heavy_hitters import KeyCounts, count_keys, may_be_hot
from anabranch.routing.lookup import find_keys

_HOT_SHARE, _HOT_ROWS = 0.005, 10
"""A slot has a hot key if one has this part of the rows that were looked at, and not by chance."""
_ROWS_NOT_BY_CHANCE = 40
"""Of a part of the rows, a key must have so many to be named: by chance, it has a sixth more or less.

From fewer, keys seem hot by chance, and a plan picks just these: slots came out 4 % fuller than it said.
"""
_MOST_NAMED_KEYS = 768
_EVEN_ROWS = 5_000
"""Where no key is hot, so many rows are enough of a sample, unless a rate was asked for."""
_FIRM_KEYS, _TAIL_ROWS = 1_000, 2_000
"""Keys of a sample that stand for themselves, and rows whose keys stand for all others, when strategies are judged."""
ROWS = "__rows"


@dataclass(frozen=True, slots=True)
class Watch:
    """What a slot should look at."""

    buckets: int
    sample_rate: SampleRate
    samples: bool = True
    """Whether a slot without hot keys should send a sample, too: it costs more than all the rest of the look."""
    sizes: bool = True
    """Whether the slot should measure its state."""


@dataclass(frozen=True, slots=True, eq=False)
class SampledKeyLoads:
    """What one slot says of its keys: those that are hot, and a sample."""

    stands_for: float
    """How many rows each row that was looked at stands for."""
    error_rows: int
    """No key has more than this less than it says there, of the rows that were looked at."""
    hot: NDArray[np.uint64]
    """Hashes of the hot keys."""
    hot_rows: NDArray[np.int64]
    """Of each, the rows that were looked at."""
    sample: pl.DataFrame
    """HASH, rows that the key stands for, and the key columns."""
    hot_left_rows: NDArray[np.int64] | None = None
    """Of a join, how many rows of each hot key are of the left input."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data; equal rows give equal data."""
        data = {
            "stands_for": self.stands_for,
            "error_rows": self.error_rows,
            "hot": numbers_to_text(self.hot),
            "hot_rows": numbers_to_text(self.hot_rows),
            "sample": frame_to_text(self.sample),
        }
        return data if self.hot_left_rows is None else data | {"hot_left_rows": numbers_to_text(self.hot_left_rows)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SampledKeyLoads:
        """Read what ``to_json`` wrote."""
        return cls(
            data["stands_for"],
            data["error_rows"],
            numbers_from_text(data["hot"], np.uint64),
            numbers_from_text(data["hot_rows"], np.int64),
            frame_from_text(data["sample"]),
            numbers_from_text(data["hot_left_rows"], np.int64) if "hot_left_rows" in data else None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class LoadReport:
    """What one slot saw of its rows."""

    bucket_rows: NDArray[np.int64]
    sampled_rows: int
    """Rows that were looked at for hot keys."""
    keys: SampledKeyLoads | None = None
    """None where no key is hot, and no sample was asked for."""
    left_rows: int | None = None
    """Of a join, the rows of the left input."""

    @property
    def named_keys(self) -> NDArray[np.uint64]:
        """The hashes of the keys that it names, sorted."""
        return np.empty(0, np.uint64) if self.keys is None else np.sort(self.keys.hot)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data; equal rows give equal data."""
        data = {"bucket_rows": numbers_to_text(self.bucket_rows), "sampled_rows": self.sampled_rows}
        left = {} if self.left_rows is None else {"left_rows": self.left_rows}
        return data | left | ({} if self.keys is None else {"keys": self.keys.to_json()})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LoadReport:
        """Read what ``to_json`` wrote."""
        keys = SampledKeyLoads.from_json(data["keys"]) if "keys" in data else None
        bucket_rows = numbers_from_text(data["bucket_rows"], np.int64)
        return cls(bucket_rows, data["sampled_rows"], keys, data.get("left_rows"))


@dataclass(frozen=True, slots=True)
class ObservedLoads:
    """What all slots of an operator saw in a batch."""

    bucket_rows: NDArray[np.int64]
    sampled_rows: int
    """Rows that were looked at for hot keys."""
    hot_rows: Mapping[int, float]
    """Key hash → its rows, as far as the slots' counts know them; all keys that might matter are there."""
    hot_left_rows: Mapping[int, float]
    """Of a join, key hash → those of its rows that are of the left input."""
    error_rows: float
    """No key has more than this less than it says there."""
    sample: pl.DataFrame | None
    """HASH, rows that the key stands for, and the key columns; None if no slot sent one."""
    complete: bool
    """Whether all slots that had rows sent a sample."""
    left_rows: int = 0
    """Of a join, the rows of the left input; those that are copied count as often."""


class _Look:
    """The rows of a slot that are looked at, block by block."""

    def __init__(self, blocks: Sequence[NDArray[np.uint64]], rate: SampleRate) -> None:
        self._blocks = blocks
        ends = np.cumsum([len(block) for block in blocks])
        self.all_rows = int(ends[-1])
        by_itself = max(SAMPLED_SHARE * self.all_rows, SAMPLED_ROWS_AT_LEAST)
        wanted = rate * self.all_rows if isinstance(rate, float | int) else by_itself
        self.rows = min(self.all_rows, max(1, round(wanted)))
        places = _choose_places(self.all_rows, self.rows)
        cuts = [0, *(np.searchsorted(places, ends).tolist())]
        self._places = [places[start:end] for start, end in pairwise(cuts)]
        self._begins = (ends - [len(block) for block in blocks]).tolist()

    @property
    def stands_for(self) -> float:
        """How many rows each row that is looked at stands for."""
        return self.all_rows / self.rows

    @property
    def is_complete(self) -> bool:
        return self.rows == self.all_rows

    def hashes(self) -> list[NDArray[np.uint64]]:
        if self.is_complete:
            return list(self._blocks)
        pieces = zip(self._blocks, self._places, self._begins, strict=True)
        return [block[places - begin] for block, places, begin in pieces]

    def count(self) -> KeyCounts:
        return count_keys(zip(self.hashes(), self._places, strict=True), self.rows)

    def some(self, most: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return hashes and places of up to so many of the rows that are looked at, spread over all of them."""
        hashes, places = np.concatenate(self.hashes()), np.concatenate(self._places)
        chosen = _choose_places(self.rows, min(most, self.rows))
        return hashes[chosen], places[chosen]


def _choose_places(rows: int, count: int) -> NDArray[np.int64]:
    """Return so many of the rows, rising: one of each stretch of equal length, at a place that is as good as chance.

    Every n-th row would meet the same keys again and again where the stream has a rhythm.
    """
    numbers = np.arange(count, dtype=np.uint64)
    if count == rows:
        return numbers.astype(np.int64)
    within = ((numbers * GOLDEN_RATIO_64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    places: NDArray[np.int64] = ((numbers.astype(np.float64) + within) * (rows / count)).astype(np.int64)
    return np.minimum(places, rows - 1)


def watch_rows(
    frames: Sequence[pl.DataFrame], keys: Sequence[str], watch: Watch, left_frames: int | None = None
) -> LoadReport | None:
    """Return what is in the rows of a slot, the same for equal rows; None if it has none.

    Where no key is hot, none is named: what is to be moved there are buckets, and their rows are counted, all of them.
    A sample is sent if it was asked for, or if a key is hot. Of a join, the first ``left_frames`` are its left input.
    """
    filled = [frame for frame in frames if frame.height]
    if not filled:
        return None
    blocks = [frame[HASH].to_numpy() for frame in filled]
    bucket_rows = sum(np.bincount(buckets_of(block, watch.buckets), minlength=watch.buckets) for block in blocks)
    look = _Look(blocks, watch.sample_rate)
    left_rows = None if left_frames is None else sum(frame.height for frame in frames[:left_frames])
    seen = LoadReport(np.asarray(bucket_rows, np.int64), look.rows, left_rows=left_rows)
    hot = max(_HOT_ROWS, _HOT_SHARE * look.rows)
    may_have_hot_keys = may_be_hot(look.hashes(), hot)
    if not may_have_hot_keys:
        if not watch.samples:
            return seen
        if watch.sample_rate == AUTO:
            look = _Look(blocks, min(look.rows, _EVEN_ROWS) / look.all_rows)
    counted = look.count()
    sees_hot_keys = may_have_hot_keys and bool(counted.estimates[0] >= hot)
    if not sees_hot_keys and not watch.samples:
        return seen
    named = _count_hot(counted, look) if sees_hot_keys or look.is_complete else 0
    places, weights = _find_sample(counted, look)
    sample = pl.concat([frame.select(HASH, *keys) for frame in filled])[places]
    loads = SampledKeyLoads(
        look.stands_for,
        counted.error,
        counted.keys[:named],
        counted.estimates[:named],
        sample.with_columns(pl.Series(ROWS, weights * look.stands_for)),
    )
    if left_frames is not None:
        of_left = sum(1 for frame in frames[:left_frames] if frame.height)
        loads = replace(loads, hot_left_rows=_count_named(look.hashes()[:of_left], loads.hot))
    return replace(seen, keys=loads)


def merge_loads(seen: Iterable[LoadReport | None], buckets: int) -> ObservedLoads | None:
    """Return what all slots saw together; None if no slot had rows."""
    bucket_rows = np.zeros(buckets, np.int64)
    hot_rows: dict[int, float] = {}
    hot_left_rows: dict[int, float] = {}
    samples = []
    sampled_rows, error_rows = 0, 0.0
    filled = [slot for slot in seen if slot is not None]
    for slot in filled:
        bucket_rows += slot.bucket_rows
        sampled_rows += slot.sampled_rows
        loads = slot.keys
        if loads is None:
            continue
        # Slots look at parts of their rows that differ, so their counts are weighed.
        error_rows += loads.error_rows * loads.stands_for
        for key, rows in zip(loads.hot.tolist(), loads.hot_rows, strict=True):
            hot_rows[key] = hot_rows.get(key, 0.0) + float(rows) * loads.stands_for
        if loads.hot_left_rows is not None:
            for key, rows in zip(loads.hot.tolist(), loads.hot_left_rows, strict=True):
                hot_left_rows[key] = hot_left_rows.get(key, 0.0) + float(rows) * loads.stands_for
        samples.append(loads.sample)
    if not filled:
        return None
    return ObservedLoads(
        bucket_rows,
        sampled_rows,
        hot_rows,
        hot_left_rows,
        error_rows,
        pl.concat(samples) if samples else None,
        len(samples) == len(filled),
        sum(slot.left_rows or 0 for slot in filled),
    )


def _count_named(blocks: Sequence[NDArray[np.uint64]], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return how many of the hashes are each of some keys."""
    order = np.argsort(keys)
    counts = np.zeros(len(keys), np.int64)
    for block in blocks:
        _, positions = find_keys(block, keys[order])
        counts += np.bincount(positions, minlength=len(keys))
    counts[order] = counts.copy()
    return counts


def _count_hot(counted: KeyCounts, look: _Look) -> int:
    """Return how many of the hottest keys are hot, and not by chance."""
    if look.is_complete and not counted.error:
        return min(len(counted.keys), _MOST_NAMED_KEYS)
    enough = max(_ROWS_NOT_BY_CHANCE * (1 - look.rows / look.all_rows), 2 * counted.error)
    return min(int((counted.estimates >= enough).sum()), _MOST_NAMED_KEYS)


def _find_sample(counted: KeyCounts, look: _Look) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return places of keys, each once, and the rows that were looked at for which each of them stands.

    The hottest stand for themselves, as far as they are counted well. For all others, those stand that some rows have.
    """
    # At most half of what such a key is said to have is doubtful.
    firm = min(int((counted.counts >= counted.error).sum()), _FIRM_KEYS)
    if firm == len(counted.keys) and not counted.error:
        return counted.places, counted.counts.astype(np.float64)
    weights = counted.estimates[:firm].astype(np.float64)
    hashes, places = look.some(_TAIL_ROWS)
    beside = ~np.isin(hashes, counted.keys[:firm])
    _, firsts, counts = np.unique(hashes[beside], return_index=True, return_counts=True)
    left = max(counted.rows - float(weights.sum()), 0.0)
    tail = counts * (left / max(counts.sum(), 1))
    return np.append(counted.places[:firm], places[beside][firsts]), np.append(weights, tail)

"""What the exchanges of a task do and take, and what the other way of sending rows would have come to."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import polars as pl

from anabranch.engine.tasks.blocks import encode
from anabranch.model import HASH, Kernel
from anabranch.model.exchanges import ExchangeCosts, ExchangeTally
from anabranch.routing import hash_keys

FEWEST_TRIED_ROWS = 2_048
"""Fewer rows that leave a task together are not looked at: a small batch is over before anything is gained."""
_MOST_KEYS_LEFT_OUT = 16
"""Of many rows that go as they are, those of every sixteenth key are merged to see what is left. A part of the rows
would not do: rows of a key that are left out merge with none."""
_ROWS_TRIED = 8_192
"""Fewer rows are not left out: a merge of few rows takes more time a row."""
_ROWS_ENCODED = 4_096
"""So many rows tell how many bytes a row takes."""

Costs = Mapping[int, ExchangeCosts]
"""By stateful node."""


class TellsCosts(Protocol):
    """Tells the driver what exchanges took. It goes beside the data, whose bytes must be the same on every try."""

    def tell(self, costs: Costs) -> None:
        """Say what a task took."""
        ...


def add_costs(some: Costs, more: Costs) -> Costs:
    """Return what tasks took together, operator by operator."""
    nothing = ExchangeCosts()
    return {head: some.get(head, nothing) + more.get(head, nothing) for head in {*some, *more}}


class ExchangeMeter:
    """Measures the exchanges that one task sends into."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self.tallies: dict[int, ExchangeTally] = defaultdict(ExchangeTally)
        self.costs: dict[int, ExchangeCosts] = defaultdict(ExchangeCosts)

    def count(self, head: int, **counts: int) -> None:
        """Add to an operator's rows and bytes."""
        self.tallies[head] += ExchangeTally(**counts)

    @property
    def send_seconds(self) -> float:
        """What sending took, to all operators together."""
        return sum(costs.send_seconds for costs in self.costs.values())

    @contextmanager
    def sending(self, head: int) -> Iterator[None]:
        """Count the time of the block as that of sending."""
        began = time.process_time()
        yield
        self.costs[head] += ExchangeCosts(send_seconds=time.process_time() - began)

    @contextmanager
    def holding(self, head: int) -> Iterator[None]:
        """Count the time of the block as that of keeping rows back."""
        began = time.process_time()
        yield
        self.costs[head] += ExchangeCosts(hold_seconds=time.process_time() - began)

    def compare(
        self, head: int, plain: pl.DataFrame, merged: pl.DataFrame, keys: tuple[str, ...], merge_seconds: float
    ) -> None:
        """Note what a merge left of rows, beside what sending them as they are would have taken."""
        if plain.height >= FEWEST_TRIED_ROWS:
            self._note(head, plain, merged, keys, merged.height, merge_seconds)

    def try_merge(self, head: int, plain: pl.DataFrame, kernel: Kernel, keys: tuple[str, ...]) -> None:
        """Note what a merge would leave of rows (with HASH) that go as they are, by merging those of some keys.

        Other keys in every batch: one that is hot must not speak for all.
        """
        if plain.height < FEWEST_TRIED_ROWS:
            return
        one_in = max(1, min(_MOST_KEYS_LEFT_OUT, plain.height // _ROWS_TRIED))
        # Not the lowest bits: buckets and slots are made of those.
        mark = pl.col(HASH) // (1 << 32) % one_in
        chosen = plain.filter(mark == self._batch % one_in).drop(HASH) if one_in > 1 else plain.drop(HASH)
        if not chosen.height:
            # There are hardly any keys, so that hardly anything is left.
            self.count(head, tried_rows=plain.height, plain_bytes=round(plain.height * _bytes_a_row(plain, keys)))
            return
        began = time.process_time()
        merged = kernel.combine(chosen)
        merge_seconds = (time.process_time() - began) * plain.height / chosen.height
        left_rows = min(plain.height, merged.height * one_in)
        self._note(head, plain, merged, keys, left_rows, merge_seconds)

    def _note(
        self,
        head: int,
        plain: pl.DataFrame,
        merged: pl.DataFrame,
        keys: tuple[str, ...],
        left_rows: int,
        merge_seconds: float,
    ) -> None:
        self.count(
            head,
            tried_rows=plain.height,
            left_rows=left_rows,
            plain_bytes=round(plain.height * _bytes_a_row(plain, keys)),
            merged_bytes=round(left_rows * _bytes_a_row(merged, keys)),
        )
        self.costs[head] += ExchangeCosts(merge_seconds=merge_seconds)


def _bytes_a_row(rows: pl.DataFrame, keys: tuple[str, ...]) -> float:
    some = rows.head(_ROWS_ENCODED)
    if HASH not in some.columns:
        some = some.with_columns(hash_keys(some, keys).alias(HASH))
    return (len(encode(some)) - len(encode(some.clear()))) / max(1, some.height)

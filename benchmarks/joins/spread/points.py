"""Which joins are measured slot by slot, at which size, and what their figures are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.joins.bnci_input import BnciInput
from benchmarks.joins.eq5_input import ANEW, SPREAD, Eq5Input
from benchmarks.joins.inputs import JoinInput, cut_files
from benchmarks.joins.streams import BNCI, BNCI_WINDOWS, EQ5, EQ5_WINDOWS, NEAR_ORDERS

RECEIVED, GROWTH = "received", "growth"
_EVERY_SKEW, _SOME_SKEWS = (0.0, 0.4, 0.8, 1.2, 1.5), (0.0, 0.8, 1.5)
EXPONENTS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    RECEIVED: dict.fromkeys((EQ5, EQ5_WINDOWS, BNCI, BNCI_WINDOWS), _EVERY_SKEW),
    # In windows, state does not grow.
    GROWTH: {EQ5: _SOME_SKEWS, BNCI: _SOME_SKEWS},
}
"""Part → the joins that it looks at, and under which skews unless others are asked for."""
SPREAD_PARTS = {
    RECEIVED: "what every slot receives of EQ5 and BNCI under every strategy, in process, without Spark",
    GROWTH: "how many slots EQ5 and BNCI need under every strategy when each may keep so many rows, and what it takes "
    "to add them, in process, without Spark",
}
"""Part of the bench → what is measured."""

SLOTS = 16
BATCHES = 12
ROWS = {EQ5: 240_000, EQ5_WINDOWS: 240_000, BNCI: 180_000, BNCI_WINDOWS: 180_000}
"""Query → lineitems, unless it is said. BNCI never has more: its pairs grow with the square of them."""
ARRIVALS = {
    EQ5: "region and nation in the first batch, suppliers shuffled and spread over all batches of lineitem",
    EQ5_WINDOWS: "all streams side by side in event time; each supplier, nation and region is sent anew every 10 s",
    BNCI: "lineitem in the order of the generator, joined with itself",
    BNCI_WINDOWS: "lineitem in event time, up to 1.9 s out of order, joined with itself from 5 s before to 5 s after",
}


@dataclass(frozen=True, slots=True, order=True)
class SpreadPoint:
    """One join under one skew."""

    query: str
    exponent: float

    def __str__(self) -> str:
        return f"{self.query}, z = {self.exponent:g}"

    @property
    def stem(self) -> str:
        """How figures about it begin."""
        return self.query.replace("-", "_")

    @property
    def ending(self) -> str:
        """How figures about it end."""
        return f"z{self.exponent:g}".replace(".", "_")


def plan_input(point: SpreadPoint, rows: int | None, seed: int, tables_dir: Path) -> JoinInput:
    """Return what is streamed: as many equal files as there are batches."""
    wanted = rows or ROWS[point.query]
    if point.query in NEAR_ORDERS:
        wanted = min(wanted, ROWS[point.query])
    cut = cut_files(wanted, largest=-(-wanted // BATCHES))
    if point.query in NEAR_ORDERS:
        return BnciInput(cut, point.exponent, seed, tables_dir, point.query)
    return Eq5Input(cut, point.exponent, seed, ANEW if point.query == EQ5_WINDOWS else SPREAD, tables_dir)

"""The ways to spread rows of a join over slots that are held against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anabranch as ab

MNRT, QMMP, HASH, MATRIX, BI, BI6 = "mnrt", "qmmp", "hash", "matrix", "bi", "bi6"
READJ, PKG = "readj", "pkg"
RIVALS = (QMMP, BI, BI6, MATRIX)
"""Those that keep slots even, too, and that MNRT is held against."""

# Batches are small here, so that many runs end soon: slots are judged by fewer rows than flows are by default.
_FEWEST_ROWS_A_SLOT = 100


@dataclass(frozen=True, slots=True)
class Spreading:
    """One way to spread rows, as a flow is told it, and how it takes slots in."""

    name: str
    label: str
    placing: Mapping[str, Any]
    """What ``join`` is told."""
    first_slots: int = 1
    """So many it begins with where slots are added as they are needed."""
    growth: int = 1
    """An overloaded slot becomes so many; 1: a slot is added."""

    def grow(self, slots: int) -> int:
        """Return how many slots come after so many."""
        return slots * self.growth if self.growth > 1 else slots + 1


def _balanced(planner: str) -> dict[str, Any]:
    return {"balance": ab.Balance(planner=planner, fewest_rows_a_slot=_FEWEST_ROWS_A_SLOT)}


SPREADINGS: dict[str, Spreading] = {
    one.name: one
    for one in (
        Spreading(MNRT, "MNRT", _balanced("mnrt")),
        Spreading(QMMP, "QMMP", _balanced("qmmp")),
        # It moves whole keys, or swaps them, and splits none.
        Spreading(READJ, "Readj", _balanced("readj")),
        Spreading(HASH, "hash", {"balance": None}),
        # Two slots a key: rows of one stream go to either, and those of the other to both.
        Spreading(PKG, "PKG", {"routing": "pkg"}),
        # The first paper's: a node that is full becomes four, and the halves of a bipartite graph begin with one slot
        # for each of their groups.
        Spreading(MATRIX, "matrix", {"routing": "matrix", **_balanced("mnrt")}, growth=4),
        Spreading(BI, "Bi", {"routing": "bi", **_balanced("mnrt")}, first_slots=2),
        Spreading(BI6, "Bi6", {"routing": "bi6", **_balanced("mnrt")}, first_slots=12),
    )
}

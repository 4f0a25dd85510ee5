"""Rows that stay where they were read: the source's partitions are the slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import RouteError
from anabranch.routing.bases.base_routes import SlotRanges, base_route
from anabranch.routing.keys import KeyBatch

PARTITIONS = "partitions"


@base_route(PARTITIONS)
@dataclass(frozen=True, slots=True)
class PartitionRoute:
    """Slot i has the rows of partition i: whoever wrote them has decided where keys go.

    Only a task knows which slot its rows are for, ``here``; the route alone cannot tell a key's slot.
    """

    slots: int
    here: int | None = None
    needs_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.slots < 1:
            msg = f"a route over {self.slots} partitions leads nowhere; give at least 1"
            raise RouteError(msg)

    def at(self, slot: int) -> PartitionRoute:
        """Return the route as the task of one partition sees it."""
        return PartitionRoute(max(self.slots, slot + 1), slot)

    def slots_of(self, keys: KeyBatch) -> NDArray[np.int32]:
        if self.here is None:
            msg = (
                "the source's partitions are the slots, and only whoever wrote them knows where a key is; "
                'give the partitioner to the source, or use exchange="routed"'
            )
            raise RouteError(msg)
        return np.full(len(keys), self.here, np.int32)

    def slots_between(self, lows: pl.Series | None, highs: pl.Series | None) -> SlotRanges | None:
        return None

    def resized(self, slots: int) -> PartitionRoute:
        """A new slot is an empty one: no key moves."""
        return PartitionRoute(slots)

    def to_json(self) -> dict[str, Any]:
        return {"slots": self.slots}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["slots"])

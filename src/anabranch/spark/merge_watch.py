"""Whether merging before the exchange is worth its time, by what it did in the last batches."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.query.nodes import Stateful
from anabranch.spark.spec import FlowProgram

WORTH_IT_BELOW = 0.9
"""Where more of the rows than this are left after the merge, it costs more than it saves."""
FEWEST_ROWS = 10_000
"""Smaller batches say nothing."""
PLAIN_BATCHES = 32
"""After so many batches without the merge, one tries it again: keys may have changed."""


class MergeWatch:
    """Decides for operators whose exchange is *auto*; called between batches only, on the driver.

    It keeps nothing in the checkpoint: answers are the same either way, and a driver finds out again in one batch.
    """

    def __init__(self, program: FlowProgram) -> None:
        self._watched = frozenset(
            node.id
            for node in program.plan.stateful
            if isinstance(node.operation, Stateful)
            and node.operation.routing.exchange.choice == "auto"
            and node.operation.routing.exchange.hold is None
            and program.merges(node.id)
        )
        self._plain_for: dict[int, int] = {}

    @property
    def plain(self) -> frozenset[int]:
        """The operators whose rows go unmerged in the next batch."""
        return frozenset(self._plain_for)

    def observe(self, merged: Mapping[int, tuple[int, int]]) -> None:
        """Learn from a batch how many rows each operator had before and after the merge."""
        for head in self._watched & set(merged):
            rows, sent = merged[head]
            if head in self._plain_for:
                self._plain_for[head] -= 1
                if self._plain_for[head] <= 0:
                    del self._plain_for[head]
            elif rows >= FEWEST_ROWS and sent > WORTH_IT_BELOW * rows:
                self._plain_for[head] = PLAIN_BATCHES

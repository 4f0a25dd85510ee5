"""What control must be told of a batch; the engine's reports say it among other things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from anabranch.control.observe.load_sampling import LoadReport
from anabranch.control.observe.state_sizes import SizesReport
from anabranch.model import RunRef
from anabranch.model.exchanges import ExchangeFigures


class OperatorReport(Protocol):
    """What one stateful operator did in a batch, by slot."""

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows it got."""
        ...

    @property
    def loads(self) -> tuple[LoadReport, ...]:
        """What it saw of its rows, if it was told to look."""
        ...

    @property
    def sizes(self) -> tuple[SizesReport, ...]:
        """How much state it has, if it measured it."""
        ...

    @property
    def runs(self) -> tuple[tuple[RunRef, ...], ...]:
        """The state that it has."""
        ...

    @property
    def handoffs(self) -> tuple[tuple[RunRef, ...], ...]:
        """What others wrote for it, by target slot."""
        ...

    @property
    def handed_bytes(self) -> int:
        """How much that is, of all slots."""
        ...


class BatchReport(Protocol):
    """What all tasks of a batch did, by stateful node."""

    @property
    def operators(self) -> Mapping[int, OperatorReport]:
        """What operators did that have slots."""
        ...

    @property
    def figures(self) -> Mapping[int, ExchangeFigures]:
        """What exchanges did."""
        ...

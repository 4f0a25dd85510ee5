"""What turns the values of messages into columns: one format each, with one contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from anabranch.connectors.formats.messages.messages import Messages


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of the messages that could be read, in order, and the places and reasons of all others."""

    frame: pl.DataFrame
    faults: list[tuple[int, str]] = field(default_factory=list)


class ValueFormat(Protocol):
    """How values are written. Instances are pickled to tasks: what is costly to make is made where it is used."""

    @property
    def name(self) -> str:
        """What ``format=`` calls it."""
        ...

    @property
    def schema(self) -> Mapping[str, pl.DataType]: ...

    def check(self) -> None:
        """Raise ``FlowError`` or ``SourceError`` if it cannot work, before the first batch."""
        ...

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows; messages that are null are never among those given."""
        ...


@dataclass(frozen=True, slots=True)
class RawValues:
    """The bytes themselves, or the text they are, as one column."""

    schema: Mapping[str, pl.DataType]
    name: str = "raw"

    def check(self) -> None:
        """Nothing can be wrong with bytes."""

    def decode(self, messages: Messages) -> Decoded:
        """Return the values as they are; as text, those that are no UTF-8 are faulty."""
        ((column, kind),) = self.schema.items()
        values = messages.values()
        if isinstance(kind, pl.Binary):
            return Decoded(pl.DataFrame({column: pl.Series(values, dtype=pl.Binary)}))
        texts: list[str] = []
        faults: list[tuple[int, str]] = []
        for index, value in enumerate(values):
            try:
                texts.append(value.decode())
            except UnicodeDecodeError as error:
                faults.append((index, f"not UTF-8: {error.reason} at byte {error.start}"))
        return Decoded(pl.DataFrame({column: pl.Series(texts, dtype=pl.String)}), faults)

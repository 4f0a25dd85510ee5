"""Messages as tasks get them: many values in one piece of memory, and what else was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.connectors.formats.fixed_layout_json import PlacedLines
from anabranch.connectors.formats.messages.fresh_bytes import make_bytes, open_bytes

Ints = NDArray[np.int64]
Headers = list[dict[str, Any]]

METADATA_TYPES: dict[str, pl.DataType] = {
    "key": pl.Binary(),
    "headers": pl.List(pl.Struct({"name": pl.String(), "value": pl.Binary()})),
    "topic": pl.String(),
    "partition": pl.Int32(),
    "offset": pl.Int64(),
    "timestamp": pl.Datetime("ms"),
}
"""What a message has besides its value, by the name that ``include`` takes."""

NO_TIMESTAMP = -1


class Values(Protocol):
    """The values of some messages."""

    @property
    def text(self) -> bytes:
        """The values, each followed by a line end (a null has no bytes)."""
        ...

    @property
    def ends(self) -> Ints:
        """Where each value ends in the text; the next one begins behind the line end."""
        ...

    @property
    def pieces(self) -> tuple[PlacedLines, ...]:
        """The values where they lie."""
        ...


@dataclass(frozen=True, slots=True)
class JoinedValues:
    """Values that are one text already."""

    text: bytes
    ends: Ints

    @property
    def pieces(self) -> tuple[PlacedLines, ...]:
        """The values where they lie: one piece, unless there is none."""
        if not len(self.ends):
            return ()
        starts = np.concatenate([[0], self.ends[:-1] + 1])
        return (PlacedLines(np.frombuffer(self.text, np.uint8), starts, self.ends),)


@dataclass(frozen=True)
class ScatteredValues:
    """Values that lie where a broker's batches were unpacked; they are put into one text when somebody asks for it."""

    pieces: tuple[PlacedLines, ...]

    @property
    def text(self) -> bytes:
        return self._joined.text

    @property
    def ends(self) -> Ints:
        return self._joined.ends

    @cached_property
    def _joined(self) -> JoinedValues:
        from anabranch.compiled.record_memory import gather_values

        rows = sum(len(piece.starts) for piece in self.pieces)
        values = make_bytes(sum(int((piece.ends - piece.starts).sum()) for piece in self.pieces) + rows)
        text, ends = open_bytes(values), np.empty(rows, np.int64)
        place = row = 0
        for piece in self.pieces:
            count = len(piece.starts)
            address = np.uint64(piece.memory.ctypes.data)
            place = gather_values(address, piece.starts, piece.ends, text, place, ends[row : row + count])
            row += count
        return JoinedValues(values, ends)


@dataclass(frozen=True, slots=True)
class Messages:
    """Some messages of one partition, in order."""

    topic: str
    number: int
    values_in: Values
    offsets: Ints
    is_null: NDArray[np.bool_] | None = None
    """Which values are null; None if none is."""
    timestamps_ms: Ints | None = None
    keys: pl.Series | None = None
    headers: Sequence[Headers | None] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def text(self) -> bytes:
        """The values, each followed by a line end (a null has no bytes)."""
        return self.values_in.text

    @property
    def ends(self) -> Ints:
        """Where each value ends in the text; the next one begins behind the line end."""
        return self.values_in.ends

    def value(self, index: int) -> bytes:
        """Return one value; empty for a null."""
        start = int(self.ends[index - 1]) + 1 if index else 0
        return self.text[start : int(self.ends[index])]

    def values(self) -> list[bytes]:
        """Return all values; empty for nulls."""
        ends = self.ends.tolist()
        starts = [0, *(end + 1 for end in ends[:-1])]
        text = self.text
        return [text[start:end] for start, end in zip(starts, ends, strict=True)]

    def take(self, kept: NDArray[np.bool_]) -> Messages:
        """Return the messages that a mask names."""
        chosen = np.flatnonzero(kept)
        values = [self.value(index) for index in chosen.tolist()]
        return Messages(
            self.topic,
            self.number,
            join_values(values),
            self.offsets[chosen],
            None if self.is_null is None else self.is_null[chosen],
            None if self.timestamps_ms is None else self.timestamps_ms[chosen],
            None if self.keys is None else self.keys.gather(chosen),
            None if self.headers is None else [self.headers[index] for index in chosen.tolist()],
        )

    def metadata(self, name: str) -> pl.Series:
        """Return one column of what ``include`` may ask for."""
        kind = METADATA_TYPES[name]
        match name:
            case "topic":
                return pl.repeat(self.topic, len(self), dtype=kind, eager=True).alias(name)
            case "partition":
                return pl.repeat(self.number, len(self), dtype=kind, eager=True).alias(name)
            case "offset":
                return pl.Series(name, self.offsets)
            case "timestamp":
                assert self.timestamps_ms is not None
                times = pl.Series(name, self.timestamps_ms)
                return times.set(times == NO_TIMESTAMP, None).cast(kind)
            case "key":
                assert self.keys is not None
                return self.keys.alias(name)
            case _:
                assert self.headers is not None
                return pl.Series(name, list(self.headers), dtype=kind)


def join_values(values: Sequence[bytes]) -> JoinedValues:
    """Return the values in one text."""
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)) + 1) - 1
    return JoinedValues(b"\n".join(values) + b"\n" if values else b"", ends)

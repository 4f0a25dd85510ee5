"""What a processor is handed for one batch on one slot, and what comes back, whether row by row or as frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.errors import FlowError
from anabranch.operators.keyed.single_rows import KeyedRows
from anabranch.operators.processors.checked_values import MISFITS

FAILURES = (Exception, pl.exceptions.PanicException)
"""What a processor may fail with: a panic of Polars is no exception to Python."""
STAGE = "__stage"
"""Int8: when in a batch a row is handled; see the constants below."""
BEFORE, ARRIVED, AFTER = 0, 1, 2
"""Rows that waited and that the watermark passed before the batch; rows as they arrive; rows that wait no longer."""
IS_LATE = "__is_late"


@dataclass(frozen=True, slots=True, eq=False)
class ProcessorInput:
    """The keys of a batch, and the rows that are to be handled now."""

    batch: KeyedRows
    rows: pl.DataFrame | None
    """With PLACE, LATEST, STAGE and IS_LATE, by (LATEST, BATCH, ORDER)."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a processor made of its input."""

    results: pl.DataFrame
    content: Mapping[str, pl.Series]
    """By key: the declared fields and the timers."""
    changed: NDArray[np.bool_]
    """By key."""


class Runner(Protocol):
    """Runs one form of processor."""

    def find_late(self, batch: KeyedRows) -> NDArray[np.bool_]:
        """Say of each row of the batch whether it is late."""
        ...

    def run(self, given: ProcessorInput) -> Outcome:
        """Handle rows and timers."""
        ...


def build_column(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series | None:
    """Return values as a column of exactly this type; None if one of them does not fit."""
    try:
        column = pl.Series(name, values, dtype=dtype, strict=True)
    except MISFITS:
        return None
    return column if column.dtype == dtype else None


def describe_key(keys: pl.DataFrame, names: tuple[str, ...], place: int) -> str:
    """Return a key as an error names it: ``sensor=7``."""
    return ", ".join(f"{name}={keys.get_column(name)[place]!r}" for name in names)


def complain(processor: object, method: str, key: str, text: str) -> FlowError:
    """Return the error that says which processor, which method and which key something is wrong with."""
    return FlowError(f"processor {type(processor).__name__}: {method} for {key}: {' '.join(text.split())}")

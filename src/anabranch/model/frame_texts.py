"""Small frames, numbers and rows as text: for reports and manifests, which are JSON, and for errors."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

_LONGEST_ROW = 500

Number = TypeVar("Number", np.int64, np.uint64)


def frame_to_text(frame: pl.DataFrame) -> str:
    """Return a frame as text; equal frames give equal texts."""
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="zstd")
    return base64.b64encode(buffer.getvalue()).decode()


def frame_from_text(text: str) -> pl.DataFrame:
    """Read what ``frame_to_text`` wrote."""
    return pl.read_ipc_stream(io.BytesIO(base64.b64decode(text)))


def numbers_to_text(numbers: NDArray[np.int64] | NDArray[np.uint64]) -> str:
    """Return whole numbers as text."""
    return base64.b64encode(numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()).decode()


def numbers_from_text(text: str, dtype: type[Number]) -> NDArray[Number]:
    """Read what ``numbers_to_text`` wrote."""
    return np.frombuffer(base64.b64decode(text), np.dtype(dtype).newbyteorder("<")).astype(dtype, copy=False)


def key_as_text(key: str, dtype: pl.DataType) -> pl.Expr:
    """Return a key column as people read it."""
    if dtype == pl.Binary:
        return pl.col(key).bin.encode("hex")
    if isinstance(dtype, pl.Duration):
        return pl.col(key).dt.to_string("iso")
    return pl.col(key).cast(pl.String, strict=False)


def describe_row(row: Mapping[str, Any]) -> str:
    """Return a row as an error shows it."""
    text = str(dict(row))
    return text if len(text) <= _LONGEST_ROW else f"{text[:_LONGEST_ROW]}…"

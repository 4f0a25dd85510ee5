"""Frames to the bytes of result files."""

from __future__ import annotations

import io

import polars as pl


def encode_parquet(frame: pl.DataFrame) -> bytes:
    """Return a Parquet file."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=1)
    return buffer.getvalue()


def encode_arrow(frame: pl.DataFrame) -> bytes:
    """Return an Arrow IPC file."""
    buffer = io.BytesIO()
    frame.rechunk().write_ipc(buffer, compression="lz4")
    return buffer.getvalue()


def encode_json_lines(frame: pl.DataFrame) -> bytes:
    """Return one JSON object a line."""
    buffer = io.BytesIO()
    frame.write_ndjson(buffer)
    return buffer.getvalue()

"""What users give to connectors as frames and paths, taken as they are or refused with what to give."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import polars as pl

from anabranch.errors import FlowError


def as_frame(where: str, given: Any, schema: Mapping[str, pl.DataType] | None = None) -> pl.DataFrame:
    """Return a Polars or pandas frame, columns by name or rows as a Polars frame."""
    if isinstance(given, pl.DataFrame):
        return given
    try:
        return pl.DataFrame(given, schema=dict(schema) if schema and isinstance(given, Mapping) else None)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        msg = f"{where}() takes Polars or pandas frames, or columns by name, found a {type(given).__name__}: {error}"
        raise FlowError(msg) from error


def as_path(where: str, given: str | os.PathLike[str]) -> str:
    """Return a path or URL as text."""
    try:
        return os.fspath(given)
    except TypeError as error:
        msg = f"{where} takes a path or a URL, such as {where}('results/'), found {given!r}"
        raise FlowError(msg) from error

"""Tables that are had as a whole: a Polars frame that travels with the flow, Parquet files that are read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from anabranch.connectors.given_values import as_frame
from anabranch.connectors.lookups.keys import as_keys, check_key_types, refuse_repeated
from anabranch.errors import FlowError, SourceError

FrameLike = Any
"""A Polars or pandas frame, or columns by name."""

LARGEST_FRAME_BYTES = 256 * 1024 * 1024
"""A frame is pickled to every worker; a larger one belongs into files or a database."""


@dataclass(frozen=True, slots=True, eq=False)
class FrameTable:
    """A Polars frame; it is as it was when the flow was written, and never expires."""

    frame: pl.DataFrame = field(repr=False)

    @property
    def label(self) -> str:
        return f"a frame of {self.frame.height:,} rows"

    def known_columns(self) -> Mapping[str, pl.DataType]:
        return dict(self.frame.schema)

    def check(self, keys: Mapping[str, pl.DataType], columns: Mapping[str, pl.DataType]) -> None:
        require_columns(self.label, self.frame.schema, keys, columns)
        check_key_types(self.label, keys, self.frame.schema)
        refuse_repeated(self.label, as_keys(self.frame.select(list(keys)), keys), keys)

    def fetch(self, keys: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        return as_keys(self.load(keys.schema, columns), keys.schema).join(keys, on=keys.columns, how="semi")

    def load(self, keys: Mapping[str, pl.DataType], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        return self.frame.select(*keys, *columns)


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """Parquet files, read as a whole by every worker, and again when they have expired."""

    path: str

    @property
    def label(self) -> str:
        return f"parquet {self.path}"

    def known_columns(self) -> Mapping[str, pl.DataType]:
        try:
            return dict(pl.scan_parquet(self._pattern()).collect_schema())
        except (OSError, pl.exceptions.PolarsError) as error:
            msg = f"{self.label} cannot be read: {str(error).splitlines()[0]}; give a Parquet file or a folder of them"
            raise SourceError(msg) from error

    def check(self, keys: Mapping[str, pl.DataType], columns: Mapping[str, pl.DataType]) -> None:
        require_columns(self.label, self.known_columns(), keys, columns)
        check_key_types(self.label, keys, self.known_columns())
        refuse_repeated(self.label, as_keys(self.load(keys, {}), keys), keys)

    def fetch(self, keys: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        return FrameTable(self.load(keys.schema, columns)).fetch(keys, columns)

    def load(self, keys: Mapping[str, pl.DataType], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        try:
            return pl.scan_parquet(self._pattern()).select(*keys, *columns).collect()
        except (OSError, pl.exceptions.PolarsError) as error:
            msg = (
                f"{self.label} cannot be read: {str(error).splitlines()[0]}; put a whole file in its place by renaming"
            )
            raise SourceError(msg) from error

    def _pattern(self) -> str:
        return f"{self.path}/*.parquet" if "://" not in self.path and Path(self.path).is_dir() else self.path


def frame_table(frame: FrameLike) -> FrameTable:
    """Look rows up in a Polars or pandas frame, which travels with the flow.

    Examples:
        >>> places = pl.DataFrame({"sensor": [1, 2], "town": ["Riga", "Tartu"]})
        >>> collect(readings.filter("volts < 207").lookup(ab.frame_table(places), on="sensor").select("town", "volts"))
        [('Riga', 206.25)]
    """
    table = as_frame("frame_table", frame)
    if table.estimated_size() > LARGEST_FRAME_BYTES:
        msg = (
            f"a frame of {table.estimated_size() / 1e6:.0f} MB would go to every worker; at most "
            f"{LARGEST_FRAME_BYTES / 1e6:.0f} MB do: write it as Parquet and use ab.parquet_table(path)"
        )
        raise FlowError(msg)
    return FrameTable(table)


def parquet_table(path: str | Path) -> ParquetTable:
    """Look rows up in a Parquet file or a folder of them, which every worker reads as a whole.

    Examples:
        >>> pl.DataFrame({"sensor": [1, 2], "town": ["Riga", "Tartu"]}).write_parquet("places.parquet")
        >>> readings.lookup(ab.parquet_table("places.parquet"), on="sensor").schema["town"]
        String
    """
    return ParquetTable(str(path))


def require_columns(
    label: str,
    found: Mapping[str, pl.DataType],
    keys: Mapping[str, pl.DataType],
    columns: Mapping[str, pl.DataType],
) -> None:
    """Raise ``FlowError`` unless the table has what a lookup asks for."""
    missing = [name for name in (*keys, *columns) if name not in found]
    if missing:
        msg = f"lookup: {label} has no column {', '.join(missing)}; there are {', '.join(found)}"
        raise FlowError(msg)

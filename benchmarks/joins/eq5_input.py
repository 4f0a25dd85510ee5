"""The input of EQ5: tables of TPC-H as streams, with the suppliers of lineitem drawn anew by a zipf law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.joins.inputs import FileCut, cut_files, find_schema
from benchmarks.joins.streams import EQ5, EQ5_WINDOWS, VERSION_MS, find_time
from benchmarks.joins.tpch import LINEITEMS_A_SCALE, ensure_tables_for
from benchmarks.shared.zipf import draw_zipf

# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1
WHOLE, SPREAD, ANEW = "whole", "spread", "anew"
"""How suppliers come: all in one file; shuffled, with each file of lineitem some; again and again, with event times."""
FILES_A_VERSION = 4
"""In so many files, the small tables are sent once."""
DISORDER_MS = 1_900
_ORIGIN_MS = 1_700_000_003_700


@dataclass(frozen=True)
class Eq5Input:
    """What to stream."""

    cut: FileCut
    """Of lineitem."""
    exponent: float
    seed: int
    suppliers: str
    """``WHOLE``, ``SPREAD`` or ``ANEW``; nations and regions come whole unless they come anew."""
    tables_dir: Path
    """Where TPC-H's tables are kept."""

    @property
    def query(self) -> str:
        return EQ5_WINDOWS if self.suppliers == ANEW else EQ5

    @property
    def name(self) -> str:
        return (
            f"eq5-v{GENERATOR_VERSION}-files{self.cut.count}-n{self.cut.rows_per_file}-{self.suppliers}"
            f"-z{self.exponent:g}-s{self.seed}"
        )

    @property
    def scale_factor(self) -> float:
        """TPC-H's measure of size: 1 is 6 million lineitems."""
        return self.cut.count * self.cut.rows_per_file / LINEITEMS_A_SCALE

    def count_rows(self) -> dict[str, int]:
        """Return the rows of each stream."""
        lineitems = {"lineitem": self.cut.count * self.cut.rows_per_file}
        small = ("supplier", "nation", "region")
        return lineitems | {
            stream: sum(self._choose(stream, index).height for index in range(self.count_files(stream)))
            for stream in small
        }

    def count_files(self, stream: str) -> int:
        """Return the files of a stream."""
        is_spread = (
            stream == "lineitem" or self.suppliers == ANEW or (stream == "supplier" and self.suppliers == SPREAD)
        )
        return self.cut.count if is_spread else 1

    def make_rows(self, stream: str, index: int) -> pl.DataFrame:
        """Return the rows of one file."""
        rows = self._make_lineitems(index) if stream == "lineitem" else self._choose(stream, index)
        at = find_time(self.query, stream)
        if at is None:
            return rows
        # Versions of a row are as far apart as they are good for, so only lineitems are out of order.
        disorder_ms = DISORDER_MS if stream == "lineitem" else 1
        behind_ms = np.random.default_rng([self.seed, index]).integers(0, disorder_ms, rows.height)
        file_ms = VERSION_MS // FILES_A_VERSION
        times = _ORIGIN_MS + index * file_ms + np.arange(rows.height) * file_ms // max(1, rows.height) - behind_ms
        return rows.with_columns(pl.Series(at, times))

    def describe(self) -> dict[str, object]:
        """Return what is to be known of it beside a figure."""
        return {"scale_factor": self.scale_factor, "keys": self._suppliers.len()}

    def _choose(self, stream: str, index: int) -> pl.DataFrame:
        """Return the rows of a small table that a file has."""
        rows = self._read(stream)
        if self.count_files(stream) == 1:
            return rows
        order = np.random.default_rng([self.seed, rows.height]).permutation(rows.height)
        parts = FILES_A_VERSION if self.suppliers == ANEW else self.cut.count
        return rows[np.sort(order[index % parts :: parts])]

    def _make_lineitems(self, index: int) -> pl.DataFrame:
        count = self.cut.rows_per_file
        rng = np.random.default_rng([self.seed, count, index])
        drawn = draw_zipf(rng, count, self._suppliers.len(), self.exponent)
        rows = self._scan("lineitem").slice(index * count, count).collect()
        assert rows.height == count, f"{rows.height} lineitems are left for file {index}, not {count}"
        return rows.with_columns(self._suppliers[drawn].alias("l_suppkey"))

    @cached_property
    def _suppliers(self) -> pl.Series:
        """Suppliers by rank, in no order of their numbers."""
        return self._read("supplier").get_column("s_suppkey").shuffle(seed=self.seed)

    @cached_property
    def _tables(self) -> Path:
        return ensure_tables_for(self.cut.count * self.cut.rows_per_file, self.tables_dir)

    def _read(self, stream: str) -> pl.DataFrame:
        return self._scan(stream).collect()

    def _scan(self, stream: str) -> pl.LazyFrame:
        """Return a table with the columns that are asked for; money is doubles, which all systems write alike."""
        schema = find_schema(EQ5, stream)
        return pl.scan_parquet(self._tables / f"{stream}.parquet").select(
            pl.col(name).cast(kind) for name, kind in schema.items()
        )


def plan_eq5(rows: int, exponent: float, seed: int, *, suppliers: str, tables_dir: Path) -> Eq5Input:
    """Return an input of whole, equal files with at least ``rows`` lineitems."""
    return Eq5Input(cut_files(rows), exponent, seed, suppliers, tables_dir)

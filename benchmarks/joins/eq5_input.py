"""The input of EQ5: tables of TPC-H as streams, with the suppliers of lineitem drawn anew by a zipf law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.joins.inputs import FileCut, cut_files, find_schema
from benchmarks.joins.streams import EQ5
from benchmarks.joins.tpch import LINEITEMS_A_SCALE, ensure_tables
from benchmarks.shared.zipf import draw_zipf

# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1
# Orders have one to seven lines by chance: so many more are made that there are enough, and the rest is left out.
_SPARE = 1.02
_SPARE_ROWS = 1_000


@dataclass(frozen=True)
class Eq5Input:
    """What to stream."""

    cut: FileCut
    """Of lineitem."""
    exponent: float
    seed: int
    spreads_suppliers: bool
    """Whether suppliers come shuffled, with each file of lineitem some; else they come whole, in one file."""
    tables_dir: Path
    """Where TPC-H's tables are kept."""

    query = EQ5

    @property
    def name(self) -> str:
        suppliers = "spread" if self.spreads_suppliers else "first"
        return (
            f"eq5-v{GENERATOR_VERSION}-files{self.cut.count}-n{self.cut.rows_per_file}-{suppliers}"
            f"-z{self.exponent:g}-s{self.seed}"
        )

    @property
    def scale_factor(self) -> float:
        """TPC-H's measure of size: 1 is 6 million lineitems."""
        return self.cut.count * self.cut.rows_per_file / LINEITEMS_A_SCALE

    def count_rows(self) -> dict[str, int]:
        """Return the rows of each stream."""
        lineitems = {"lineitem": self.cut.count * self.cut.rows_per_file}
        return lineitems | {stream: self._read(stream).height for stream in ("supplier", "nation", "region")}

    def count_files(self, stream: str) -> int:
        """Return the files of a stream."""
        return self.cut.count if stream == "lineitem" or (stream == "supplier" and self.spreads_suppliers) else 1

    def make_rows(self, stream: str, index: int) -> pl.DataFrame:
        """Return the rows of one file."""
        if stream == "lineitem":
            return self._make_lineitems(index)
        rows = self._read(stream)
        if self.count_files(stream) == 1:
            return rows
        order = np.random.default_rng([self.seed, rows.height]).permutation(rows.height)
        return rows[np.sort(order[index :: self.cut.count])]

    def describe(self) -> dict[str, object]:
        """Return what is to be known of it beside a figure."""
        return {"scale_factor": self.scale_factor, "keys": self._suppliers.len()}

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
        lineitems = self.cut.count * self.cut.rows_per_file
        # Suppliers are those of the scale factor that is told, or one in fifty more.
        return ensure_tables(round((_SPARE * lineitems + _SPARE_ROWS) / LINEITEMS_A_SCALE, 6), self.tables_dir)

    def _read(self, stream: str) -> pl.DataFrame:
        return self._scan(stream).collect()

    def _scan(self, stream: str) -> pl.LazyFrame:
        """Return a table with the columns that are asked for; money is doubles, which all systems write alike."""
        schema = find_schema(EQ5, stream)
        return pl.scan_parquet(self._tables / f"{stream}.parquet").select(
            pl.col(name).cast(kind) for name, kind in schema.items()
        )


def plan_eq5(rows: int, exponent: float, seed: int, *, spreads_suppliers: bool, tables_dir: Path) -> Eq5Input:
    """Return an input of whole, equal files with at least ``rows`` lineitems."""
    return Eq5Input(cut_files(rows), exponent, seed, spreads_suppliers, tables_dir)

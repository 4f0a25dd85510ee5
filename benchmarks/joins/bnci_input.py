"""The input of BNCI: lineitem of TPC-H as a stream, with the orders of its rows drawn anew by a zipf law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.joins.inputs import FileCut, cut_files, find_schema
from benchmarks.joins.streams import BNCI, find_time
from benchmarks.joins.tpch import LINEITEMS_A_SCALE, ensure_tables_for
from benchmarks.shared.zipf import draw_zipf

# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1
FILE_MS = 2_500
"""In windows, the event time that goes by in a file."""
DISORDER_MS = 1_900
_ORIGIN_MS = 1_700_000_003_700


@dataclass(frozen=True)
class BnciInput:
    """What to stream."""

    cut: FileCut
    exponent: float
    seed: int
    tables_dir: Path
    """Where TPC-H's tables are kept."""
    query: str = BNCI
    """``BNCI``, or ``BNCI_WINDOWS``: lineitems then have event times, out of order."""

    @property
    def name(self) -> str:
        return (
            f"{self.query}-v{GENERATOR_VERSION}-files{self.cut.count}-n{self.cut.rows_per_file}-z{self.exponent:g}"
            f"-s{self.seed}"
        )

    @property
    def rows(self) -> int:
        """All lineitems."""
        return self.cut.count * self.cut.rows_per_file

    def count_rows(self) -> dict[str, int]:
        """Return the rows of the one stream."""
        return {"lineitem": self.rows}

    def count_files(self, stream: str) -> int:
        """Return the files of the stream."""
        return self.cut.count

    def make_rows(self, stream: str, index: int) -> pl.DataFrame:
        """Return the rows of one file."""
        count = self.cut.rows_per_file
        rng = np.random.default_rng([self.seed, count, index])
        drawn = draw_zipf(rng, count, self._orders.len(), self.exponent)
        rows = self._lineitems.slice(index * count, count)
        rows = rows.with_columns(self._orders[drawn].alias("l_orderkey"))
        at = find_time(self.query, "lineitem")
        if at is None:
            return rows
        behind_ms = rng.integers(0, DISORDER_MS, count)
        return rows.with_columns(
            pl.Series(at, _ORIGIN_MS + index * FILE_MS + np.arange(count) * FILE_MS // count - behind_ms)
        )

    def describe(self) -> dict[str, object]:
        """Return what is to be known of it beside a figure."""
        return {"scale_factor": self.rows / LINEITEMS_A_SCALE, "keys": self._orders.len()}

    @cached_property
    def _orders(self) -> pl.Series:
        """Orders by rank, in no order of their numbers."""
        return self._lineitems.get_column("l_orderkey").unique(maintain_order=True).shuffle(seed=self.seed)

    @cached_property
    def _lineitems(self) -> pl.DataFrame:
        path = ensure_tables_for(self.rows, self.tables_dir) / "lineitem.parquet"
        columns = [pl.col(name).cast(kind) for name, kind in find_schema(BNCI, "lineitem").items()]
        return pl.scan_parquet(path).select(columns).head(self.rows).collect()


def plan_bnci(rows: int, exponent: float, seed: int, tables_dir: Path) -> BnciInput:
    """Return an input of whole, equal files with at least ``rows`` lineitems."""
    return BnciInput(cut_files(rows), exponent, seed, tables_dir)

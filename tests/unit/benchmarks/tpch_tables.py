"""TPC-H's tables for tests that have no generator."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl

SUPPLIERS = 60


def write_tables(folder: Path) -> Path:
    """Write tables as the generator of TPC-H writes them, small, with a column that nobody asks for."""
    chance = np.random.default_rng(3)
    lines = 5_000
    money = [Decimal(cents) / 100 for cents in chance.integers(100, 10_000, lines).tolist()]
    lineitem = pl.DataFrame(
        {
            "l_orderkey": np.arange(lines) // 4,
            "l_linenumber": pl.Series(np.arange(lines) % 4, dtype=pl.Int32),
            "l_suppkey": chance.integers(1, SUPPLIERS, lines),
            "l_quantity": money,
            "l_extendedprice": money[::-1],
            "l_discount": money,
            "l_shipdate": [date(1996, 1, 1 + day) for day in chance.integers(0, 28, lines).tolist()],
            "l_shipinstruct": chance.choice(["COLLECT COD", "NONE"], lines),
            "l_shipmode": chance.choice(["TRUCK", "RAIL"], lines),
            "l_comment": "carefully",
        }
    )
    keys = np.arange(1, SUPPLIERS + 1)
    supplier = pl.DataFrame(
        {
            "s_suppkey": keys,
            "s_name": pl.select(pl.format("Supplier#{}", pl.Series(keys))).to_series(),
            "s_nationkey": keys % 25,
            "s_acctbal": [Decimal(int(key)) / 100 for key in keys],
        }
    )
    nation = pl.DataFrame(
        {"n_nationkey": range(25), "n_name": [f"N{n}" for n in range(25)], "n_regionkey": [n % 5 for n in range(25)]}
    )
    region = pl.DataFrame({"r_regionkey": range(5), "r_name": ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]})
    for name, table in (("lineitem", lineitem), ("supplier", supplier), ("nation", nation), ("region", region)):
        table.write_parquet(folder / f"{name}.parquet")
    return folder

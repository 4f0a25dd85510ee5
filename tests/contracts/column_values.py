"""A column of every type that a stream may have, with the extremes of the type and a null."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl

from anabranch.eventtime.time_range import time_bounds

_TIMES: list[Any] = [
    pl.Date(),
    pl.Time(),
    *(pl.Datetime(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin")),
    *(pl.Duration(unit) for unit in ("ms", "us", "ns")),
]


def _column(values: list[Any], kind: Any) -> pl.Series:
    return pl.Series("x", [*values, None], dtype=kind, strict=True)


def _ticks(values: tuple[int, int], kind: pl.DataType) -> pl.Series:
    ticks = pl.Series("x", [*values, None], dtype=pl.Int32 if isinstance(kind, pl.Date) else pl.Int64)
    if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        return ticks.cast(pl.Datetime(kind.time_unit, "UTC")).dt.convert_time_zone(kind.time_zone)
    return ticks.cast(kind)


def _flat() -> dict[str, pl.Series]:
    signed = {kind: int(str(kind)[3:]) for kind in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128)}
    unsigned = {kind: int(str(kind)[4:]) for kind in (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.UInt128)}
    columns = [
        *(_column([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1], kind) for kind, bits in signed.items()),
        *(_column([0, 2**bits - 1], kind) for kind, bits in unsigned.items()),
        *(_column([float("nan"), float("-inf"), -0.0], kind) for kind in (pl.Float16, pl.Float32, pl.Float64)),
        _column([True, False], pl.Boolean),
        _column(["\x00\n\r\"'\\,\u2028\U0001f600", ""], pl.String),
        _column([b"\xff\x00\n\\", b""], pl.Binary),
        _column([Decimal("9" * 38), Decimal("-" + "9" * 38)], pl.Decimal(38, 0)),
        _column([Decimal("1.50"), Decimal("-99999999.99")], pl.Decimal(10, 2)),
        _column([Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38)], pl.Decimal(38, 38)),
        *(_ticks(time_bounds(kind), kind) for kind in _TIMES),
        _column(["ä\n", ""], pl.Categorical),
        _column(["b", "a"], pl.Enum(["a", "b"])),
        _column([None, None], pl.Null),
    ]
    return {_name(column.dtype): column.head(2).append(column.tail(1)) for column in columns}


def _name(kind: pl.DataType) -> str:
    return "Enum" if isinstance(kind, pl.Enum) else str(kind).replace("'", "").replace("μ", "u")


def _in_list(column: pl.Series) -> pl.Series:
    full = column.to_frame().select(pl.col("x").implode()).to_series()
    return full.append(pl.Series("x", [[], None], dtype=pl.List(column.dtype)))


def _in_array(column: pl.Series) -> pl.Series:
    kind = pl.Array(column.dtype, 3)
    return _in_list(column).head(1).cast(kind).append(pl.Series("x", [None, None], dtype=kind))


def _in_struct(column: pl.Series) -> pl.Series:
    full = column.rename("f").to_frame().to_struct("x")
    return full.gather([0, 2]).append(pl.Series("x", [None], dtype=full.dtype))


FLAT = _flat()
NESTED = {
    f"{how}({name})": nest(column)
    for how, nest in (("List", _in_list), ("Array", _in_array), ("Struct", _in_struct))
    for name, column in FLAT.items()
} | {
    "List(Struct(List(Binary)))": _in_list(_in_struct(_in_list(FLAT["Binary"]))),
    "List(Struct(Decimal, Date))": _in_list(
        pl.DataFrame({"d": FLAT["Decimal(precision=10, scale=2)"], "t": FLAT["Date"]}).to_struct("x")
    ),
    "Struct()": pl.Series("x", [{}, {}, {}], dtype=pl.Struct({})),
}
ALL = FLAT | NESTED


def _beyond(ticks: int, kind: pl.DataType) -> pl.Series:
    wire = pl.Int32 if isinstance(kind, pl.Date) else pl.Int64
    return pl.Series("x", [ticks, None, 0], dtype=wire).cast(kind)


OUT_OF_TIME = {
    f"{ticks} as {kind}": _beyond(ticks, kind)
    for ticks, kind in (
        (6_248_426_000_000_000_000, pl.Datetime("us")),
        (2**63 - 1, pl.Datetime("ms")),
        (-(2**63), pl.Datetime("us")),
        (2**63 - 1, pl.Datetime("us", "UTC")),
        (2**31 - 1, pl.Date()),
        (-(2**31), pl.Date()),
        (-(2**63), pl.Duration("ms")),
    )
}
"""Times that no stream may hold, though Polars keeps them."""
OUT_OF_TIME |= {f"list of {name}": _in_list(column) for name, column in OUT_OF_TIME.items()} | {
    f"struct of {name}": _in_struct(column) for name, column in OUT_OF_TIME.items()
}

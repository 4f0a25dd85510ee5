"""JSON as it comes: the readings of the keyed-window input as events whose layout differs from line to line.

Sensors have names instead of numbers, in several alphabets and some with quotes in them; the value lies in an object
within the event; members come in several orders, some only at times, with and without blanks; texts have escapes, the
same text with them and without; and more than half of every line is nothing that anybody asked for.
"""

from __future__ import annotations

import numpy as np
import polars as pl

MIXED_JSON = "mixed-json"
SCHEMA: dict[str, pl.DataType] = {
    "sensor": pl.String(),
    "ts": pl.Int64(),
    "reading": pl.Struct({"value": pl.Float64()}),
}
"""What systems are told of an event: the rest is undeclared."""

_LAYOUTS = 7
_SITES = (
    ("North Gate", "North Gate"),
    ("Café", r"Caf\u00e9"),
    ("Wärmepumpe", r"W\u00e4rmepumpe"),
    ("насос", r"\u043d\u0430\u0441\u043e\u0441"),
    ("变电站", "变电站"),
    (r"Hall \"B\"", r"Hall \u0022B\u0022"),
    ("deep/well", r"deep\/well"),
    ("😀 roof", r"\ud83d\ude00 roof"),
)
"""Two ways to write each name."""
_NOTES = (
    r"said \"stop\" twice",
    r"C:\\logs\\today",
    "żółć ☃",
    r"first line\nsecond line\twith a tab",
    r"caf\u00e9 \ud83d\ude00",
    "nothing to see here",
    "",
)
_TAGS = ("[]", '["eu-west"]', '["eu-west","metered"]', '["x","y","z"]', "null")
_UNITS = ("kWh", "V", "m³", "°C")


def write_events(rows: pl.DataFrame, seed: int, file_index: int) -> bytes:
    """Return sensor, ts and value of each row as a line; names, orders and chances depend on the seed."""
    shape, chance = np.random.default_rng([seed, 31]), np.random.default_rng([seed, 32, file_index])
    members = _make_members(rows, shape, chance)
    orders = [list(shape.permutation(list(members))) for _ in range(_LAYOUTS)]
    layouts = pl.Series("layout", chance.integers(0, _LAYOUTS, rows.height))
    values = pl.DataFrame([column.alias(name) for name, column in members.items()]).with_columns(
        layouts, row=pl.int_range(rows.height)
    )
    parts = []
    for layout, order in enumerate(orders):
        # Every third layout has blanks behind colons and commas.
        comma, colon = (", ", ": ") if layout % 3 == 2 else (",", ":")
        written = [pl.format(f'"{name}"{colon}{{}}', pl.col(name)) for name in order]
        line = pl.concat_str(pl.lit("{"), pl.concat_str(written, separator=comma, ignore_nulls=True), pl.lit("}"))
        parts.append(values.filter(pl.col("layout") == layout).select("row", line=line))
    lines = pl.concat(parts).sort("row").get_column("line")
    return str(lines.str.join("\n").item()).encode() + b"\n"


def _make_members(rows: pl.DataFrame, shape: np.random.Generator, chance: np.random.Generator) -> dict[str, pl.Series]:
    """Return how the members of each event are written, null where there is none."""
    count = rows.height

    def pick(texts: tuple[str, ...], choice: np.ndarray | None = None) -> pl.Series:
        return pl.Series(texts).gather(chance.integers(0, len(texts), count) if choice is None else choice)

    def at_times(column: pl.Series, share: float) -> pl.Series:
        return column.set(pl.Series(chance.random(count) >= share), None)

    sites = [_SITES[place] for place in shape.permutation(len(_SITES))]
    site = (rows.get_column("sensor") % len(sites)).to_numpy()
    is_escaped = pl.Series(chance.random(count) < 0.3)
    names = pick(tuple(escaped for _, escaped in sites), site)
    names = names.zip_with(is_escaped, pick(tuple(plain for plain, _ in sites), site))
    value, unit = rows.get_column("value").cast(pl.String), pick(_UNITS)
    score = pl.Series(chance.integers(0, 100, count)).cast(pl.String)
    plain, nested = '{{"value":{},"unit":"{}"}}', '{{"unit":"{}","quality":{{"ok":true,"score":0.{}}},"value":{}}}'
    return {
        "sensor": _format('"{} {}"', names, rows.get_column("sensor")),
        "ts": rows.get_column("ts").cast(pl.String),
        "reading": _format(plain, value, unit).zip_with(
            pl.Series(chance.random(count) < 0.5), _format(nested, unit, score, value)
        ),
        "id": _format('"{}"', pl.Series(chance.integers(10**15, 10**16, count))),
        "tags": at_times(pick(_TAGS), 0.7),
        "note": at_times(_format('"{}"', pick(_NOTES)), 0.5),
        "battery": at_times(_format("{}.5", pl.Series(chance.integers(-9, 99, count))), 0.4),
    }


def _format(form: str, *columns: pl.Series) -> pl.Series:
    return pl.select(pl.format(form, *columns)).to_series()

"""The streams that are joined and what comes out, in words that every system knows.

Flink's script reads this, too, so it imports nothing but Python.
"""

from __future__ import annotations

from collections.abc import Mapping

INTERVAL, EQ5, EQ5_WINDOWS, BNCI, BNCI_WINDOWS = "interval", "eq5", "eq5-windows", "bnci", "bnci-windows"
NEAR_ORDERS = (BNCI, BNCI_WINDOWS)
"""Queries that join lineitem with itself, by orders that are next to each other."""
TIMED = (INTERVAL, EQ5_WINDOWS)
"""Queries whose rows meet only if they are close in event time."""

# How long before and after an ad was shown a click may be, both ends included, and how long watermarks wait.
BEFORE_MS, AFTER_MS, DELAY_MS = 2_000, 8_000, 2_000

BY_TRUCK, MUCH = "l_shipmode = 'TRUCK'", "l_shipinstruct = 'NONE' AND l_quantity > 48"
"""Which lineitems are joined, on the left and on the right, by orders that are next to each other."""

VERSION_MS = 10_000
"""In windows, rows of TPC-H's small tables are sent anew so often."""
# So far before and after a row its partner may have been sent, both ends included: each finds one version.
NEWEST_MS = (VERSION_MS - 1, 0)
NEAREST_MS = (VERSION_MS // 2 - 1, VERSION_MS // 2)
# So far before and after a lineitem another may have been sent that it is joined with, in windows.
CLOSE_MS = (5_000, 5_000)

Columns = Mapping[str, str]
"""Name → type, as SQL has it; ``MOMENT`` is milliseconds in files, and a time in flows and results."""
MOMENT = "MOMENT"

_TABLES: Mapping[str, Columns] = {
    "lineitem": {
        "l_orderkey": "BIGINT",
        "l_linenumber": "INT",
        "l_suppkey": "BIGINT",
        "l_quantity": "DOUBLE",
        "l_extendedprice": "DOUBLE",
        "l_discount": "DOUBLE",
        "l_shipdate": "DATE",
        "l_shipinstruct": "STRING",
        "l_shipmode": "STRING",
    },
    "supplier": {"s_suppkey": "BIGINT", "s_name": "STRING", "s_nationkey": "BIGINT", "s_acctbal": "DOUBLE"},
    "nation": {"n_nationkey": "BIGINT", "n_name": "STRING", "n_regionkey": "BIGINT"},
    "region": {"r_regionkey": "BIGINT", "r_name": "STRING"},
}

_LINES: Columns = {
    "l_orderkey": "BIGINT",
    "l_linenumber": "INT",
    "l_quantity": "DOUBLE",
    "l_shipinstruct": "STRING",
    "l_shipmode": "STRING",
}

STREAMS: Mapping[str, Mapping[str, Columns]] = {
    INTERVAL: {
        "ads": {
            "ad": "BIGINT",
            "shown": MOMENT,
            "campaign": "STRING",
            "price": "DOUBLE",
            "place": "INT",
            "seen": "BOOLEAN",
        },
        "clicks": {
            "ad": "BIGINT",
            "clicked": MOMENT,
            "user": "STRING",
            "paid": "DOUBLE",
            "x": "INT",
            "mobile": "BOOLEAN",
        },
    },
    EQ5: _TABLES,
    EQ5_WINDOWS: {table: {**columns, f"{table[0]}_at": MOMENT} for table, columns in _TABLES.items()},
    BNCI: {"lineitem": _LINES},
    BNCI_WINDOWS: {"lineitem": {**_LINES, "l_at": MOMENT}},
}
"""Query → stream → its columns."""

_LEFT_OUT = {
    INTERVAL: ("ad",),
    EQ5: ("s_suppkey", "n_nationkey", "r_regionkey"),
    EQ5_WINDOWS: ("s_suppkey", "n_nationkey", "r_regionkey", "n_at", "r_at"),
}
"""What streams on the right have that results do not."""


def find_time(query: str, stream: str) -> str | None:
    """Return the column with the event time of a stream."""
    return next((name for name, kind in STREAMS[query][stream].items() if kind == MOMENT), None)


def list_results(query: str) -> dict[str, str]:
    """Return the columns of the results: those of all streams, of two that are equal the left one.

    Of lineitem joined with itself, those that tell rows apart, of either side.
    """
    if query in NEAR_ORDERS:
        names = ("l_orderkey", "l_linenumber", "l_quantity", "l_at")
        kept = {name: kind for name, kind in STREAMS[query]["lineitem"].items() if name in names}
        return {f"{name}{side}": kind for side in ("", "_right") for name, kind in kept.items()}
    first, *others = STREAMS[query].values()
    return {
        **first,
        **{name: kind for columns in others for name, kind in columns.items() if name not in _LEFT_OUT[query]},
    }

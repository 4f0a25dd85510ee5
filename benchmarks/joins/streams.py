"""The streams that are joined and what comes out, in words that every system knows.

Flink's script reads this, too, so it imports nothing but Python.
"""

from __future__ import annotations

from collections.abc import Mapping

INTERVAL, EQ5 = "interval", "eq5"

# How long before and after an ad was shown a click may be, both ends included, and how long watermarks wait.
BEFORE_MS, AFTER_MS, DELAY_MS = 2_000, 8_000, 2_000

Columns = Mapping[str, str]
"""Name → type, as SQL has it; ``MOMENT`` is milliseconds in files, and a time in flows and results."""
MOMENT = "MOMENT"

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
    EQ5: {
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
    },
}
"""Query → stream → its columns."""

_ON_THE_RIGHT = {INTERVAL: ("ad",), EQ5: ("s_suppkey", "n_nationkey", "r_regionkey")}


def list_results(query: str) -> dict[str, str]:
    """Return the columns of the results: those of all streams, and of two that are equal the left one."""
    first, *others = STREAMS[query].values()
    return {
        **first,
        **{name: kind for columns in others for name, kind in columns.items() if name not in _ON_THE_RIGHT[query]},
    }

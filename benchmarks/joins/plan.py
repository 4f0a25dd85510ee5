"""The parts of the joins bench: what is joined, in which formats, under which skew."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.joins.eq5_input import ANEW, SPREAD, WHOLE
from benchmarks.joins.memory.figures import MEMORY, MEMORY_SUMMARY
from benchmarks.joins.spread.points import SPREAD_PARTS
from benchmarks.joins.streams import EQ5, EQ5_WINDOWS, INTERVAL
from benchmarks.shared.figures import OURS
from benchmarks.shared.registry import BenchError, choose_names

HASHED = "anabranch-hash"
"""Ours with keys where their hash puts them, whatever that does to slots."""
OUR_WAYS = {OURS: "auto", HASHED: "none"}
"""System → how keys are placed, as our script is told."""
SPARK_MEMORY, SPARK_ROCKSDB, SPARK_ROCKSDB_4 = "spark-memory", "spark-rocksdb", "spark-rocksdb-4"
FLINK_HEAP, FLINK_ROCKSDB = "flink-heap", "flink-rocksdb"
FLINK_HEAP_MINI, FLINK_ROCKSDB_MINI = "flink-heap-mini", "flink-rocksdb-mini"
DBSP_HASH, DBSP_BALANCED = "dbsp-hash", "dbsp-balanced"
SHOWN_ONLY = ("dbsp",)
"""Peers that are shown as they are, and are not among those of which the best counts: libraries rather than systems."""
NAMES = {
    OURS: "Anabranch",
    HASHED: "Anabranch, by hash",
    SPARK_MEMORY: "Spark, in memory",
    SPARK_ROCKSDB: "Spark, RocksDB",
    SPARK_ROCKSDB_4: "Spark, RocksDB, format 4",
    FLINK_HEAP: "Flink, heap",
    FLINK_HEAP_MINI: "Flink, heap, mini-batch",
    FLINK_ROCKSDB: "Flink, RocksDB",
    FLINK_ROCKSDB_MINI: "Flink, RocksDB, mini-batch",
    DBSP_HASH: "dbsp, by hash",
    DBSP_BALANCED: "dbsp, adaptive join",
}
"""System → what people call it."""

_EVERY_SKEW = (0.0, 0.4, 0.8, 1.2, 1.5)
_SPARKS = (SPARK_MEMORY, SPARK_ROCKSDB, SPARK_ROCKSDB_4)


@dataclass(frozen=True, slots=True)
class JoinPart:
    """One join of the bench, on one kind of input."""

    name: str
    query: str
    summary: str
    arrival: str
    """In which order rows come."""
    formats: tuple[str, ...]
    exponents: tuple[float, ...]
    """Zipf exponents of the keys, unless others are asked for."""
    variants: tuple[tuple[str, tuple[str, ...]], ...]
    """Peer → the ways in which it can do it; the fastest counts."""

    def list_variants(self, peer: str) -> tuple[str, ...]:
        """Return the systems that stand for a peer; none if it does not run this part."""
        return dict(self.variants).get(peer, ())


# Mini-batches are for regular joins; an interval join takes rows as they come.
_INTERVAL_PEERS = (("spark", _SPARKS), ("flink", (FLINK_HEAP, FLINK_ROCKSDB)))
_REGULAR_PEERS = (
    ("spark", _SPARKS),
    ("flink", (FLINK_HEAP, FLINK_HEAP_MINI, FLINK_ROCKSDB_MINI)),
    ("dbsp", (DBSP_HASH, DBSP_BALANCED)),
)

PARTS: dict[str, JoinPart] = {
    part.name: part
    for part in (
        JoinPart(
            "interval",
            INTERVAL,
            "ads and clicks of the same ad, from 2 s before to 8 s after it was shown",
            "both streams side by side in event time, rows up to 1.9 s out of order",
            ("json", "parquet"),
            (0.8, 1.5),
            # Its adaptive join gives up no state.
            (*_INTERVAL_PEERS, ("dbsp", (DBSP_HASH,))),
        ),
        JoinPart(
            "eq5",
            EQ5,
            "lineitem with supplier, nation and region of TPC-H, over the full history",
            "region, nation and supplier whole in the first batch, lineitem from then on",
            ("parquet",),
            _EVERY_SKEW,
            _REGULAR_PEERS,
        ),
        JoinPart(
            "eq5-shuffled",
            EQ5,
            "the same, with suppliers that come among their lineitems",
            "region and nation in the first batch, supplier shuffled and spread over all batches of lineitem",
            ("parquet",),
            (0.8,),
            _REGULAR_PEERS,
        ),
        JoinPart(
            "eq5-windows",
            EQ5_WINDOWS,
            "the same with event time: lineitem with its supplier of up to 5 s before or after, and that with its "
            "newest nation and region, of less than 10 s before",
            "all streams side by side in event time, lineitems up to 1.9 s out of order; each supplier, nation and "
            "region is sent anew every 10 s",
            ("parquet",),
            _EVERY_SKEW,
            _INTERVAL_PEERS,
        ),
    )
}

OTHER_PARTS = {**SPREAD_PARTS, MEMORY: MEMORY_SUMMARY}
"""Parts that run beside no peer → what they measure."""
SUPPLIERS = {"eq5": WHOLE, "eq5-shuffled": SPREAD, "eq5-windows": ANEW}
"""Part → how suppliers come."""


def choose_parts(asked: tuple[str, ...] | None) -> tuple[list[JoinPart], list[str]]:
    """Return the parts to run beside peers, and the others by name; raise ``BenchError`` for strangers."""
    chosen = choose_names("parts", asked, (*PARTS, *OTHER_PARTS))
    return [part for part in PARTS.values() if part.name in chosen], [name for name in OTHER_PARTS if name in chosen]


def choose_formats(part: JoinPart, asked: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the formats that a part is run in, of those that were asked for; raise ``BenchError`` for strangers."""
    unknown = sorted(set(asked or ()) - {name for one in PARTS.values() for name in one.formats})
    if unknown:
        msg = f"unknown formats {', '.join(unknown)}; there are json and parquet, json for the interval join only"
        raise BenchError(msg)
    return tuple(name for name in part.formats if asked is None or name in asked)


def choose_systems(asked: tuple[str, ...] | None, peers: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the peers to compare with, in their own order, and all of their ways that may be run.

    A peer is asked for by its name, which means all of its ways, or by some of those. ``BenchError`` for strangers.
    """
    ways = {
        peer: tuple(dict.fromkeys(way for part in PARTS.values() for way in part.list_variants(peer))) for peer in peers
    }
    if asked is None:
        return peers, frozenset(way for some in ways.values() for way in some)
    unknown = sorted(set(asked) - set(peers) - {way for some in ways.values() for way in some})
    if unknown:
        told = "; ".join(f"{peer}: {', '.join(some)}" for peer, some in ways.items())
        msg = f"unknown peers {', '.join(unknown)}; joins knows {', '.join(peers)}, and of these single ways: {told}"
        raise BenchError(msg)
    chosen = {
        peer: tuple(way for way in some if way in asked) or (some if peer in asked else ())
        for peer, some in ways.items()
    }
    return tuple(peer for peer, some in chosen.items() if some), frozenset(
        way for some in chosen.values() for way in some
    )

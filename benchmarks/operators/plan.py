"""The operators of the operators bench: what every system is asked, and how native Spark may answer it."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.shared.registry import choose_names

WINDOW_MS, SLIDE_MS, MINUTE_MS, DELAY_MS = 10_000, 5_000, 60_000, 2_000
GAP_US = 4_999_500
"""Between two milliseconds: whether a row that comes exactly a gap later begins a session differs between systems."""
DISTINCT_LG_K, DISTINCT_ERROR = 12, 0.016
"""What a sketch of 2 ** 12 registers is off by, and so what native Spark is asked for."""
PERCENTILE, PERCENTILE_ACCURACY = 0.99, 1_000
"""Off by a thousandth of the rows, as a t-digest is here; by default, native Spark takes ten times the memory."""
BEST = 3
LEVEL = 500.0
"""More than any value, so that no row reaches two levels."""
MEMORY, ROCKSDB = "memory", "rocksdb"


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """One operator of the bench."""

    name: str
    summary: str
    counterpart: str
    """What native Spark has in its place."""
    stores: tuple[str, ...] = (MEMORY, ROCKSDB)
    """State stores that native Spark can do it with; the faster one counts."""
    share_of_rows: float = 1.0
    """Of the input, from its beginning: where a row costs tens of microseconds, fewer give a steady rate."""

    @property
    def figure(self) -> str:
        """The name of the figure that compares it."""
        return f"{self.name.replace('-', '_')}_x_spark"


OPERATORS: dict[str, OperatorCase] = {
    case.name: case
    for case in (
        OperatorCase("sliding", "windows of 10 s every 5 s per user: count, sum", "window()"),
        OperatorCase("session", "sessions of a user, 5 s apart: count, sum", "session_window()"),
        OperatorCase("running", "count and sum of a user from the beginning", "groupBy() in update mode"),
        OperatorCase("distinct", "the first row of each user and item", "dropDuplicates()"),
        OperatorCase("two-hops", "10 s per user and site, then minutes per site", "two windows in append mode"),
        OperatorCase(
            "sketches", "different users and the 99th percentile, per site", "approx_count_distinct, percentile_approx"
        ),
        OperatorCase("top-k", "the best three rows of a user in 10 s", "max_by(…, 3)"),
        OperatorCase(
            "process-rows",
            "a processor with a total a user, row by row",
            "transformWithState",
            stores=(ROCKSDB,),
            share_of_rows=1 / 24,
        ),
        OperatorCase(
            "process-frames",
            "the same, a frame at a time",
            "applyInPandasWithState",
            share_of_rows=1 / 6,
        ),
    )
}


def choose_operators(asked: tuple[str, ...] | None) -> list[OperatorCase]:
    """Return the operators to run, in the order of the bench; raise ``BenchError`` for strangers."""
    return [OPERATORS[name] for name in choose_names("operators", asked, OPERATORS)]

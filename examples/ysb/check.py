"""Compare the counts in Redis with the right ones, and say how late windows were, as the original's check does.

python -m examples.ysb.check
"""

from __future__ import annotations

import sys

import polars as pl

from benchmarks.ysb.answers import check_windows, measure_latency
from benchmarks.ysb.events import WINDOW_MS
from benchmarks.ysb.redis import read_windows
from examples.ysb.flow import REDIS
from examples.ysb.generate import ANSWER


def main() -> int:
    """Print what was found; the status is 1 if a count is wrong."""
    found, answer = read_windows(REDIS), pl.read_parquet(ANSWER)
    if found.is_empty():
        print("There are no windows in Redis yet.")
        return 1
    # The last windows close only when later events come.
    closed_until_ms = int(found.select(pl.col("window_start").max()).item()) + WINDOW_MS
    check = check_windows(found, answer, closed_until_ms)
    latency = measure_latency(found, 0, closed_until_ms)
    print(f"{found.height} windows, {found.get_column('seen_count').sum()} views seen")
    print("all counts are right" if check.equal else check.difference)
    if latency is not None:
        print(f"time_updated - window end: p50 {latency.p50_ms:.0f} ms, p99 {latency.p99_ms:.0f} ms")
    return 0 if check.equal else 1


if __name__ == "__main__":
    sys.exit(main())

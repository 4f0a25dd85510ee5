"""Write advertising events to a topic at a fixed rate, in a process of its own: a busy reader must not slow it down."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.ysb.topic import produce_at_rate


def main() -> None:
    """Produce as the options say; leave the right answer as a Parquet file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--answer", type=Path, required=True)
    given = parser.parse_args()
    produce_at_rate(given.servers, given.topic, given.rate, given.seconds, given.seed, given.answer)


if __name__ == "__main__":
    main()

"""Make campaigns and ads in Redis, and events in Kafka at a rate, as the original's generator does.

python -m examples.ysb.generate --rate 10000 --seconds 120
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.ysb.events import PARTITIONS, Ads
from benchmarks.ysb.redis import fill_redis
from benchmarks.ysb.topic import create_topic_if_absent, produce_at_rate
from examples.ysb.flow import REDIS, SERVERS, TOPIC

ANSWER = Path(__file__).parent / "output" / "answer.parquet"


def main() -> None:
    """Fill Redis anew, make the topic if there is none, and produce; the right counts are left for ``check.py``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000, help="events a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    ANSWER.parent.mkdir(exist_ok=True)
    fill_redis(REDIS, Ads(given.seed))
    create_topic_if_absent(SERVERS, TOPIC, PARTITIONS)
    produce_at_rate(SERVERS, TOPIC, given.rate, given.seconds, given.seed, ANSWER)


if __name__ == "__main__":
    main()

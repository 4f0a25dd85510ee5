"""Readings of sensors as messages of a topic."""

from __future__ import annotations

import json
from collections import Counter

import polars as pl

from servers.kafka import KafkaBroker

SCHEMA = {"sensor": pl.Int64, "ts": pl.Datetime("ms"), "volts": pl.Float64}
START_MS = 1_767_225_600_000
WINDOW_SECONDS = 10


def reading(sensor: int, second: float) -> bytes:
    """Return a message, so many seconds after the start of the stream."""
    return json.dumps({"sensor": sensor, "ts": START_MS + int(second * 1000), "volts": 230.0}).encode()


def send(broker: KafkaBroker, topic: str, seconds: range, partitions: int = 3) -> Counter[tuple[int, int]]:
    """Send one reading of every partition's sensor a second; return what windows of ten seconds must count."""
    expected: Counter[tuple[int, int]] = Counter()
    for number in range(partitions):
        broker.produce(topic, [reading(number, second) for second in seconds], partition=number)
        expected.update((number, second // WINDOW_SECONDS) for second in seconds)
    return expected

"""Topics that were deleted and made again between the planning of a batch and its reading, which may be days later."""

from __future__ import annotations

import os
import time

from anabranch.connectors.kafka.cluster import LiveCluster, OutOfReach
from anabranch.connectors.kafka.connection import KafkaConnection

LOOK_SECONDS = 5.0
"""As often as planners look."""

_seen: dict[tuple[int, KafkaConnection, str], tuple[str, float]] = {}
"""The id that a topic had when this process last asked, and when that was."""


def was_remade(connection: KafkaConnection, topic: str, id_then: str | None) -> bool:
    """Say whether a topic is another one than it was; splits of old checkpoints do not say what it was."""
    if id_then is None:
        return False
    place = (os.getpid(), connection, topic)
    known = _seen.get(place)
    if known is None or known[0] != id_then or time.monotonic() - known[1] > LOOK_SECONDS:
        try:
            found = LiveCluster(connection).topics([topic]).get(topic)
        except OutOfReach:
            return False  # whoever reads waits for the cluster, and says so
        if found is None:
            return False  # as brokers say that have just come back
        known = _seen[place] = (found.id, time.monotonic())
    return known[0] != id_then

"""A Kafka broker that is killed and stopped while a sink writes to it."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

from contracts.database_sinks import KafkaSubject, Stage, context, make_rows, rows_of
from soak.amounts import SEED

BATCHES = 60
ROWS_A_BATCH = 30
LONGEST_OUTAGE_SECONDS = 3.0


def test_a_broker_killed_or_stopped_at_any_moment_has_every_batch_once(own_kafka: Any, tmp_path: Path) -> None:
    print(f"ANABRANCH_SOAK_SEED={SEED}")
    chance = random.Random(SEED)
    subject, stage = KafkaSubject(own_kafka), Stage(tmp_path)
    sink = subject.opened(patience_seconds=120.0)
    for batch in range(BATCHES):
        staged = stage(sink, make_rows(1000 + ROWS_A_BATCH * batch, ROWS_A_BATCH))
        end = chance.choice([own_kafka.kill, own_kafka.kill, own_kafka.stop, None])
        # Some while the messages are taken, some around the commit, some after it.
        begin_seconds = chance.choice([0.0, 0.05 * chance.random(), 0.3 * chance.random()])
        outage_seconds = LONGEST_OUTAGE_SECONDS * chance.random()

        def disturb(end: Any = end, begin: float = begin_seconds, outage: float = outage_seconds) -> None:
            if end is not None:
                time.sleep(begin)
                end()
                time.sleep(outage)
                own_kafka.start()

        disturbance = threading.Thread(target=disturb)
        disturbance.start()
        sink.publish(batch, staged, context())
        disturbance.join()
    assert subject.rows() == rows_of(make_rows(1000, ROWS_A_BATCH * BATCHES))

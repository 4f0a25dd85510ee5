"""Topics made by chance, which every reader reads; formats are soaked by their unit tests."""

from __future__ import annotations

import random

import pytest

from anabranch.connectors.kafka_topics.cluster import TopicPart
from formats.topics import check_readers
from servers.kafka import KafkaBroker
from soak.amounts import TOPICS


@pytest.mark.parametrize("turn", range(TOPICS))
def test_every_reader_sees_the_same_messages(kafka: KafkaBroker, turn: int) -> None:
    topic, seed = f"chance-{turn}", random.SystemRandom().randrange(2**32)
    kafka.create_topic(topic)
    try:
        check_readers(kafka, TopicPart(topic, 0), random.Random(seed))
    except AssertionError as error:
        pytest.fail(f"with the seed {seed}: {error}")

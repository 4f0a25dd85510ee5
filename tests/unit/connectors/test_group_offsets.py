from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

from anabranch.connectors.kafka_topics import group_offsets, kafka
from anabranch.connectors.kafka_topics.cluster import OutOfReach, TopicPart
from anabranch.connectors.kafka_topics.group_offsets import GroupOffsets
from anabranch.connectors.kafka_topics.planner import Position
from anabranch.connectors.read_positions import ReadPositions
from anabranch.errors import FlowError, SourceError

PART = TopicPart("clicks", 0)


class Broker:
    """Takes offsets, when it is open; fails as often as it is told to."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.taken: list[tuple[str, int]] = []
        self.failures = failures
        self.error = error or OutOfReach("nobody answers")
        self.asked = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def commit_offsets(self, group: str, offsets: Mapping[TopicPart, int]) -> None:
        self.asked.set()
        self.open.wait(60)
        if self.failures:
            self.failures -= 1
            raise self.error
        self.taken.append((group, offsets[PART]))


def position(offset: int) -> dict[str, Any]:
    return Position({PART: offset}, {"clicks": "id"}).to_json()


def tell_of(broker: Broker) -> GroupOffsets:
    return GroupOffsets(lambda: broker, "lag", pauses_seconds=(0.01,))


def test_what_was_told_last_is_committed_when_the_run_ends() -> None:
    broker = Broker()
    teller = tell_of(broker)
    teller.tell(position(7))
    teller.close()
    assert broker.taken == [("lag", 7)]


def test_who_tells_does_not_wait_and_of_several_positions_the_newest_counts() -> None:
    broker = Broker()
    broker.open.clear()
    teller = tell_of(broker)
    teller.tell(position(1))
    assert broker.asked.wait(60)
    for offset in (2, 3, 4):
        teller.tell(position(offset))
    assert broker.taken == []
    broker.open.set()
    teller.close()
    assert broker.taken == [("lag", 1), ("lag", 4)]


def test_a_failure_is_told_once_and_made_good(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(failures=3)
    teller = tell_of(broker)
    with caplog.at_level(logging.WARNING, "anabranch"):
        teller.tell(position(1))
        while not broker.taken:
            threading.Event().wait(0.01)
        teller.close()
    assert broker.taken == [("lag", 1)]
    assert [record.getMessage() for record in caplog.records] == [
        "the offsets of the consumer group lag cannot be committed (nobody answers); the flow goes on",
        "the consumer group lag has the flow's offsets again",
    ]


def test_a_run_that_ends_tries_on_for_a_while_and_then_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "LAST_SECONDS", 60.0)
    loading = Broker(failures=5)
    teller = tell_of(loading)
    teller.tell(position(1))
    teller.close()
    assert loading.taken == [("lag", 1)]
    refusing = Broker(failures=1_000_000, error=SourceError("it has members"))
    teller = tell_of(refusing)
    teller.tell(position(1))
    began = time.monotonic()
    teller.close()
    assert refusing.taken == [] and time.monotonic() - began < 30.0
    monkeypatch.setattr(group_offsets, "LAST_SECONDS", 0.05)
    away = Broker(failures=1_000_000)
    teller = tell_of(away)
    teller.tell(position(1))
    teller.close()
    assert away.taken == []


def test_a_broker_that_never_answers_holds_no_run_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "LAST_SECONDS", 0.05)
    broker = Broker()
    broker.open.clear()
    teller = tell_of(broker)
    teller.tell(position(1))
    teller.close()
    assert broker.taken == []
    broker.open.set()


def test_only_sources_that_name_a_group_are_told_of() -> None:
    silent = kafka("host:1", "clicks", schema={"n": pl.Int64})
    telling = kafka("host:1", "clicks", schema={"n": pl.Int64}, commit_group="lag")
    assert not ReadPositions({0: silent, 1: object()}).are_told
    assert ReadPositions({0: silent, 1: telling}).are_told


@pytest.mark.parametrize("name", ["", "  ", 7, "anabranch-flow-topic"])
def test_what_is_no_group_or_holds_marks_is_refused(name: Any) -> None:
    with pytest.raises(FlowError, match="commit_group is"):
        kafka("host:1", "clicks", schema={"n": pl.Int64}, commit_group=name)

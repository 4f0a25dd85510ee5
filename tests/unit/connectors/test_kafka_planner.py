"""The planner of Kafka topics, against a cluster that exists only as numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.kafka_topics.cluster import OutOfReach, TopicFacts, TopicPart
from anabranch.connectors.kafka_topics.planner import (
    LOOK_SECONDS,
    PATIENCE_SECONDS,
    KafkaPlanner,
    PlanSettings,
    StartAt,
    share_out,
)
from anabranch.errors import SourceError
from anabranch.model import Admission


@dataclass
class FakeCluster:
    """Topics as (first, next) offsets, which a test changes as it likes."""

    ranges: dict[TopicPart, tuple[int, int]]
    ids: dict[str, str] = field(default_factory=dict)
    times: dict[TopicPart, int] = field(default_factory=dict)
    away: bool = False
    now: float = 0.0

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicFacts]:
        self._answer()
        found: dict[str, list[int]] = {}
        for part in self.ranges:
            found.setdefault(part.topic, []).append(part.number)
        return {
            name: TopicFacts(self.ids.get(name, "first"), tuple(sorted(found[name]))) for name in names if name in found
        }

    def starts(self, parts: Iterable[TopicPart]) -> Mapping[TopicPart, int]:
        self._answer()
        return {part: self.ranges[part][0] for part in parts}

    def ends(self, parts: Iterable[TopicPart]) -> Mapping[TopicPart, int]:
        self._answer()
        return {part: self.ranges[part][1] for part in parts}

    def at_time(self, parts: Iterable[TopicPart], time_ms: int) -> Mapping[TopicPart, int]:
        self._answer()
        return {part: self.times[part] for part in parts if part in self.times}

    def _answer(self) -> None:
        if self.away:
            raise OutOfReach("the Kafka servers do not answer: gone")


def part(number: int, topic: str = "clicks") -> TopicPart:
    return TopicPart(topic, number)


def planner_for(cluster: FakeCluster, **changed: Any) -> KafkaPlanner:
    settings: dict[str, Any] = {
        "topics": ("clicks",),
        "start": StartAt("earliest"),
        "admission": Admission(),
        "skips_lost": False,
        "patience_seconds": 60.0,
        "poll_seconds": 0.0,
    }

    def sleep(seconds: float) -> None:
        cluster.now += seconds

    return KafkaPlanner(
        cluster, PlanSettings(**(settings | changed)), lambda *_: 100.0, sleep=sleep, monotonic=lambda: cluster.now
    )


def ranges_of(planned: Any) -> list[tuple[int, int, int]]:
    return [(split["number"], split["from"], split["to"]) for split in planned.splits]


def step(cluster: FakeCluster, planner: KafkaPlanner, position: Any) -> Any:
    cluster.now += LOOK_SECONDS
    planned = planner.plan(None if position is None else json.loads(json.dumps(position)), cluster.now)
    return planned


def test_every_offset_is_planned_once() -> None:
    cluster = FakeCluster({part(0): (3, 10), part(1): (0, 4)})
    planner = planner_for(cluster)
    first = step(cluster, planner, None)
    assert ranges_of(first) == [(0, 3, 10), (1, 0, 4)]
    assert ranges_of(step(cluster, planner, first.position)) == []
    cluster.ranges[part(1)] = (0, 6)
    second = step(cluster, planner, first.position)
    assert ranges_of(second) == [(1, 4, 6)]
    assert ranges_of(step(cluster, planner_for(cluster), first.position)) == [(1, 4, 6)]


def test_splits_name_their_partition_for_its_own_time() -> None:
    cluster = FakeCluster({part(0): (0, 1), part(3): (0, 1)})
    planned = step(cluster, planner_for(cluster), None)
    assert [split["partition"] for split in planned.splits] == ["clicks/0", "clicks/3"]


def test_a_partition_that_appears_later_is_read_from_its_beginning() -> None:
    cluster = FakeCluster({part(0): (0, 5)})
    planner = planner_for(cluster, start=StartAt("latest"))
    position = step(cluster, planner, None).position
    cluster.ranges |= {part(0): (0, 7), part(1): (2, 4)}
    assert ranges_of(step(cluster, planner, position)) == [(0, 5, 7), (1, 2, 4)]


def test_starting_at_the_latest_writes_down_where_that_was() -> None:
    cluster = FakeCluster({part(0): (0, 5), part(1): (0, 9)})
    planned = step(cluster, planner_for(cluster, start=StartAt("latest")), None)
    assert [(split["from"], split["to"]) for split in planned.splits] == [(5, 5)]
    cluster.ranges |= {part(0): (0, 6), part(1): (0, 11)}
    # The next run has a planner of its own.
    later = step(cluster, planner_for(cluster, start=StartAt("latest")), planned.position)
    assert ranges_of(later) == [(0, 5, 6), (1, 9, 11)]


def test_starting_at_a_time_begins_with_its_first_message_or_with_what_comes() -> None:
    cluster = FakeCluster({part(0): (0, 5), part(1): (0, 9)}, times={part(0): 2})
    planner = planner_for(cluster, start=StartAt("time", 1000))
    planned = step(cluster, planner, None)
    assert ranges_of(planned) == [(0, 2, 5)]
    cluster.ranges[part(1)] = (0, 10)
    assert ranges_of(step(cluster, planner, planned.position)) == [(1, 9, 10)]


def test_rows_of_a_batch_are_shared_fairly() -> None:
    cluster = FakeCluster({part(0): (0, 100), part(1): (0, 100), part(2): (0, 4)})
    planner = planner_for(cluster, admission=Admission(max_rows=30))
    position, taken = None, []
    while (planned := step(cluster, planner, position)).splits:
        taken.append(ranges_of(planned))
        position = planned.position
    assert taken[0] == [(0, 0, 13), (1, 0, 13), (2, 0, 4)]
    assert sum(end - start for batch in taken for _, start, end in batch) == 204
    assert all(sum(end - start for _, start, end in batch) <= 30 for batch in taken)


def test_bytes_of_a_batch_go_by_the_size_of_a_message() -> None:
    cluster = FakeCluster({part(0): (0, 100)})
    planned = step(cluster, planner_for(cluster, admission=Admission(max_bytes=1000)), None)
    assert ranges_of(planned) == [(0, 0, 10)]
    assert planned.splits[0]["bytes"] == 1000


@given(
    st.dictionaries(st.tuples(st.just("t"), st.integers(0, 9)), st.integers(1, 50), max_size=6),
    st.integers(1, 100),
)
def test_shares_are_as_even_as_the_partitions_allow(waiting: dict[tuple[str, int], int], most: int) -> None:
    granted = share_out(waiting, most)
    assert sum(granted.values()) == min(most, sum(waiting.values()))
    assert all(0 <= granted[part] <= waiting[part] for part in waiting)
    cut = [granted[part] for part in waiting if granted[part] < waiting[part]]
    assert not cut or min(cut) >= max(granted.values()) - len(waiting)


def test_a_large_partition_is_read_by_several_tasks() -> None:
    cluster = FakeCluster({part(0): (0, 2_000_000)})
    planned = step(cluster, planner_for(cluster), None)
    assert len(planned.splits) == 3
    edges = [edge for _, start, end in ranges_of(planned) for edge in (start, end)]
    assert edges == sorted(edges)
    assert (edges[0], edges[-1]) == (0, 2_000_000)


def test_a_bound_planner_needs_no_cluster_any_more() -> None:
    cluster = FakeCluster({part(0): (0, 10), part(1): (0, 4)})
    planner = planner_for(cluster, admission=Admission(max_rows=6))
    planner.bound()
    cluster.ranges |= {part(0): (0, 99), part(7): (0, 99)}
    cluster.away = True
    position, rows = None, 0
    while (planned := step(cluster, planner, position)).splits:
        assert planner.more(position)
        rows += sum(end - start for _, start, end in ranges_of(planned))
        position = planned.position
    assert rows == 14
    assert not planner.more(position)


def test_messages_that_retention_took_stop_the_flow_and_name_the_offsets() -> None:
    cluster = FakeCluster({part(0): (0, 10)})
    position = step(cluster, planner_for(cluster, admission=Admission(max_rows=4)), None).position
    cluster.ranges[part(0)] = (7, 12)
    with pytest.raises(SourceError, match=r"topic clicks, partition 0: offsets 4 to 6 are gone.*on_loss='skip'"):
        step(cluster, planner_for(cluster), position)
    planned = step(cluster, planner_for(cluster, skips_lost=True), position)
    assert ranges_of(planned) == [(0, 7, 12)]
    assert "offsets 4 to 6 are gone" in planned.problems[0]


def test_a_topic_that_was_made_again_stops_the_flow_even_if_it_is_longer_now() -> None:
    cluster = FakeCluster({part(0): (0, 10)})
    position = step(cluster, planner_for(cluster), None).position
    cluster.ids["clicks"] = "second"
    cluster.ranges[part(0)] = (0, 50)
    with pytest.raises(SourceError, match="deleted and made again since offset 10"):
        step(cluster, planner_for(cluster), position)
    assert ranges_of(step(cluster, planner_for(cluster, skips_lost=True), position)) == [(0, 0, 50)]


def test_a_partition_that_is_shorter_than_before_may_belong_to_a_broker_that_is_starting() -> None:
    cluster = FakeCluster({part(0): (0, 10)})
    planner = planner_for(cluster, skips_lost=True)
    position = step(cluster, planner, None).position
    cluster.ranges[part(0)] = (0, 8)
    assert step(cluster, planner, position).splits == ()
    cluster.ranges[part(0)] = (0, 11)
    planned = step(cluster, planner, position)
    assert ranges_of(planned) == [(0, 10, 11)]
    assert "messages were lost" in planned.problems[0]
    cluster.ranges[part(0)] = (0, 8)
    for _ in range(int(PATIENCE_SECONDS / LOOK_SECONDS) + 1):
        assert step(cluster, planner, planned.position).splits == ()
    shortened = step(cluster, planner, planned.position)
    assert ranges_of(shortened) == [(0, 8, 8)], "what is left was read before"
    assert any(problem.endswith("went on at offset 8") for problem in shortened.problems)
    # It is in the checkpoint: what comes next is read, by whoever comes next.
    cluster.ranges[part(0)] = (0, 9)
    assert ranges_of(step(cluster, planner_for(cluster), shortened.position)) == [(0, 8, 9)]


def test_reading_to_a_bound_waits_for_a_partition_that_is_shorter_than_before() -> None:
    cluster = FakeCluster({part(0): (0, 10)})
    position = step(cluster, planner_for(cluster), None).position
    cluster.ranges[part(0)] = (0, 8)
    planner = planner_for(cluster)
    planner.bound()
    with pytest.raises(SourceError, match=r"ends at 8: messages were lost.*on_loss='skip' to go on at offset 8"):
        step(cluster, planner, position)
    planner = planner_for(cluster, skips_lost=True)
    planner.bound()
    assert ranges_of(step(cluster, planner, position)) == [(0, 8, 8)]


def test_a_partition_that_a_topic_had_before_it_was_made_again_begins_anew() -> None:
    cluster = FakeCluster({part(0): (0, 10), part(1): (0, 10)})
    position = step(cluster, planner_for(cluster), None).position
    cluster.ids["clicks"] = "second"
    cluster.ranges = {part(0): (0, 3)}
    fewer = step(cluster, planner_for(cluster, skips_lost=True), position)
    assert ranges_of(fewer) == [(0, 0, 3)]
    assert "made again since offset 10 of partition 0, 10 of partition 1; went on at its beginning" in fewer.problems[0]
    cluster.ranges[part(1)] = (0, 12)
    assert ranges_of(step(cluster, planner_for(cluster), fewer.position)) == [(1, 0, 12)]


def test_where_a_new_partition_begins_is_written_down_when_it_is_first_seen() -> None:
    cluster = FakeCluster({part(0): (0, 5)})
    position = step(cluster, planner_for(cluster), None).position
    cluster.ranges[part(1)] = (0, 0)
    seen = step(cluster, planner_for(cluster), position)
    assert [(split["from"], split["to"]) for split in seen.splits] == [(5, 5)]
    assert step(cluster, planner_for(cluster), seen.position).splits == ()
    # While the flow is down, messages come and go: that is a loss, not another beginning.
    cluster.ranges[part(1)] = (3, 4)
    with pytest.raises(SourceError, match="offsets 0 to 2 are gone"):
        step(cluster, planner_for(cluster), seen.position)


def test_a_topic_that_stays_away_is_gone() -> None:
    cluster = FakeCluster({part(0): (0, 10)})
    planner = planner_for(cluster)
    position = step(cluster, planner, None).position
    cluster.ranges.clear()
    with pytest.raises(SourceError, match="topic 'clicks' is gone"):
        for _ in range(20):
            assert step(cluster, planner, position).splits == ()


def test_a_cluster_out_of_reach_is_waited_for_told_of_once_and_given_up_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster({part(0): (0, 10)})
    planner = planner_for(cluster)
    position = step(cluster, planner, None).position
    cluster.away = True
    for _ in range(5):
        assert step(cluster, planner, position).splits == ()
    assert [record.message for record in caplog.records if "do not answer" in record.message] == [
        "the Kafka servers do not answer: gone; waiting for up to 60 s"
    ]
    cluster.away = False
    assert step(cluster, planner, position).splits == ()
    cluster.ranges[part(0)] = (0, 11)
    planned = step(cluster, planner, position)
    assert ranges_of(planned) == [(0, 10, 11)]
    assert "answered again after 25 s" in planned.problems[0]
    cluster.away = True
    with pytest.raises(SourceError, match="nothing is lost"):
        for _ in range(20):
            step(cluster, planner, planned.position)


def test_bounding_waits_for_the_cluster() -> None:
    cluster = FakeCluster({part(0): (0, 10)}, away=True)
    planner = planner_for(cluster)
    with pytest.raises(SourceError, match="do not answer"):
        planner.bound()
    assert cluster.now > 60


def test_a_topic_that_is_added_to_a_flow_begins_where_start_says() -> None:
    cluster = FakeCluster({part(0): (0, 10), part(0, "views"): (0, 7)})
    position = step(cluster, planner_for(cluster), None).position
    both = {"topics": ("clicks", "views"), "start": StartAt("latest")}
    seen = step(cluster, planner_for(cluster, **both), position)
    assert [(split["from"], split["to"]) for split in seen.splits] == [(10, 10)], "it is written down at once"
    # The next run has a planner of its own: what came while the flow was down is not skipped.
    cluster.ranges[part(0, "views")] = (0, 8)
    planned = step(cluster, planner_for(cluster, **both), seen.position)
    assert [(split["topic"], split["from"], split["to"]) for split in planned.splits] == [("views", 7, 8)]

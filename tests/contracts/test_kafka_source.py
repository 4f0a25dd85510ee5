"""The Kafka source against a real broker, without Spark."""

from __future__ import annotations

import json
import os
import pickle
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from anabranch.connectors.kafka_topics import consuming, reading
from anabranch.connectors.kafka_topics import kafka as read_kafka
from anabranch.connectors.kafka_topics import planner as planner_module
from anabranch.connectors.kafka_topics.securing import IN_THE_CLEAR
from anabranch.errors import FlowError, SourceError
from servers.kafka import SASL_PASSWORD, SASL_USER, KafkaBroker

SCHEMA = {"n": pl.Int64}
# Of late: retention takes messages that are a week old, whenever they were sent.
NOW_MS = int(time.time()) * 1000 - 60_000


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    """A topic of the test's own, with two partitions."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(name, 2)
    return name


@pytest.fixture(params=["through the client", "by compiled code", "in whole batches"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every way to read, whatever the size of a range."""
    smallest = 1_000_000_000 if request.param == "through the client" else 0
    monkeypatch.setattr(reading, "WORTH_COMPILED_CODE_MESSAGES", smallest)
    monkeypatch.setattr(reading, "_idle_readers", {})
    if request.param == "by compiled code":
        monkeypatch.setattr(reading, "find_security", lambda connection: None)
    return str(request.param)


def numbers(first: int, last: int) -> list[bytes]:
    return [b'{"n": %d}' % number for number in range(first, last)]


def source_of(broker: KafkaBroker, topic: Any, **changed: Any) -> Any:
    settings: dict[str, Any] = {"schema": SCHEMA, "poll_seconds": 0.0, "patience_seconds": 30.0}
    return read_kafka(broker.servers, topic, **(settings | changed))


def read_splits(source: Any, splits: Any) -> tuple[pl.DataFrame, list[tuple[str, str]]]:
    travelled = pickle.loads(pickle.dumps(source))
    outcomes = [outcome for split in json.loads(json.dumps(splits)) for outcome in travelled.read(split)]
    frames = [outcome.frame for outcome in outcomes]
    rejected = [pair for outcome in outcomes for pair in outcome.rejected]
    return (pl.concat(frames) if frames else pl.DataFrame(schema=dict(source.schema))), rejected


def wait_for_splits(planner: Any, position: Any) -> Any:
    """Plan until there is something to read, as an engine does."""
    deadline = time.monotonic() + 60.0
    while not (planned := planner.plan(position, time.time())).splits:
        assert time.monotonic() < deadline, "nothing was planned"
        time.sleep(0.05)
    return planned


def test_every_message_of_every_partition_comes_once_in_order(kafka: KafkaBroker, topic: str, reader: str) -> None:
    kafka.produce(topic, numbers(0, 500), partition=0)
    kafka.produce(topic, numbers(500, 700), partition=1)
    source = source_of(kafka, topic, include=("partition", "offset", "topic"))
    source.check()
    planner = source.planner()
    planned = wait_for_splits(planner, None)
    frame, rejected = read_splits(source, planned.splits)
    assert frame["n"].to_list() == [*range(700)]
    assert frame["offset"].to_list() == [*range(500), *range(200)]
    assert frame["partition"].unique().to_list() == [0, 1]
    assert frame["topic"].unique().to_list() == [topic]
    assert rejected == []
    # Again, and from the middle: the reader goes to where it is sent.
    assert read_splits(source, planned.splits)[0].equals(frame)
    middle = planned.splits[0] | {"from": 250, "to": 260}
    assert read_splits(source, [middle])[0]["n"].to_list() == [*range(250, 260)]


def test_batches_follow_each_other_while_messages_come(kafka: KafkaBroker, topic: str, reader: str) -> None:
    source = source_of(kafka, topic, max_rows=64)
    planner, position, seen = source.planner(), None, []
    for first in range(0, 300, 100):
        kafka.produce(topic, numbers(first, first + 50), partition=0)
        kafka.produce(topic, numbers(first + 50, first + 100), partition=1)
        for rows in (64, 36):
            planned = wait_for_splits(planner, position)
            frame, _ = read_splits(source, planned.splits)
            assert frame.height == rows
            seen += frame["n"].to_list()
            position = planned.position
    assert sorted(seen) == [*range(300)]


def test_keys_headers_and_times_of_messages(kafka: KafkaBroker, topic: str, reader: str) -> None:
    kafka.produce(
        topic, [b'{"n": 1}'], key=b"\x00k", headers=[("trace", b"a"), ("trace", b"\xff")], timestamp_ms=NOW_MS + 123
    )
    kafka.produce(topic, [b'{"n": 2}'], timestamp_ms=NOW_MS + 124)
    parts = ("key", "timestamp") if reader != "through the client" else ("key", "timestamp", "headers")
    source = source_of(kafka, topic, include=parts)
    frame, _ = read_splits(source, wait_for_splits(source.planner(), None).splits)
    assert dict(frame.schema) == dict(source.schema)
    assert frame["key"].to_list() == [b"\x00k", None]
    assert frame["timestamp"].dt.timestamp("ms").to_list() == [NOW_MS + 123, NOW_MS + 124]
    if "headers" in parts:
        assert frame["headers"].to_list() == [
            [{"name": "trace", "value": b"a"}, {"name": "trace", "value": b"\xff"}],
            None,
        ]


def test_tombstones_and_broken_messages_among_good_ones(kafka: KafkaBroker, topic: str, reader: str) -> None:
    kafka.produce(topic, [b'{"n": 0}', None, b"{broken", b"", b'{"n": 4}'], key=b"k")
    dropped = source_of(kafka, topic, include=("offset",))
    splits = wait_for_splits(dropped.planner(), None).splits
    frame, rejected = read_splits(dropped, splits)
    assert frame.rows() == [(0, 0), (4, 4)]
    assert [reason.partition(": ")[0] for reason, _ in rejected] == [
        f"topic {topic}, partition 0, offset {offset}" for offset in (2, 3)
    ]
    assert rejected[0][1] == "{broken"
    kept = source_of(kafka, topic, include=("offset", "key"), tombstones="keep")
    assert read_splits(kept, splits)[0].rows() == [(0, 0, b"k"), (None, 1, b"k"), (4, 4, b"k")]
    _, rejected = read_splits(source_of(kafka, topic, tombstones="reject"), splits)
    assert "offset 1: a tombstone" in rejected[0][0]


def test_only_committed_transactions_are_read(kafka: KafkaBroker, topic: str, reader: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": f"writer-{topic}"})
    producer.init_transactions(30)
    for number, commits in enumerate((True, False, True, False)):
        producer.begin_transaction()
        # Enough for the reader of whole batches to take them on.
        for value in numbers(number * 200, number * 200 + 200):
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)
    source = source_of(kafka, topic)
    # The messages and a marker each: the range ends with a marker behind messages that nobody may see.
    # Brokers write the markers after the producer was told, so it may take a moment.
    deadline = time.monotonic() + 60.0
    while (planned := wait_for_splits(planner := source.planner(), None)).splits[0]["to"] < 804:
        assert time.monotonic() < deadline, "the last marker never came"
    assert planned.splits[0]["to"] == 804
    assert read_splits(source, planned.splits)[0]["n"].to_list() == [*range(200), *range(400, 600)]
    producer.begin_transaction()
    producer.produce(topic, b'{"n": 999}', partition=0)
    producer.flush(30)
    assert planner.plan(planned.position, time.time()).splits == (), "an open transaction holds its messages back"
    producer.commit_transaction(30)
    last = wait_for_splits(planner, planned.position)
    assert read_splits(source, last.splits)[0]["n"].to_list() == [999]
    everything = source_of(kafka, topic, options={"isolation.level": "read_uncommitted"})
    planned = wait_for_splits(everything.planner(), None)
    assert read_splits(everything, planned.splits)[0].height == 801


def test_a_start_at_a_time_or_at_the_latest(kafka: KafkaBroker, topic: str) -> None:
    for number in range(5):
        kafka.produce(topic, numbers(number, number + 1), timestamp_ms=NOW_MS + number * 1000)
    third = datetime.fromtimestamp(NOW_MS / 1000 + 2, UTC)
    for start in (third, third.isoformat(), third.replace(tzinfo=None)):
        source = source_of(kafka, topic, start=start)
        frame, _ = read_splits(source, wait_for_splits(source.planner(), None).splits)
        assert frame["n"].to_list() == [2, 3, 4]
    source = source_of(kafka, topic, start="latest")
    first = source.planner().plan(None, time.time())
    assert read_splits(source, first.splits)[0].height == 0
    kafka.produce(topic, numbers(5, 6), partition=1)
    frame, _ = read_splits(source, wait_for_splits(source.planner(), first.position).splits)
    assert frame["n"].to_list() == [5]


def test_new_partitions_and_a_second_topic_are_found(kafka: KafkaBroker, topic: str) -> None:
    kafka.produce(topic, numbers(0, 3))
    other = f"{topic}-more"
    kafka.create_topic(other)
    kafka.produce(other, numbers(10, 12))
    source = source_of(kafka, [topic, other])
    first = wait_for_splits(source.planner(), None)
    assert {split["partition"] for split in first.splits} == {f"{topic}/0", f"{other}/0"}
    assert read_splits(source, first.splits)[0]["n"].to_list() == [0, 1, 2, 10, 11]
    kafka.add_partitions(topic, 4)
    kafka.produce(topic, numbers(20, 22), partition=3)
    second = wait_for_splits(source.planner(), first.position)
    assert read_splits(source, second.splits)[0]["n"].to_list() == [20, 21]


def test_messages_that_are_deleted_between_plan_and_read(kafka: KafkaBroker, topic: str, reader: str) -> None:
    kafka.produce(topic, numbers(0, 20))
    source = source_of(kafka, topic)
    planned = wait_for_splits(source.planner(), None)
    kafka.delete_records(topic, 0, 12)
    with pytest.raises(SourceError, match=rf"topic {topic}, partition 0: offsets from 0 are gone.*on_loss='skip'"):
        read_splits(source, planned.splits)
    skipping = source_of(kafka, topic, on_loss="skip")
    assert read_splits(skipping, planned.splits)[0]["n"].to_list() == [*range(12, 20)]


def test_a_topic_that_is_deleted_and_made_again_is_noticed(kafka: KafkaBroker, topic: str) -> None:
    kafka.produce(topic, numbers(0, 20))
    source = source_of(kafka, topic)
    position = wait_for_splits(source.planner(), None).position
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 2)
    kafka.produce(topic, numbers(0, 30))
    with pytest.raises(SourceError, match="deleted and made again"):
        wait_for_splits(source.planner(), position)


@pytest.mark.parametrize("left", [0, 12, 30])
def test_what_a_topic_that_was_made_again_holds_is_read_from_its_beginning(
    kafka: KafkaBroker, topic: str, left: int
) -> None:
    kafka.produce(topic, numbers(0, 20))
    position = wait_for_splits(source_of(kafka, topic).planner(), None).position
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)
    kafka.produce(topic, numbers(100, 100 + left))
    skipping = source_of(kafka, topic, on_loss="skip")
    planned = wait_for_splits(skipping.planner(), position)
    assert read_splits(skipping, planned.splits)[0]["n"].to_list() == [*range(100, 100 + left)]
    assert "made again since offset 20 of partition 0" in planned.problems[0]
    # A partition that the old topic had, too, is a new one.
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, numbers(200, 203), partition=1)
    later = wait_for_splits(source_of(kafka, topic).planner(), planned.position)
    assert read_splits(skipping, later.splits)[0]["n"].to_list() == [200, 201, 202]


def test_a_batch_that_was_planned_is_not_read_from_a_topic_that_was_made_again(
    kafka: KafkaBroker, topic: str, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.produce(topic, numbers(0, 20))
    source = source_of(kafka, topic)
    planned = wait_for_splits(source.planner(), None)
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 2)
    kafka.produce(topic, numbers(100, 130))
    monkeypatch.setattr(reading, "_topics_seen", {})
    with pytest.raises(SourceError, match=rf"topic {topic}, partition 0: offsets from 0 are gone.*made again"):
        read_splits(source, planned.splits)
    assert read_splits(source_of(kafka, topic, on_loss="skip"), planned.splits)[0].height == 0


def test_a_range_that_lost_its_end_is_not_waited_for_in_vain(
    kafka: KafkaBroker, topic: str, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "LOSS_SECONDS", 0.5)
    kafka.produce(topic, numbers(0, 20))
    source = source_of(kafka, topic)
    split = wait_for_splits(source.planner(), None).splits[0] | {"to": 25}
    with pytest.raises(SourceError, match=rf"topic {topic}, partition 0: offsets from 20 are gone.*on_loss='skip'"):
        read_splits(source, [split])
    assert read_splits(source_of(kafka, topic, on_loss="skip"), [split])[0]["n"].to_list() == [*range(20)]


def test_a_truncated_partition_goes_on_at_its_end(own_kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "PATIENCE_SECONDS", 1.0)
    own_kafka.create_topic("cut", 1)
    for number in range(0, 20, 5):
        own_kafka.produce("cut", numbers(number, number + 5))
    stopping, skipping = source_of(own_kafka, "cut"), source_of(own_kafka, "cut", on_loss="skip")
    position = wait_for_splits(stopping.planner(), None).position
    # As after an unclean election: the log loses its last batch, and half of the one before.
    own_kafka.kill()
    log = own_kafka.folder / "data" / "cut-0" / "00000000000000000000.log"
    batch_bytes = 12 + struct.unpack_from(">i", log.read_bytes(), 8)[0]
    os.truncate(log, 2 * batch_bytes + batch_bytes // 2)
    own_kafka.start()
    with pytest.raises(SourceError, match=r"next offset is 20, but the partition ends at 10.*to go on at offset 10"):
        wait_for_splits(stopping.planner(), position)
    shortened = wait_for_splits(skipping.planner(), position)
    assert read_splits(skipping, shortened.splits)[0].height == 0, "what is left was read before"
    assert any("went on at offset 10" in problem for problem in shortened.problems)
    # What comes while nobody looks is read by the next run.
    own_kafka.produce("cut", numbers(100, 103))
    later = wait_for_splits(stopping.planner(), shortened.position)
    assert read_splits(stopping, later.splits)[0]["n"].to_list() == [100, 101, 102]


def test_a_batch_that_is_damaged_on_the_disk_of_a_broker_gives_no_messages(
    own_kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_kafka.create_topic("worn", 1)
    for number in range(0, 600, 200):
        own_kafka.produce("worn", numbers(number, number + 200))
    source = source_of(own_kafka, "worn", on_loss="skip")
    splits = wait_for_splits(source.planner(), None).splits
    own_kafka.stop()
    log = own_kafka.folder / "data" / "worn-0" / "00000000000000000000.log"
    held = bytearray(log.read_bytes())
    held[held.index(b'{"n": 250}') + 6] ^= 1
    log.write_bytes(held)
    own_kafka.start()
    for smallest, security in ((1_000_000_000, None), (0, None), (0, IN_THE_CLEAR)):
        monkeypatch.setattr(reading, "WORTH_COMPILED_CODE_MESSAGES", smallest)
        monkeypatch.setattr(reading, "_idle_readers", {})
        monkeypatch.setattr(reading, "find_security", lambda connection, answer=security: answer)
        with pytest.raises(SourceError, match=r"topic worn, partition 0: messages at or behind offset \d+ are damaged"):
            read_splits(source, splits)
    # As the error says.
    own_kafka.delete_records("worn", 0, 400)
    assert read_splits(source, splits)[0]["n"].to_list() == [*range(400, 600)]


def test_messages_that_come_to_a_new_topic_while_the_flow_is_down_are_read(kafka: KafkaBroker, topic: str) -> None:
    other = f"{topic}-added"
    kafka.create_topic(other)
    kafka.produce(topic, numbers(0, 3))
    kafka.produce(other, numbers(10, 13))
    position = wait_for_splits(source_of(kafka, topic).planner(), None).position
    both = source_of(kafka, [topic, other], start="latest")
    seen = wait_for_splits(both.planner(), position)
    assert read_splits(both, seen.splits)[0].height == 0
    kafka.produce(other, numbers(13, 15))
    frame, _ = read_splits(both, wait_for_splits(both.planner(), seen.position).splits)
    assert frame["n"].to_list() == [13, 14]


def test_compacted_topics_have_gaps(kafka: KafkaBroker, reader: str) -> None:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(
        name,
        1,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
        min_compaction_lag_ms="0",
    )
    for number in range(3):
        kafka.produce(name, numbers(number * 20, number * 20 + 20), key=b"k%d" % (number % 2))
        time.sleep(0.2)
    source = source_of(kafka, name)
    planned = wait_for_splits(source.planner(), None)
    # Whether the cleaner has been there or not, the range is read to its end.
    frame, _ = read_splits(source, planned.splits)
    assert frame["n"].to_list()[-1] == 59


def test_a_login_is_passed_on_and_never_shown(kafka: KafkaBroker, topic: str, reader: str) -> None:
    kafka.produce(topic, numbers(0, 3))
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": SASL_USER,
        "sasl.password": SASL_PASSWORD,
    }
    source = read_kafka(kafka.sasl_servers, topic, schema=SCHEMA, options=options)
    source.check()
    frame, _ = read_splits(source, wait_for_splits(source.planner(), None).splits)
    assert frame["n"].to_list() == [0, 1, 2]
    assert SASL_PASSWORD not in source.label + repr(source) + repr(source.connection)
    wrong = read_kafka(kafka.sasl_servers, topic, schema=SCHEMA, options={**options, "sasl.password": "hunter2"})
    with pytest.raises(SourceError) as refused:
        wrong.check()
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("servers", "changed", "words"),
    [
        ("localhost", {}, "'host:port'"),
        ("me:hunter2@host:9092", {}, "go to options"),
        ("host:9092", {"options": {"auto.offset.reset": "latest"}}, "give start"),
        ("host:9092", {"options": {"isolation.level": "dirty"}}, "read_committed"),
        ("host:9092", {"start": "yesterday"}, "'earliest', 'latest'"),
        ("host:9092", {"max_rows": 0}, "max_rows is 0"),
        ("host:9092", {"include": ("value",)}, "use one of key, headers"),
        ("host:9092", {"include": {"offset": "n"}}, "the values have, too"),
        ("host:9092", {"format": "xml"}, "use one of json, avro"),
        ("host:9092", {"tombstones": "bury"}, "use one of drop"),
    ],
)
def test_settings_that_cannot_work_are_refused(servers: str, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(FlowError, match=words) as refused:
        read_kafka(servers, "t", **({"schema": SCHEMA} | changed))
    assert "hunter2" not in str(refused.value)


def test_a_missing_topic_and_a_missing_cluster_are_found_before_the_first_batch(kafka: KafkaBroker) -> None:
    with pytest.raises(SourceError, match="have no topic 'nowhere'"):
        source_of(kafka, "nowhere").check()
    with pytest.raises(SourceError, match="do not answer"):
        read_kafka("127.0.0.1:1", "t", schema=SCHEMA).check()
    with pytest.raises(SourceError, match=r"does not accept 'no.such.setting'"):
        source_of(kafka, "nowhere", options={"no.such.setting": "hunter2"}).check()


@pytest.fixture
def interrupted(own_kafka: KafkaBroker) -> Iterator[Callable[[Callable[[], None], Callable[[], None]], None]]:
    """Do something to the broker while the test goes on, and undo it two seconds later."""
    threads: list[threading.Thread] = []

    def interrupt(begin: Callable[[], None], end: Callable[[], None]) -> None:
        begin()
        thread = threading.Thread(target=lambda: (time.sleep(2.0), end()))
        thread.start()
        threads.append(thread)

    yield interrupt
    for thread in threads:
        thread.join()


def test_a_broker_that_stops_or_hangs_is_waited_for(own_kafka: KafkaBroker, interrupted: Any) -> None:
    own_kafka.create_topic("steady", 2)
    own_kafka.produce("steady", numbers(0, 100))
    source = source_of(own_kafka, "steady", max_rows=40)
    planner = source.planner()
    position, seen = None, []
    for begin, end in (
        (own_kafka.kill, own_kafka.start),
        (own_kafka.pause, own_kafka.resume),
        (own_kafka.stop, own_kafka.start),
    ):
        planned = wait_for_splits(planner, position)
        interrupted(begin, end)
        frame, _ = read_splits(source, planned.splits)
        seen += frame["n"].to_list()
        position = planned.position
    assert seen == [*range(100)]
    own_kafka.produce("steady", numbers(100, 110))
    planned = wait_for_splits(planner, position)
    assert read_splits(source, planned.splits)[0]["n"].to_list() == [*range(100, 110)]


def test_a_group_is_told_of_positions_and_shows_no_lag_at_the_end(kafka: KafkaBroker, topic: str) -> None:
    kafka.produce(topic, numbers(0, 30), partition=0)
    kafka.produce(topic, numbers(0, 20), partition=1)
    source = source_of(kafka, topic, max_rows=20, commit_group=f"lag-of-{topic}")
    planner, teller, position = source.planner(), source.open_teller(), None
    position = wait_for_splits(planner, position).position
    teller.tell(position)
    deadline = time.monotonic() + 60.0
    while kafka.group_offsets(f"lag-of-{topic}") != {0: 10, 1: 10}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for _ in range(2):
        position = wait_for_splits(planner, position).position
        teller.tell(position)
    teller.close()
    assert kafka.group_offsets(f"lag-of-{topic}") == {0: 30, 1: 20}


def test_a_group_with_members_is_left_to_them(kafka: KafkaBroker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    from confluent_kafka import Consumer

    kafka.produce(topic, numbers(0, 5))
    group = f"members-of-{topic}"
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    member = Consumer({"bootstrap.servers": kafka.servers, **settings})
    try:
        member.subscribe([topic])
        while member.poll(0.1) is None:
            pass
        source = source_of(kafka, topic, commit_group=group)
        teller = source.open_teller()
        teller.tell(wait_for_splits(source.planner(), None).position)
        teller.close()
        assert kafka.group_offsets(group) == {}
        (told,) = [record.getMessage() for record in caplog.records if group in record.getMessage()]
        assert "it has members" in told and "the flow goes on" in told
    finally:
        member.close()

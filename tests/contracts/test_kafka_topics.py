"""What the sink to Kafka does beyond the contract: keys, headers, formats, tombstones, fencing, rights."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

import anabranch as ab
from anabranch.connectors import kafka_topic
from anabranch.connectors.filesystem.staged_frames import read_staged
from anabranch.connectors.kafka_topics import sink as sinks
from anabranch.connectors.kafka_topics.marked_group import TopicMark
from anabranch.connectors.kafka_topics.sink import _Sent
from anabranch.connectors.sink_ownership import TakenOver
from anabranch.errors import SinkError
from contracts.database_sinks import SCHEMA, KafkaSubject, Stage, context, make_rows, read_committed, rows_of
from servers.kafka import KafkaBroker
from servers.schema_registry import schema_registry


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def subject(kafka: KafkaBroker) -> KafkaSubject:
    return KafkaSubject(kafka)


def test_keys_headers_and_timestamps_are_columns(subject: KafkaSubject, stage: Stage) -> None:
    sink = subject.opened(headers={"who": "name", "when": "window_end"}, timestamp="window_end")
    sink.publish(0, stage(sink, make_rows(1000, 2)), context())
    first, second = sorted(subject.messages(), key=lambda message: message.key())
    assert (first.key(), second.key()) == (b"1000", b"1001")
    assert first.headers() == [("who", 'näme, "1000"\n'.encode()), ("when", b"2026-01-01T00:16:40.001")]
    assert [name for name, _ in second.headers()] == ["when"]
    moment = make_rows(1000, 1).get_column("window_end")[0].replace(tzinfo=UTC)
    assert first.timestamp()[1] == int(moment.timestamp() * 1000)


def test_several_columns_make_a_json_key_and_equal_keys_share_a_partition(subject: KafkaSubject, stage: Stage) -> None:
    sink = subject.opened(key=("sensor", "name"))
    for batch in range(3):
        sink.publish(batch, stage(sink, make_rows(1000, 8)), context())
    partitions: dict[bytes, set[int]] = {}
    for message in subject.messages():
        partitions.setdefault(message.key(), set()).add(message.partition())
    assert len(partitions) == 8
    assert all(len(found) == 1 for found in partitions.values())
    assert {json.loads(key)["sensor"] for key in partitions} == set(range(1000, 1008))


def test_a_row_with_nothing_but_its_key_is_a_tombstone_if_that_is_wanted(subject: KafkaSubject, stage: Stage) -> None:
    sink = subject.opened(tombstones=True)
    rows = make_rows(1000, 2).with_columns(
        pl.when(pl.col("sensor") != 1001).then(pl.col(column)).alias(column) for column in SCHEMA if column != "sensor"
    )
    sink.publish(0, stage(sink, rows), context())
    values = {message.key(): message.value() for message in subject.messages()}
    assert values[b"1001"] is None
    assert json.loads(values[b"1000"])["total"] == 250.0


def test_raw_bytes_go_as_they_are(subject: KafkaSubject, stage: Stage) -> None:
    rows = pl.DataFrame({"sensor": [1, 2], "payload": [b"\0\xff", b""]})
    sink = subject.make(format="raw", value="payload")
    sink.check(dict(rows.schema))
    sink.claim("test", None)
    sink.publish(0, stage(sink, rows), context())
    assert sorted(message.value() for message in subject.messages()) == [b"", b"\0\xff"]


def test_avro_records_bear_times_in_utc(subject: KafkaSubject, stage: Stage) -> None:
    import fastavro

    sink = subject.make(format="avro")
    sink.check(SCHEMA)
    sink.claim("test", None)
    sink.publish(0, stage(sink, make_rows(1000, 1)), context())
    (message,) = subject.messages()
    schema = fastavro.parse_schema(sink.staging.encoder.schema_of(SCHEMA))
    row = fastavro.schemaless_reader(io.BytesIO(message.value()), schema, None)
    assert row["sensor"] == 1000
    assert row["window_end"] == make_rows(1000, 1).get_column("window_end")[0].replace(tzinfo=UTC)


def test_avro_values_bear_the_number_of_their_schema_in_a_registry(subject: KafkaSubject, stage: Stage) -> None:
    import fastavro

    with schema_registry() as registry:
        sink = subject.make(format="avro", registry=registry.url)
        sink.check(SCHEMA)
        sink.claim("test", None)
        (number,) = registry.subjects[f"{subject.name}-value"]
        sink.publish(0, stage(sink, make_rows(1000, 1)), context())
    (message,) = subject.messages()
    assert message.value()[:5] == b"\0" + number.to_bytes(4, "big")
    schema = fastavro.parse_schema(json.loads(registry.schemas[number]["schema"]))
    assert fastavro.schemaless_reader(io.BytesIO(message.value()[5:]), schema, None)["sensor"] == 1000


def test_an_aborted_transaction_is_not_seen(subject: KafkaSubject, stage: Stage) -> None:
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000)), context())
    # As far as a driver comes that is killed in the middle.
    client = sink._session.producer.client
    client.begin_transaction()
    client.produce(subject.name, b"half a batch", b"x")
    client.flush(10)
    again = subject.make()
    again.check(SCHEMA)
    again.claim("test", 1)
    again.publish(1, stage(again, make_rows(1003)), context(epoch=2))
    assert subject.rows() == rows_of(make_rows(1000, 6))


def test_a_driver_that_was_replaced_is_fenced_before_it_publishes(subject: KafkaSubject, stage: Stage) -> None:
    old = subject.opened()
    new = subject.make()
    new.check(SCHEMA)
    new.claim("test", 0)
    with pytest.raises(SinkError, match="another driver of the flow 'test'"):
        old.publish(0, stage(old, make_rows(1000)), context())
    assert subject.rows() == []


def test_many_messages_arrive_whole(subject: KafkaSubject, stage: Stage) -> None:
    sink = subject.opened(options={"queue.buffering.max.messages": 1000})
    rows = make_rows(0, 20_000)
    sink.publish(0, stage(sink, rows), context())
    assert len(read_committed(subject.server.servers, subject.name)) == 20_000


def test_wrong_settings_are_said_before_the_first_batch(kafka: KafkaBroker) -> None:
    missing = kafka_topic(kafka.servers, "no-such-topic")
    missing.check(SCHEMA)
    with pytest.raises(SinkError, match="create the topic"):
        missing.claim("test", None)
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": "hush-hush",
    }
    locked = kafka_topic(kafka.sasl_servers, "any", options=options, patience_seconds=3.0)
    locked.check(SCHEMA)
    with pytest.raises(SinkError, match="user or password is wrong") as raised:
        locked.claim("test", None)
    assert "hush" not in f"{raised.value} {locked!r} {locked.label} {locked.place}"
    with pytest.raises(SinkError, match=r"host:port"):
        kafka_topic("kafka", "topic")
    with pytest.raises(SinkError, match="json, avro, protobuf or raw"):
        kafka_topic(kafka.servers, "topic", format="xml")  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="needs value_schema"):
        kafka_topic(kafka.servers, "topic", format="protobuf")
    with pytest.raises(SinkError, match="names 'site'"):
        kafka_topic(kafka.servers, "topic", key="site").check(SCHEMA)
    with pytest.raises(SinkError, match="no time"):
        kafka_topic(kafka.servers, "topic", timestamp="total").check(SCHEMA)


def test_a_topic_that_the_flow_reads_is_refused_however_its_servers_are_named(subject: KafkaSubject) -> None:
    port = subject.server.servers.rpartition(":")[2]
    flow = ab.Flow("loop")
    rows = flow.read(ab.kafka(subject.server.servers, subject.name, schema={"sensor": pl.Int64}))
    rows.write(kafka_topic(f"localhost:{port}", subject.name))
    with pytest.raises(SinkError, match=rf"the topic {subject.name} of localhost:{port}, which the source"):
        flow.check()
    other = ab.Flow("no-loop")
    rows = other.read(ab.kafka(subject.server.servers, subject.name, schema={"sensor": pl.Int64}))
    rows.write(kafka_topic(f"localhost:{port}", f"{subject.name}-results"))
    rows.write(kafka_topic("127.0.0.1:1", subject.name))
    other.check()


def test_a_time_that_the_topic_does_not_take_is_said_at_once(subject: KafkaSubject, stage: Stage) -> None:
    sink = subject.opened(timestamp="window_end")
    rows = make_rows(1000, 1).with_columns(window_end=pl.lit(datetime(9999, 12, 31)).cast(SCHEMA["window_end"]))
    with pytest.raises(SinkError, match=r"INVALID_TIMESTAMP.*raise the topic's message.timestamp.after.max.ms"):
        sink.publish(0, stage(sink, rows), context())


def test_a_driver_that_wakes_up_in_its_start_does_not_end_the_newer_one(subject: KafkaSubject, stage: Stage) -> None:
    new, old = subject.opened(), subject.make()
    new.publish(0, stage(new, make_rows(1000)), context(epoch=2))
    old.check(SCHEMA)
    old.claim("test", 0)
    staged = stage(new, make_rows(1003))
    with pytest.raises(TakenOver, match="took its transactions over"):
        new.publish(1, staged, context(epoch=2))
    # It still has the lease, and takes the topic back.
    new.publish(1, staged, context(epoch=2))
    assert subject.rows() == rows_of(make_rows(1000, 6))


def test_a_topic_that_another_driver_wrote_to_is_not_taken_back(subject: KafkaSubject, stage: Stage) -> None:
    one, other = subject.opened(), subject.opened()
    other.publish(0, stage(other, make_rows(1000)), context())
    staged = stage(one, make_rows(1003))
    with pytest.raises(TakenOver):
        one.publish(0, staged, context())
    for _ in range(2):
        with pytest.raises(SinkError, match="see who else runs the flow"):
            one.publish(0, staged, context())
    assert subject.rows() == rows_of(make_rows(1000))


def forget_the_end(kafka: KafkaBroker, name: str) -> None:
    """Let the broker take an open transaction as committed without having written its end anywhere.

    So does one that is killed while it writes the ends, and finds its partitions without a leader when it starts.
    """
    from confluent_kafka import Consumer, Producer, TopicPartition

    log, committed = "__transaction_state", b"\x04"
    settings = {"bootstrap.servers": kafka.servers, "group.id": "onlooker", "enable.partition.eof": True}
    reader = Consumer(settings | {"enable.auto.commit": False})
    partitions = reader.list_topics(log, 10).topics[log].partitions
    reader.assign([TopicPartition(log, number, 0) for number in partitions])
    ended, latest = 0, None
    while ended < len(partitions):
        message = reader.poll(10)
        assert message is not None
        if message.error() is not None:
            ended += 1
        elif message.value() is not None and name.encode() in message.key():
            latest = message
    reader.close()
    assert latest is not None
    # Version, producer and its epoch, and the timeout come before the state.
    place = 2 + 8 + 2 + 4
    value = latest.value()
    assert value[place : place + 1] == b"\x01", "the transaction is open"
    # Only who calls itself so may write to the brokers' own topics.
    writer = Producer({"bootstrap.servers": kafka.servers, "client.id": "__admin_client"})
    writer.produce(log, value[:place] + committed + value[place + 1 :], latest.key(), latest.partition())
    assert writer.flush(10) == 0
    kafka.kill()
    kafka.start()


@pytest.mark.parametrize("was_confirmed", [False, True])
def test_a_transaction_whose_end_a_broker_forgot_is_aborted_and_its_batch_sent_again(
    own_kafka: KafkaBroker,
    stage: Stage,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    was_confirmed: bool,
) -> None:
    monkeypatch.setattr(sinks, "ANSWER_SECONDS", 4.0)
    subject = KafkaSubject(own_kafka)
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000, 5)), context())
    rows = stage(sink, make_rows(2000, 5))
    producer, group = sink._session.producer, sink._session.group
    mark = TopicMark(1, sink._session.published.epoch)
    producer.produce(read_staged(rows), b"")
    producer.client.send_offsets_to_transaction([group.position_of(mark, "test")], group.metadata, 10.0)
    sink._session.sent = _Sent(1, producer.places)
    if was_confirmed:
        sink._session.published = mark
    forget_the_end(own_kafka, f"anabranch-test-{subject.name}")
    sink.publish(1, rows, context())
    assert "forgot to end the transaction of batch 1" in caplog.text
    assert subject.rows() == rows_of(pl.concat([make_rows(1000, 5), make_rows(2000, 5)]))
    sink.close()
    # Whoever comes now finds nothing open, and the mark of the batch.
    following = subject.make()
    following.check(SCHEMA)
    following.claim("test", 1)
    assert following._session.published == mark
    following.publish(2, stage(following, make_rows(3000, 5)), context())
    assert len(subject.rows()) == 15


def test_a_batch_of_which_only_the_mark_was_lost_is_marked_and_not_sent_again(
    subject: KafkaSubject, stage: Stage
) -> None:
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000, 5)), context())
    rows = stage(sink, make_rows(2000, 5))
    producer = sink._session.producer
    producer.produce(read_staged(rows), b"")
    producer.client.commit_transaction(10.0)
    sink.close()
    sink._session.sent = _Sent(1, producer.places)
    sink.publish(1, rows, context())
    assert sink._session.group.peek().batch == 1
    assert subject.rows() == rows_of(pl.concat([make_rows(1000, 5), make_rows(2000, 5)]))


def test_a_batch_that_brokers_kept_in_one_partition_and_lost_in_another_stops_the_flow(
    subject: KafkaSubject, stage: Stage
) -> None:
    sink = subject.opened()
    rows = stage(sink, make_rows(2000, 30))
    producer = sink._session.producer
    found = []
    for end in (producer.client.abort_transaction, producer.client.commit_transaction):
        producer.produce(read_staged(rows), b"")
        end(10.0)
        found.append(producer.places)
    aborted, committed = found
    sink.close()
    sink._session.sent = _Sent(0, {0: committed[0], 1: aborted[1]})
    with pytest.raises(SinkError, match=r"has the messages of batch 0 in the partitions 0, and brokers .* those in 1"):
        sink.publish(0, rows, context())


def test_messages_that_a_broker_lost_though_it_kept_their_mark_are_sent_again(
    subject: KafkaSubject, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000, 5)), context())
    rows = stage(sink, make_rows(2000, 5))
    producer, group = sink._session.producer, sink._session.group
    # As after a commit of which only the mark was left: its messages are aborted, the mark stands.
    producer.produce(read_staged(rows), b"")
    places = producer.places
    producer.client.abort_transaction(10.0)
    marking = group._make_consumer("read_committed")
    marking.commit(offsets=[group.position_of(TopicMark(1, 1), "test")], asynchronous=False)
    marking.close()
    sink.close()
    sink._session.sent = _Sent(1, places)
    sink.publish(1, rows, context())
    assert "lost the messages of batch 1" in caplog.text
    sink.close()
    sink.publish(1, rows, context())
    assert subject.rows() == rows_of(pl.concat([make_rows(1000, 5), make_rows(2000, 5)]))

"""Messages made and damaged by chance, many of them."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.connectors.formats.value_encoders import AvroEncoder, JsonEncoder
from anabranch.connectors.kafka.cluster import TopicPart
from formats import avro, kafka_batches, properties, protobuf
from formats.damage import damaged
from formats.frames import frames
from formats.topics import check_readers
from servers.kafka import KafkaBroker
from soak.amounts import MESSAGE_EXAMPLES, TOPICS

long = settings(max_examples=MESSAGE_EXAMPLES, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
@long
@given(case=avro.cases(avro.FLAT_FIELDS))
def test_flat_avro_records_are_read_as_the_specification_says(case: avro.Case, compiled: bool) -> None:
    properties.check_avro(case, compiled=compiled)


@long
@given(case=avro.cases(avro.ALL_FIELDS))
def test_nested_avro_records_are_read_as_the_specification_says(case: avro.Case) -> None:
    properties.check_avro(case, compiled=True)


@long
@given(made=kafka_batches.batches(), data=st.data())
def test_batches_of_records_hold_what_was_written(made: list[kafka_batches.Batch], data: st.DataObject) -> None:
    first = data.draw(st.integers(made[0].base_offset, made[-1].next_offset))
    last = data.draw(st.integers(first, made[-1].next_offset))
    properties.check_batches(made, first, last)


@long
@given(made=kafka_batches.batches(), data=st.data())
def test_nothing_comes_of_damaged_batches_that_was_not_written(
    made: list[kafka_batches.Batch], data: st.DataObject
) -> None:
    written = b"".join(map(kafka_batches.write_batch, made))
    properties.check_damaged_batches(made, data.draw(damaged(written)))


@long
@given(records=st.lists(kafka_batches.RECORDS, min_size=1, max_size=4), data=st.data())
def test_wild_lengths_among_records_are_found(records: list[kafka_batches.Record], data: st.DataObject) -> None:
    body = data.draw(damaged(kafka_batches.write_records(records)))
    properties.check_wild_records(body, len(records), 1000)


@long
@given(case=protobuf.cases())
def test_protobuf_messages_are_read_as_by_its_own_library(case: protobuf.Case) -> None:
    properties.check_protobuf(case)


@long
@given(frame=frames())
def test_json_values_are_read_back_as_they_were(frame: pl.DataFrame) -> None:
    properties.check_round_trip(JsonEncoder(), properties.json_decoder(frame.schema), frame)


@long
@given(frame=frames(pl.Binary))
def test_avro_values_are_read_back_as_they_were(frame: pl.DataFrame) -> None:
    properties.check_round_trip(AvroEncoder(None, "t"), properties.avro_decoder(frame.schema), frame)


@pytest.mark.parametrize("turn", range(TOPICS))
def test_every_reader_sees_the_same_messages(kafka: KafkaBroker, turn: int) -> None:
    topic, seed = f"chance-{turn}", random.SystemRandom().randrange(2**32)
    kafka.create_topic(topic)
    try:
        check_readers(kafka, TopicPart(topic, 0), random.Random(seed))
    except AssertionError as error:
        pytest.fail(f"with the seed {seed}: {error}")

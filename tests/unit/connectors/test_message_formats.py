"""Messages made and damaged by chance, read as by other means; a soak run tries many more of them."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from anabranch.connectors.formats.value_encoders import AvroEncoder, JsonEncoder
from formats import avro, kafka_batches, properties, protobuf
from formats.damage import damaged
from formats.frames import frames
from property_tests import tries
from soak.amounts import MESSAGE_EXAMPLES

many = tries(150, soaked=MESSAGE_EXAMPLES, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
@many
@given(case=avro.cases(avro.FLAT_FIELDS))
def test_flat_avro_records_are_read_as_the_specification_says(case: avro.Case, compiled: bool) -> None:
    properties.check_avro(case, compiled=compiled)


@many
@given(case=avro.cases(avro.ALL_FIELDS))
def test_nested_avro_records_are_read_as_the_specification_says(case: avro.Case) -> None:
    properties.check_avro(case, compiled=True)


@many
@given(made=kafka_batches.batches(), data=st.data())
def test_batches_of_records_hold_what_was_written(made: list[kafka_batches.Batch], data: st.DataObject) -> None:
    first = data.draw(st.integers(made[0].base_offset, made[-1].next_offset))
    last = data.draw(st.integers(first, made[-1].next_offset))
    properties.check_batches(made, first, last)


@many
@given(made=kafka_batches.batches(), data=st.data())
def test_nothing_comes_of_damaged_batches_that_was_not_written(
    made: list[kafka_batches.Batch], data: st.DataObject
) -> None:
    written = b"".join(map(kafka_batches.write_batch, made))
    properties.check_damaged_batches(made, data.draw(damaged(written)))


@many
@given(records=st.lists(kafka_batches.RECORDS, min_size=1, max_size=4), data=st.data())
def test_wild_lengths_among_records_are_found(records: list[kafka_batches.Record], data: st.DataObject) -> None:
    body = data.draw(damaged(kafka_batches.write_records(records)))
    properties.check_wild_records(body, len(records), 1000)


def test_a_length_that_overflows_is_no_way_out_of_the_batch() -> None:
    longest = b"\xfe" + b"\xff" * 8 + b"\x01"
    for body in (b"\x20\x00\x00\x00" + longest + b"\x01" * 20, b"\x20\x00\x00\x00\x01" + longest + b"\x01" * 20):
        properties.check_wild_records(body, 1, 0)


@many
@given(case=protobuf.cases())
def test_protobuf_messages_are_read_as_by_its_own_library(case: protobuf.Case) -> None:
    properties.check_protobuf(case)


@many
@given(frame=frames())
def test_json_values_are_read_back_as_they_were(frame: pl.DataFrame) -> None:
    properties.check_round_trip(JsonEncoder(), properties.json_decoder(frame.schema), frame)


@many
@given(frame=frames(pl.Binary))
def test_avro_values_are_read_back_as_they_were(frame: pl.DataFrame) -> None:
    properties.check_round_trip(AvroEncoder(None, "t"), properties.avro_decoder(frame.schema), frame)


def test_protobuf_text_of_the_older_syntax_that_is_none_is_rejected() -> None:
    from anabranch.connectors.formats.messages.protobuf_values import ProtobufValues, columns_of

    schema = protobuf.describe("proto2")
    bad = [b"B\x02\x00\x80", b"\xb2\x02\x01\xff"]
    decoded = ProtobufValues(columns_of(schema), schema).decode(properties.messages_of([*bad, b"B\x01a"]))
    assert [index for index, _ in decoded.faults] == [0, 1]
    assert "found b'\\x00\\x80'" in decoded.faults[0][1]
    assert decoded.frame.get_column("text").to_list() == ["a"]

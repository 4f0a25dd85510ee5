"""Every encoder takes every type that a stream may have, or its sink refuses it before the first batch."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from rich.console import Console

from anabranch.cli.state.tables import StoredRows
from anabranch.connectors import console, delta, json_lines, parquet, redis_hashes
from anabranch.connectors import mariadb as ab_mariadb
from anabranch.connectors import postgres as ab_postgres
from anabranch.connectors.formats.encodings import encode_arrow
from anabranch.connectors.formats.messages.avro_values import AvroValues, columns_of
from anabranch.connectors.formats.messages.protobuf_values import load_message
from anabranch.connectors.formats.value_encoders import AvroEncoder, JsonEncoder, ProtobufEncoder, RawEncoder
from anabranch.connectors.global_stores.packed_rows import name_rows, pack_rows, unpack_rows
from anabranch.connectors.global_stores.shown_values import as_meant, as_shown, form_of
from anabranch.connectors.kafka_topics.row_messages import MessageStaging
from anabranch.engine.tasks import packing
from anabranch.engine.tasks.content_order import order_by_content
from anabranch.engine.tasks.dead_letters import bury_rows
from anabranch.errors import SinkError
from anabranch.eventtime.time_range import find_rows_out_of_time
from anabranch.model import HASH, StagedFile
from anabranch.model.frame_texts import frame_from_text, frame_to_text, key_as_text
from anabranch.routing import hash_keys
from anabranch.state.inspect import read_text
from anabranch.state.runs import decode_run, encode_run
from contracts.column_values import ALL, FLAT, OUT_OF_TIME
from formats import protobuf
from formats.properties import messages_of
from servers.mariadb import MariadbServer
from servers.postgres import PostgresServer
from servers.redis import RedisServer

_128_BITS = ("Int128", "UInt128")


def by_type(columns: Mapping[str, pl.Series]) -> Any:
    return pytest.mark.parametrize("column", [pytest.param(c, id=name) for name, c in columns.items()])


def nested(*names: str) -> set[str]:
    """The names, and those of all types that hold them."""
    return {name for name in ALL if any(name == n or f"({n})" in name for n in names)}


def check_types(sink: Any, refused: Iterable[str], columns: Mapping[str, pl.Series] = ALL) -> pl.DataFrame:
    """See that a sink refuses these types and no others; return a frame of all that it takes."""
    found, taken = set(), {}
    for name, column in columns.items():
        try:
            sink.check({"k": pl.Int64(), "x": column.dtype})
        except SinkError as error:
            assert "'x' is " in str(error), "the error names the column and its type"
            found.add(name)
        else:
            taken[f"c{len(taken)}"] = column
    assert found == set(refused)
    return pl.DataFrame({"k": [0, 1, 2], **taken})


def publish(sink: Any, rows: pl.DataFrame, folder: Path) -> None:
    sink.check(rows.schema)
    if hasattr(sink, "claim"):
        sink.claim("types", None)
    content = sink.encode(rows)
    path = folder / f"staged{sink.suffix}"
    path.write_bytes(content)
    staged = StagedFile(path.name, rows.height, len(content), 0)
    sink.publish(0, [(staged, str(path))], {"flow": "types", "epoch": 1})
    if hasattr(sink, "close"):
        sink.close()


def equal(first: pl.DataFrame, second: pl.DataFrame) -> bool:
    return first.schema == second.schema and first.equals(second)


# -- what the engine itself writes ---------------------------------------------------------------------------------


@by_type(ALL)
def test_staged_frames_blocks_runs_and_reports_give_back_what_they_were_given(
    column: pl.Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = column.to_frame("x").with_columns(pl.Series(HASH, [1, 2, 3], dtype=pl.UInt64))
    assert equal(pl.read_ipc(io.BytesIO(encode_arrow(frame))), frame)
    assert equal(frame_from_text(frame_to_text(frame)), frame)
    for fewest in (1, 1_000):
        monkeypatch.setattr(packing, "FEWEST_ROWS", fewest)
        assert equal(packing.unpack(packing.pack(frame)), frame)
    for compressed in (True, False):
        content = b"".join(bytes(piece) for piece in encode_run(frame, compressed))
        assert equal(decode_run(pa.py_buffer(content)), frame)


@by_type(ALL | OUT_OF_TIME)
def test_a_dead_letter_can_be_written_of_every_row(column: pl.Series) -> None:
    letters = bury_rows(column.to_frame("x"), "here", "for a reason")
    assert letters.get_column("reason").to_list() == ["for a reason"] * 3
    payloads = [json.loads(payload) for payload in letters.get_column("payload")]
    assert all(payload.keys() == {"x"} for payload in payloads)
    if column.dtype != pl.Struct({}):
        assert [payload["x"] is None for payload in payloads][-1] == column.is_null()[-1]


def test_dead_letters_hold_bytes_in_base64_and_times_out_of_range_as_numbers() -> None:
    rows = pl.DataFrame({"b": [b"\xff\x00"], "l": [[b"a", None]], "s": [{"b": b"", "n": 1}]}).with_columns(
        t=pl.Series([2**62]).cast(pl.Datetime("us")), d=pl.Series([Decimal("1.50")])
    )
    expected = {"b": "/wA=", "l": ["YQ==", None], "s": {"b": "", "n": 1}, "t": 2**62, "d": "1.50"}
    assert json.loads(bury_rows(rows, "", "")["payload"][0]) == expected


@by_type(ALL | OUT_OF_TIME)
def test_rows_behind_a_hop_have_a_place_that_their_content_alone_decides(column: pl.Series) -> None:
    frame = column.to_frame("x").with_columns(n=pl.Series([1, 2, 3]))
    places = order_by_content(frame)
    assert places.null_count() == 0
    assert places.n_unique() == 3
    assert order_by_content(frame[[2, 0, 1]]).to_list() == [places[2], places[0], places[1]]


@by_type(OUT_OF_TIME)
def test_times_that_no_stream_may_hold_are_found(column: pl.Series) -> None:
    found = find_rows_out_of_time(column)
    assert found is not None
    assert found[0].to_list() == [True, False, False]
    assert found[1].startswith("x holds a value ")


@by_type(ALL)
def test_times_that_a_stream_may_hold_pass(column: pl.Series) -> None:
    assert find_rows_out_of_time(column) is None


@by_type(ALL)
def test_partial_results_come_back_from_a_store_as_they_were(column: pl.Series) -> None:
    frame = column.to_frame("x")
    assert equal(unpack_rows(pack_rows(frame), dict(frame.schema)), frame)
    shown = frame.select(as_shown("x", frame.schema["x"]))
    assert len(shown.rows()) == 3
    if form_of(frame.schema["x"]) == "TIMESTAMP":
        assert shown.select(as_meant("x", "TIMESTAMP")).get_column("x").null_count() == 1


def test_the_name_of_a_category_is_not_its_number_in_this_process() -> None:
    names = name_rows(pl.DataFrame({"x": ["seen first", "seen later"]}, schema={"x": pl.Categorical}))
    texts = name_rows(pl.DataFrame({"x": ["seen first", "seen later"]}))
    assert names == texts


@by_type(ALL)
def test_state_can_be_shown(column: pl.Series) -> None:
    out = io.StringIO()
    Console(file=out, width=500).print(StoredRows(column.to_frame("shown")))
    assert "shown" in out.getvalue()


# -- sinks -----------------------------------------------------------------------------------------------------------


def test_console_prints_every_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(console(), check_types(console(), ()), tmp_path)
    assert "batch 0: 3 rows" in capsys.readouterr().out


def test_parquet_holds_every_type_but_structs_without_fields(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "out")
    rows = check_types(sink, {"Struct()"})
    publish(sink, rows, tmp_path)
    (part,) = (tmp_path / "out").glob("part-*")
    assert equal(pl.read_parquet(part), rows)


def test_json_lines_hold_every_type_but_bytes(tmp_path: Path) -> None:
    sink = json_lines(tmp_path / "out")
    rows = check_types(sink, nested("Binary", "Struct(List(Binary))"))
    publish(sink, rows, tmp_path)
    (part,) = (tmp_path / "out").glob("part-*")
    assert [json.loads(line)["k"] for line in part.read_bytes().splitlines()] == [0, 1, 2]


def test_delta_tables_hold_what_delta_lake_has_types_for(tmp_path: Path) -> None:
    import deltalake

    sink = delta(tmp_path / "table")
    rows = check_types(sink, nested("Time", "Null", "Float16", *_128_BITS) | {"Struct()"})
    publish(sink, rows, tmp_path)
    held = pl.read_delta(str(tmp_path / "table"))
    assert deltalake.DeltaTable(tmp_path / "table").version() >= 0
    assert held.height == 3
    for name, column in zip(rows.columns, rows.iter_columns(), strict=True):
        assert held.get_column(name).null_count() == column.null_count(), column.dtype


def test_postgres_tables_hold_every_type_but_two(postgres: PostgresServer, tmp_path: Path) -> None:
    table = f"types_{uuid.uuid4().hex[:8]}"
    sink = ab_postgres(postgres.url, table)
    rows = check_types(sink, {"UInt128", "Float16"})
    publish(sink, rows, tmp_path)
    ((held, *nulls),) = postgres.execute(f"SELECT count(*), {_count_nulls(rows)} FROM {table}")
    assert held == 3
    assert nulls == [column.null_count() for column in rows.iter_columns()]


def test_mariadb_tables_hold_every_type_but_two(mariadb: MariadbServer, tmp_path: Path) -> None:
    table = f"types_{uuid.uuid4().hex[:8]}"
    sink = ab_mariadb(mariadb.url, table)
    rows = check_types(sink, {"UInt128", "Float16"})
    publish(sink, rows, tmp_path)
    ((held, *nulls),) = mariadb.execute(f"SELECT count(*), {_count_nulls(rows)} FROM {table}")
    assert held == 3
    # There is no NaN and no infinity in MariaDB.
    expected = [3 if column.dtype.is_float() else column.null_count() for column in rows.iter_columns()]
    assert [int(count) for count in nulls] == expected


def _count_nulls(rows: pl.DataFrame) -> str:
    return ", ".join(f"sum(CASE WHEN {name} IS NULL THEN 1 ELSE 0 END)" for name in rows.columns)


@pytest.mark.parametrize("times", ["iso", "ms"])
def test_redis_hashes_hold_every_type(redis_server: RedisServer, tmp_path: Path, times: Any) -> None:
    sink = redis_hashes(redis_server.url, f"types-{times}-{uuid.uuid4().hex[:8]}:{{k}}", times=times)
    rows = check_types(sink, ())
    publish(sink, rows, tmp_path)
    client = redis_server.client()
    held = [client.hgetall(sink.key.text.replace("{k}", str(number))) for number in range(3)]
    expected = [sum(row) for row in rows.select(pl.all().is_not_null()).rows()]
    assert [len(fields) for fields in held] == expected


def make_staging(encoder: Any, key: tuple[str, ...] = ("k",)) -> MessageStaging:
    return MessageStaging("kafka", encoder, key, (("head", "x"),), None, False)


def test_kafka_values_of_json_hold_every_type_but_bytes() -> None:
    staging = make_staging(JsonEncoder())
    refused = nested("Binary", "Struct(List(Binary))")
    check_types(staging, refused)
    for name, column in ALL.items():
        if name not in refused:
            messages = pl.read_ipc(staging.encode(column.to_frame("x").with_columns(k=pl.Series([0, 1, 2]))))
            assert [json.loads(value)["k"] for value in messages.get_column("value")] == [0, 1, 2]


@by_type(ALL)
def test_keys_and_headers_of_messages_hold_every_type(column: pl.Series) -> None:
    staging = make_staging(RawEncoder("v"), key=("x",))
    frame = column.to_frame("x").with_columns(v=pl.Series([b"a", b"b", b"c"]))
    staging.check(frame.schema)
    messages = pl.read_ipc(staging.encode(frame))
    assert messages.get_column("key").null_count() == column.null_count()
    assert messages.get_column("headers.head").null_count() == column.null_count()


def test_several_key_columns_are_json_and_hold_no_bytes() -> None:
    staging = make_staging(RawEncoder("v"), key=("x", "v"))
    with pytest.raises(SinkError, match="'v' is Binary, which JSON cannot hold"):
        staging.check({"x": pl.Int64(), "v": pl.Binary()})


@by_type({name: column for name, column in FLAT.items() if not column.dtype.is_float()})
def test_keys_of_every_type_are_hashed_shown_and_looked_for(column: pl.Series) -> None:
    frame = column.to_frame("x")
    assert hash_keys(frame.drop_nulls(), ["x"]).null_count() == 0
    texts = frame.select(key_as_text("x", column.dtype)).to_series()
    assert texts.dtype == pl.String
    assert texts.is_null().to_list() == column.is_null().to_list()
    for text in ("", "no value", "9" * 50, "+262143-01-01", "2026-01-01T00:00:00Z", "\x00"):
        assert read_text(text, column.dtype).len() == 1


_AVRO_TYPES = {
    name
    for name, column in FLAT.items()
    if not isinstance(column.dtype, pl.Duration | pl.Time | pl.Null | pl.Float16 | pl.Int128 | pl.UInt128 | pl.UInt64)
}


def test_kafka_values_of_avro_hold_what_avro_has_types_for() -> None:
    encoder = AvroEncoder(None, "types")
    check_types(encoder, ALL.keys() - _AVRO_TYPES)
    for name in _AVRO_TYPES:
        frame = FLAT[name].to_frame("x")
        text = json.dumps(encoder.schema_of(frame.schema))
        decoded = AvroValues(columns_of(text), text).decode(messages_of(encoder.encode(frame)))
        assert decoded.faults == []
        # To the microsecond, and times without their zone.
        wanted = frame.get_column("x")
        if isinstance(wanted.dtype, pl.Datetime):
            wanted = wanted.to_physical().cast(pl.Datetime(wanted.dtype.time_unit)).dt.cast_time_unit("us")
        assert decoded.frame.get_column("x").cast(wanted.dtype).equals(wanted), name


@pytest.mark.parametrize("field", [field.name for field in load_message(protobuf.describe("proto3")).DESCRIPTOR.fields])
def test_what_a_protobuf_field_takes_is_known_before_the_first_batch(field: str) -> None:
    encoder = ProtobufEncoder(protobuf.describe("proto3"))
    taken = 0
    for column in ALL.values():
        frame = column.to_frame(field).drop_nulls()
        try:
            encoder.check(frame.schema)
        except SinkError as error:
            assert f"column {field!r} is " in str(error)
            continue
        taken += 1
        try:
            values = encoder.encode(frame)
        except SinkError as error:
            # Which numbers, texts and items there will be is not known before.
            assert "a row cannot be written as Protobuf" in str(error)
        else:
            assert len(values) == frame.height
    assert taken > 0

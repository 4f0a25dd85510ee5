"""JSON of any layout, read by compiled code: rows as the exact reader reads them, and whatever is odd is left to it."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.formats import json_rows
from anabranch.connectors.formats.declared_json import WalkedLines, walk_placed_lines, walk_text
from anabranch.connectors.formats.exact_json import DEEPEST_NESTING, read_exactly
from anabranch.connectors.formats.fixed_layout_json import PlacedLines
from anabranch.connectors.formats.json_rows import parse_json_lines
from property_tests import tries

SCHEMA: dict[str, pl.DataType] = {
    "sensor": pl.String(),
    "ts": pl.Datetime("ms"),
    "reading": pl.Struct({"value": pl.Float64(), "unit": pl.String()}),
    "tags": pl.List(pl.String()),
    "ok": pl.Boolean(),
}


def walk(text: bytes | str, schema: dict[str, pl.DataType] | None = None) -> WalkedLines:
    walked = walk_text(text.encode() if isinstance(text, str) else text, schema or SCHEMA)
    assert walked is not None
    return walked


def walk_value(value: str, kind: pl.DataType) -> Any:
    """Return the value of a column, ``"doubt"`` if the line is left to others."""
    walked = walk(f'{{"x":{value}}}\n', {"x": kind})
    return "doubt" if walked.doubts else walked.frame.get_column("x").to_list()[0]


def make_events(rows: int, seed: int) -> list[str]:
    """Return events as they come: nested, optional, in any order, with escapes and with letters of all kinds."""
    chance = random.Random(seed)
    texts = ['it is "fine"', "back\\slash", "tab\t", "żółć", "雪", "😀 smile", "plain words in a row", "", "/"]
    lines = []
    for row in range(rows):
        event: dict[str, Any] = {
            "id": row,
            "sensor": f"sensor {chance.choice(texts)} {chance.randrange(100)}",
            "ts": chance.choice([row, f"2026-01-01T00:00:{row % 60:02}Z", None]),
            "reading": chance.choice(
                [{"value": chance.randrange(99) / 4, "unit": chance.choice(texts), "more": [{}, [1, {"a": None}]]},
                 {"unit": None, "value": chance.random() * 10 ** chance.randrange(-30, 30)}, None]
            ),
            "note": chance.choice([*texts, 1.5e300, -0.0, True, {"deep": [[[]]], texts[0]: {}}]),
        }  # fmt: skip
        if chance.random() < 0.5:
            event["tags"] = [chance.choice([*texts, None]) for _ in range(chance.randrange(4))]
        if chance.random() < 0.5:
            event["ok"] = chance.random() < 0.5
        members = list(event.items())
        chance.shuffle(members)
        separators = chance.choice([(",", ":"), (", ", ": "), (" ,\t", " : ")])
        lines.append(json.dumps(dict(members), separators=separators, ensure_ascii=chance.random() < 0.5))
    return lines


@pytest.mark.parametrize("seed", range(3))
def test_events_of_any_layout_are_read_without_a_doubt_as_the_exact_reader_reads_them(seed: int) -> None:
    lines = make_events(300, seed)
    walked = walk("\n".join(lines))
    assert walked.doubts == []
    expected, faults = read_exactly([line.encode() for line in lines], SCHEMA)
    assert faults == []
    assert walked.frame.equals(expected)


def test_much_text_of_any_layout_is_not_left_to_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = make_events(8_000, 7)
    text = "\n".join(lines).encode()
    assert len(text) > json_rows.WORTH_COMPILED_CODE_BYTES
    expected, _ = read_exactly([line.encode() for line in lines], SCHEMA)
    monkeypatch.setattr(json_rows, "parse_usual_lines", lambda *_: pytest.fail("the whole text was left to the parser"))
    outcome = parse_json_lines(text, SCHEMA)
    assert outcome.rejected == ()
    assert outcome.frame.equals(expected)


@pytest.mark.parametrize("every", [1, 3, 1000])
def test_doubtful_lines_keep_their_place_among_the_rows(every: int) -> None:
    lines = make_events(3_000, 5)
    odd = ['{"sensor": "\\ud800"}', '{"ts": 1.5}', "[]", '{"sensor": "late"', '{"ts": "0007"}', '{"ts": 1e0}']
    mixed = [odd[row % len(odd)] if row % every == 0 else line for row, line in enumerate(lines)]
    encoded = [line.encode() for line in mixed]
    text = b"\n\n".join(encoded)
    expected, faults = read_exactly(encoded, SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "WORTH_COMPILED_CODE_BYTES", 0)
        outcome = parse_json_lines(text, SCHEMA)
    assert outcome.frame.equals(expected)
    assert outcome.rejected == tuple((reason, mixed[place]) for place, reason in faults)


def test_line_that_is_no_utf8_is_a_doubt_wherever_it_stands() -> None:
    lines = [line.encode() for line in make_events(500, 3)]
    broken = {0, 250, 251, 499}
    text = b"\n".join(b'{"other": "\xff", "ts": 1}' if row in broken else line for row, line in enumerate(lines))
    walked = walk(text)
    assert set(walked.doubt_places.tolist()) == broken
    assert walked.frame.height == 496


def test_room_is_made_for_more_rows_items_doubts_and_long_numbers_than_expected() -> None:
    schema = {"x": pl.List(pl.List(pl.Float64()))}
    first = '{"x":[],"padding":"' + "." * 2**16 + '"}\n'
    items = "[" + ",".join(["0.1234567890123456789"] * 40) + "]"
    text = first + f'{{"x":[{items},[],null,{items}]}}\n{{"x":1}}\n{{}}\n' * 3_000
    walked = walk(text, schema)
    assert len(walked.doubts) == 3_000
    assert walked.frame.height == 6_001
    numbers = walked.frame.get_column("x").explode().explode().drop_nulls()
    assert len(numbers) == 240_000
    assert numbers.unique().to_list() == [0.1234567890123456789]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ('{"a" : [1, "\\u00e9"]}', pl.String(), '{"a" : [1, "\\u00e9"]}'),
        ("[ ]", pl.String(), "[ ]"),
        ("true", pl.String(), "true"),
        ("-0.00E+7", pl.String(), "-0.00E+7"),
        ('"\\ud83d\\ude00\\u0041\\/"', pl.String(), "😀A/"),
        ('"\\b\\f\\n\\r\\t\\\\\\""', pl.String(), '\b\f\n\r\t\\"'),
        ('"\\u0000\\u07ff\\u0800"', pl.String(), "\0\u07ff\u0800"),
        ("null", pl.Struct({"a": pl.Int8()}), None),
        ("{}", pl.Struct({"a": pl.Int8()}), {"a": None}),
        ('[{"a":1,"a":2},null,{}]', pl.List(pl.Struct({"a": pl.Int8()})), [{"a": 1}, None, {"a": None}]),
        ("9223372036854775807", pl.Int64(), 2**63 - 1),
        ("-127", pl.Int8(), -127),
        ("18446744073709551615", pl.UInt64(), "doubt"),
        ("128", pl.Int8(), "doubt"),
        ("-1", pl.UInt8(), "doubt"),
        ("1.0", pl.Int64(), "doubt"),
        ("01", pl.Int64(), "doubt"),
        ('"1"', pl.Int64(), "doubt"),
        ("1e400", pl.Float64(), "doubt"),
        ("1e39", pl.Float32(), "doubt"),
        ("65520", pl.Float16(), "doubt"),
        ("2.2250738585072011e-308", pl.Float64(), 2.2250738585072011e-308),
        ("123456789012345678901234567890", pl.Float64(), 123456789012345678901234567890.0),
        ("9007199254740993", pl.Float64(), 9007199254740993.0),
        ("1e22", pl.Float64(), 1e22),
        ("1E-22", pl.Float64(), 1e-22),
        ('"\\udc00"', pl.String(), "doubt"),
        ('"\\q"', pl.String(), "doubt"),
        ("[1,]", pl.String(), "doubt"),
        ("{}", pl.List(pl.Int8()), "doubt"),
        ("tru", pl.Boolean(), "doubt"),
        ("1", pl.Boolean(), "doubt"),
        ('"c"', pl.Enum(["a", "b"]), "doubt"),
        ('"b"', pl.Enum(["a", "b"]), "b"),
    ],
)
def test_value_is_read_or_is_a_doubt(value: str, kind: pl.DataType, expected: Any) -> None:
    assert walk_value(value, kind) == expected


def test_minus_zero_stays_one() -> None:
    assert str(walk_value("-0", pl.Float64())) == "-0.0"
    assert str(walk_value("-0e999999", pl.Float64())) == "-0.0"


def test_names_are_found_however_they_are_written_and_of_two_the_first_counts() -> None:
    schema = {"é": pl.Int64(), 'q"t': pl.Int64(), "a_rather_long_name": pl.Int64(), "a_rather_long_nama": pl.Int64()}
    lines = [
        '{"\\u00e9":1,"q\\"t":2,"a_rather_long_name":3,"a_rather_long_nama":4}',
        '{"a_rather_long_nam":9,"é":5,"\\u00e9":6,"a_rather_long_name":null,"a_rather_long_name":7}',
        '{"":1,"\\ud800":2}',
    ]
    walked = walk("\n".join(lines), schema)
    assert walked.doubts == []
    assert walked.frame.rows() == [(1, 2, 3, 4), (5, None, None, None), (None, None, None, None)]


def test_a_struct_of_many_fields_finds_each_of_them() -> None:
    names = [f"{prefix}{number}" for prefix in ("", "field_", "a name with many letters ") for number in range(100)]
    line = json.dumps({name: place for place, name in enumerate(names)} | {"other": 1})
    walked = walk(line, {name: pl.Int64() for name in names})
    assert walked.frame.row(0) == tuple(range(len(names)))


def test_nesting_is_followed_as_deep_as_elsewhere() -> None:
    deepest = '{"x":' + "[" * (DEEPEST_NESTING - 1) + "]" * (DEEPEST_NESTING - 1) + "}"
    deeper = deepest.replace("[]", "[[]]")
    walked = walk(f"{deepest}\n{deeper}\n", {"x": pl.String()})
    assert walked.frame.height == 1
    assert walked.doubts == [deeper.encode()]


def test_types_that_are_left_to_others_are_not_walked() -> None:
    for kind in (pl.Array(pl.Int64(), 2), pl.Null(), pl.Struct([]), pl.List(pl.Array(pl.String(), 1))):
        assert walk_text(b'{"x":1}\n', {"x": kind}) is None


moments = st.one_of(
    st.datetimes().map(lambda time: time.isoformat()),
    st.from_regex(
        r"\A(0001|1969|2000|2024|9999|0000)-(0[1-9]|1[0-3])-(0[0-9]|3[01])"
        r"([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,10})?)?(Z|z|[+-][0-2][0-9]:?[0-6][0-9])?)?\Z"
    ),
    st.from_regex(r"\A-?[0-9]{1,20}\Z"),
)


@tries(300)
@given(moments, st.sampled_from(["ms", "us", "ns"]), st.sampled_from([None, "UTC"]))
def test_times_are_read_as_the_exact_reader_reads_them_or_left_to_it(text: str, unit: Any, zone: str | None) -> None:
    kind = pl.Datetime(unit, zone)
    line = json.dumps({"x": text}).encode()
    walked = walk(line, {"x": kind})
    expected, faults = read_exactly([line], {"x": kind})
    if walked.doubts:
        # Only numbers with zeros before them are left to others without a fault.
        assert faults or text.lstrip("-").startswith("0")
    else:
        assert walked.frame.get_column("x").to_physical().to_list() == expected.get_column("x").to_physical().to_list()


written_floats = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?\Z"),
)


@tries(300)
@given(written_floats)
def test_floats_are_the_nearest_to_what_is_written(text: str) -> None:
    found = walk_value(text, pl.Float64())
    assert str(found) == ("doubt" if abs(float(text)) == float("inf") else str(float(text)))


def test_placed_lines_may_end_anywhere_in_memory_and_hold_line_ends() -> None:
    lines = [line.encode() for line in make_events(60, 11)]
    lines[7] = b'{"ts":\n5}'
    lines[20] = b""
    memory, starts, ends = b"\xfe", [], []
    for line in lines:
        starts.append(len(memory))
        ends.append(len(memory) + len(line))
        memory += line + b"\n\x00\x81"
    piece = PlacedLines(np.frombuffer(memory, np.uint8), np.array(starts), np.array(ends))
    walked = walk_placed_lines([piece, piece], lambda: b"\n".join(lines * 2), SCHEMA)
    assert walked is not None
    assert walked.doubt_places.tolist() == [7, 20, 67, 80]
    assert walked.doubts == [lines[7], b""] * 2
    once, _ = read_exactly([line for row, line in enumerate(lines) if row not in {7, 20}], SCHEMA)
    assert walked.frame.equals(pl.concat([once, once]))

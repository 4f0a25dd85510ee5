"""Lines of texts and numbers read by compiled code: what it answers is what the general parser would."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.formats import fixed_layout_json, json_rows
from anabranch.connectors.formats.fixed_layout_json import PlacedLines, parse_fixed_layout_lines, parse_placed_lines
from anabranch.connectors.formats.json_rows import parse_json_lines

SCHEMA: dict[str, pl.DataType] = {
    "name": pl.String(),
    "ts": pl.Datetime("ms"),
    "count": pl.Int32(),
    "value": pl.Float64(),
}


def line_of(name: str = '"a name of more than twelve letters"', ts: str = '"1700000000000"', rest: str = "") -> bytes:
    return f'{{"other": "x", "name": {name}, "ts": {ts}, "count": 7, "n": 1.5, "value": -2.25{rest}}}\n'.encode()


def test_texts_and_numbers_become_columns_and_other_fields_are_passed_over() -> None:
    frame = parse_fixed_layout_lines(line_of() + line_of('"short"', '"5"') + line_of('""', '"-6"'), SCHEMA)
    assert frame is not None
    assert frame.schema == pl.Schema(SCHEMA)
    assert frame.get_column("name").to_list() == ["a name of more than twelve letters", "short", ""]
    assert frame.get_column("ts").to_physical().to_list() == [1_700_000_000_000, 5, -6]
    assert frame.get_column("count").to_list() == [7, 7, 7]
    assert frame.get_column("value").to_list() == [-2.25, -2.25, -2.25]


def test_times_may_be_iso_text_or_numbers() -> None:
    iso = parse_fixed_layout_lines(line_of(ts='"2026-01-01T00:00:01.500"'), SCHEMA)
    number = parse_fixed_layout_lines(line_of(ts="1767225601500"), SCHEMA)
    assert iso is not None
    assert number is not None
    assert iso.get_column("ts").equals(number.get_column("ts"))


def test_numbers_in_columns_of_texts_and_decimals_keep_their_digits() -> None:
    schema = {"a": pl.String(), "b": pl.Decimal(20, 2), "c": pl.Int64()}
    numbers = ["1.50", "-0", "1e2", "1.5E-1", "90071992547409.93", "0.00", "123456789012345678901234567890", "7"]
    lines = [f'{{"a": {number}, "b": 90071992547409.93, "c": {row}}}\n' for row, number in enumerate(numbers)]
    frame = parse_fixed_layout_lines("".join(lines).encode(), schema)
    assert frame is not None
    assert frame.get_column("a").to_list() == numbers
    assert {str(value) for value in frame.get_column("b")} == {"90071992547409.93"}
    for odd in ("01", "1.", ".5", "1e", "-", "+1", "1e+", "null", "true", "--1"):
        assert parse_fixed_layout_lines((lines[0] + lines[1].replace("-0", odd)).encode(), schema) is None


def test_text_beyond_ascii_is_read_and_what_is_no_utf8_is_not() -> None:
    frame = parse_fixed_layout_lines(line_of('"żółć ☃ 雪 und noch viel mehr"'), SCHEMA)
    assert frame is not None
    assert frame.get_column("name").to_list() == ["żółć ☃ 雪 und noch viel mehr"]
    assert parse_fixed_layout_lines(line_of().replace(b'"x"', b'"\xff"') + line_of(), SCHEMA) is None


def test_a_declared_field_that_no_line_has_is_null_and_the_last_line_needs_no_end() -> None:
    frame = parse_fixed_layout_lines(line_of() + line_of().rstrip(b"\n"), {"name": pl.String(), "extra": pl.Int64()})
    assert frame is not None
    assert frame.get_column("extra").to_list() == [None, None]


def test_rows_stay_valid_when_the_text_they_came_from_is_gone() -> None:
    frame = parse_fixed_layout_lines(b"".join(line_of(f'"row number {row} of many"') for row in range(5_000)), SCHEMA)
    assert frame is not None
    kept = frame.filter(pl.col("name").str.ends_with("77 of many"))
    del frame
    assert kept.get_column("name")[0] == "row number 77 of many"


@pytest.mark.parametrize(
    "line",
    [
        line_of("null"),
        line_of('"an \\u0041 escape"'),
        line_of('"a\ttab"'),
        line_of(ts='"soon"'),
        line_of(ts='"007"'),
        line_of(ts='""'),
        line_of(ts="true"),
        line_of(rest=', "more": 1'),
        line_of().replace(b'"count": 7', b'"count": 70000000000'),
        line_of().replace(b'"count": 7', b'"count": 7.5'),
        line_of().replace(b'"count": 7', b'"count": "7"'),
        line_of().replace(b'"n": 1.5', b'"n": 1e5'),
        line_of().replace(b'"other": "x"', b'"other": {"x": 1}'),
        line_of().replace(b'": "x"', b'" : "x"'),
        b"\n",
        b"[]\n",
        b"{}\n",
        b'{"name": "x"\n',
        b'{"name": "x"} {"name": "y"}\n',
        b'{"name": "x", "name": "y"}\n',
    ],
)
def test_what_is_unusual_is_left_to_the_parser(line: bytes) -> None:
    assert parse_fixed_layout_lines(line_of() + line, SCHEMA) is None


@pytest.mark.parametrize(
    "first", [b'{"name": 5e1}\n', b'{"name": true}\n', b'{"name": "x", "name": "y"}\n', b"", b"x\n"]
)
def test_a_first_line_that_is_unusual_is_left_to_the_parser(first: bytes) -> None:
    assert parse_fixed_layout_lines(first, {"name": pl.String()}) is None


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
numbers = st.one_of(st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), st.just(0))
records = st.fixed_dictionaries({"name": texts, "ts": st.integers(0, 2**40).map(str), "count": st.integers(-9, 9)})


@given(st.lists(st.one_of(records, st.fixed_dictionaries({"name": texts, "value": numbers})), min_size=1, max_size=8))
def test_it_answers_what_the_parser_would_or_nothing(rows: list[dict[str, Any]]) -> None:
    text = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    frame = parse_fixed_layout_lines(text, SCHEMA)
    if frame is not None:
        outcome = parse_json_lines(text, SCHEMA)
        assert not outcome.rejected
        assert frame.equals(outcome.frame)


def test_large_texts_are_read_by_it_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"".join(line_of(f'"sensor {row}"', f'"{row}"') for row in range(20_000))
    assert len(text) > json_rows.WORTH_COMPILED_CODE_BYTES
    seen = []
    monkeypatch.setattr(
        json_rows,
        "parse_fixed_layout_lines",
        lambda *given: seen.append(fixed_layout_json.parse_fixed_layout_lines(*given)) or seen[-1],
    )
    fast = parse_json_lines(text, SCHEMA)
    assert seen
    monkeypatch.setattr(json_rows, "parse_fixed_layout_lines", lambda *_: None)
    assert fast.frame.equals(parse_json_lines(text, SCHEMA).frame)
    broken = text + b'{"name": 1\n'
    assert len(parse_json_lines(broken, SCHEMA).rejected) == 1


def place(*lines: bytes, between: bytes = b"\xfe\x81\x00") -> PlacedLines:
    """Put lines into memory with something between them, and their line ends behind them."""
    memory, starts, ends = between, [], []
    for line in lines:
        starts.append(len(memory))
        ends.append(len(memory) + len(line) - 1)
        memory += line + between
    return PlacedLines(np.frombuffer(bytearray(memory), np.uint8), np.array(starts), np.array(ends))


def test_lines_with_other_things_between_them_are_read_where_they_lie() -> None:
    lines = [
        line_of(f'"{"n" * length}"', f'"{10 ** min(length, 14)}"') for length in (0, 3, 4, 5, 11, 12, 13, 17, 5, 2)
    ]
    pieces = [place(*lines[:4]), place(*lines[4:5], between=b""), place(*lines[5:])]
    frame = parse_placed_lines(pieces, lambda: pytest.fail("all is ASCII"), SCHEMA)
    expected = parse_fixed_layout_lines(b"".join(lines), SCHEMA)
    assert frame is not None
    assert expected is not None
    assert frame.equals(expected)


def test_placed_lines_beyond_ascii_are_read_and_what_is_no_utf8_is_not() -> None:
    line = line_of('"żółć ☃ 雪 und noch viel mehr"')
    frame = parse_placed_lines([place(line_of(), line)], lambda: line_of() + line, SCHEMA)
    assert frame is not None
    assert frame.get_column("name").to_list()[1] == "żółć ☃ 雪 und noch viel mehr"
    broken = line_of().replace(b'"x"', b'"\xff"')
    assert parse_placed_lines([place(line_of(), broken)], lambda: line_of() + broken, SCHEMA) is None


def test_a_placed_line_must_end_where_it_is_said_to_end() -> None:
    twice = line_of() + line_of()
    assert parse_placed_lines([place(line_of(), twice)], lambda: b"", SCHEMA) is None
    assert parse_placed_lines([place(line_of(), line_of()[:-2] + b"\n")], lambda: b"", SCHEMA) is None

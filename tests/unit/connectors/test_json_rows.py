from __future__ import annotations

import datetime
import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.formats.exact_json import read_exactly
from anabranch.connectors.formats.json_rows import check_json_schema, parse_json_lines
from anabranch.connectors.formats.uniform_json import parse_uniform_lines
from anabranch.errors import FlowError
from property_tests import tries

SCHEMA = {
    "i": pl.Int64(),
    "f": pl.Float64(),
    "s": pl.String(),
    "b": pl.Boolean(),
    "t": pl.Datetime("ms"),
    "d": pl.Date(),
    "small": pl.UInt8(),
    "list": pl.List(pl.Int64()),
}


def accepts(line: str) -> bool:
    return parse_json_lines(line.encode(), SCHEMA).rejected == ()


def test_missing_fields_become_null_and_unknown_ones_are_ignored() -> None:
    outcome = parse_json_lines(b'{"i":1,"other":[{}]}\n{}\n', {"i": pl.Int64(), "s": pl.String()})
    assert outcome.frame.rows() == [(1, None), (None, None)]
    assert outcome.rejected == ()


def test_blank_lines_and_carriage_returns_are_skipped() -> None:
    outcome = parse_json_lines(b'\n{"i":1}\r\n  \n\r\n{"i":2}', {"i": pl.Int64()})
    assert outcome.frame["i"].to_list() == [1, 2]
    assert outcome.rejected == ()


@pytest.mark.parametrize(
    "line",
    [
        '{"f":1}',
        '{"s":5}',
        '{"b":true}',
        '{"small":255}',
        '{"list":[1,null]}',
        '{"i":-9223372036854775808}',
        '{"i":null}',
    ],
)
def test_value_that_fits_its_column_is_accepted(line: str) -> None:
    assert accepts(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"i":"12"}', "column 'i' is declared as Int64, found the string \"12\""),
        ('{"i":1.0}', "column 'i' is declared as Int64, found the number 1.0"),
        ('{"i":true}', "column 'i' is declared as Int64, found the boolean true"),
        ('{"i":9223372036854775808}', "column 'i' is declared as Int64, found the integer 9223372036854775808"),
        ('{"f":"1.5"}', "column 'f' is declared as Float64"),
        ('{"b":1}', "column 'b' is declared as Boolean"),
        ('{"small":256}', "column 'small' is declared as UInt8"),
        ('{"small":-1}', "column 'small' is declared as UInt8"),
        ('{"list":[1,"a"]}', "column 'list' is declared as List(Int64)"),
        ('{"t":"yesterday"}', "column 't' is declared as Datetime"),
        ('{"t":true}', "column 't' is declared as Datetime"),
        ('{"d":"2026-02-30"}', "column 'd' is declared as Date"),
        ("[1]", "not a JSON object: found the array [1]"),
        ("null", "not a JSON object: found the null"),
        ('{"i":1', "not JSON: "),
        ('{"i":1}{"i":2}', "not JSON: "),
        ('{"f":NaN}', "not JSON: NaN is no value of JSON"),
        ('{"i":01}', "not JSON: "),
    ],
)
def test_malformed_row_is_rejected_with_its_reason_and_text(line: str, reason: str) -> None:
    outcome = parse_json_lines(b'{"i":1}\n' + line.encode() + b'\n{"i":3}\n', SCHEMA)
    assert outcome.frame["i"].to_list() == [1, 3]
    [(found, raw)] = outcome.rejected
    assert found.startswith(reason)
    assert raw == line


def test_row_that_is_no_utf8_is_rejected() -> None:
    outcome = parse_json_lines(b'{"s":"a"}\n{"s":"\xff"}\n', {"s": pl.String()})
    assert outcome.frame["s"].to_list() == ["a"]
    assert outcome.rejected[0][0].startswith("not UTF-8")
    assert outcome.rejected[0][1] == '{"s":"\\xff"}'


def test_raw_text_of_a_malformed_row_is_cut_to_4096_characters() -> None:
    outcome = parse_json_lines(b"x" * 10_000, SCHEMA)
    assert len(outcome.rejected[0][1]) == 4096


def test_file_of_nothing_but_malformed_rows_gives_an_empty_frame_of_the_schema() -> None:
    outcome = parse_json_lines(b"junk\n" * 1000, SCHEMA)
    assert outcome.frame.schema == SCHEMA
    assert outcome.frame.height == 0
    assert len(outcome.rejected) == 1000


def test_many_malformed_rows_leave_the_good_ones_in_order() -> None:
    lines = [b'{"i":%d}' % row if row % 7 else b'{"i":"%d"}' % row for row in range(5000)]
    outcome = parse_json_lines(b"\n".join(lines), {"i": pl.Int64()})
    assert outcome.frame["i"].to_list() == [row for row in range(5000) if row % 7]
    assert len(outcome.rejected) == sum(row % 7 == 0 for row in range(5000))


@pytest.mark.parametrize("value", ['"2026-01-31T10:00:00.5"', '"2026-01-31 10:00:00.500Z"', "1769853600500"])
def test_time_is_read_from_iso_text_or_a_whole_number(value: str) -> None:
    outcome = parse_json_lines(b'{"t":%s}' % value.encode(), {"t": pl.Datetime("ms")})
    assert outcome.frame["t"].to_list() == [datetime.datetime(2026, 1, 31, 10, 0, 0, 500_000)]


def test_type_without_a_form_in_json_is_refused_before_the_first_batch() -> None:
    with pytest.raises(FlowError, match="column 'x' is declared as Binary"):
        check_json_schema({"x": pl.Binary()})


values = st.one_of(
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=5),
    st.booleans(),
    st.none(),
    st.lists(st.integers(-5, 5), max_size=2),
    st.sampled_from(["2026-01-31", "2026-01-31T10:00:00Z", "1700000000000", "x"]),
)
twice = st.tuples(values, values).map(lambda pair: f'{{"i":{json.dumps(pair[0])},"i":{json.dumps(pair[1])}}}')
rows = st.dictionaries(st.sampled_from([*SCHEMA, "unknown"]), values, max_size=4).map(json.dumps)
garbage = st.sampled_from(["", "{", "junk", "[]", '{"i":01}', '{"i":1}}', "\x00", '{"i":1,}', "  "])


@given(st.lists(st.one_of(rows, twice, garbage), max_size=12))
def test_row_is_accepted_alone_exactly_when_it_is_accepted_among_others(lines: list[str]) -> None:
    together = parse_json_lines("\n".join(lines).encode(), SCHEMA)
    alone = [parse_json_lines(line.encode(), SCHEMA) for line in lines]
    assert together.rejected == tuple(reject for outcome in alone for reject in outcome.rejected)
    assert together.frame.equals(pl.concat([pl.DataFrame(schema=SCHEMA), *(outcome.frame for outcome in alone)]))


number_texts = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(
        ["0", "-0", "01", "+1", "1.", ".5", "1.e5", "1e400", "1e-400", "NaN", "inf", "null", "true", "", " 1"]
    ),
    st.sampled_from(["-", "1_0", "0x1", "false", '"1"', "1 ", "[]", "{}", "1}", "\t1", "٣"]),
)
layouts = st.sampled_from(
    [
        '{"i":%s,"f":%s}',
        '{"i": %s, "f": %s}',
        '{ "f" : %s,"i":%s }',
        '{"u":%s,"small":%s}',
        '{"b":%s,"t":%s}',
        '{"f":%s,"f":%s}',
        '{"é":%s,"i":%s}',
        '{"a}b":%s,"i":%s}',
        '{"{":%s,"f32":%s}',
    ]
)


@tries(400)
@given(layouts, layouts, st.lists(st.tuples(number_texts, number_texts, st.booleans()), min_size=1, max_size=4))
def test_uniform_lines_are_read_exactly_as_the_parser_reads_them(
    layout: str, other: str, values: list[tuple[str, str, bool]]
) -> None:
    schema = {**SCHEMA, "f32": pl.Float32()}
    lines = [(layout if same or not place else other) % pair for place, (*pair, same) in enumerate(values)
             for pair in [tuple(pair)]]  # fmt: skip
    for ending in ("\n", "\r\n", ""):
        text = "".join(line + (ending or "\n") for line in lines).encode()
        text = text if ending else text[:-1]
        quick = parse_uniform_lines(text, schema)
        if quick is not None:
            slow, faults = read_exactly([line.encode() for line in lines], schema)
            assert not faults
            assert quick.schema == slow.schema
            assert quick.equals(slow)


def test_uniform_lines_of_numbers_take_the_quick_way() -> None:
    schema = {"sensor": pl.Int64(), "ts": pl.Datetime("ms"), "value": pl.Float64(), "absent": pl.String()}
    text = b"".join(b'{"sensor":%d,"ts":%d,"value":%.2f}\n' % (row, 10**12 + row, row / 4) for row in range(5000))
    quick = parse_uniform_lines(text, schema)
    assert quick is not None
    assert quick.equals(parse_json_lines(text, schema).frame)
    assert quick["sensor"].to_list() == list(range(5000))


def test_one_deviating_line_far_into_uniform_ones_is_still_judged_alone() -> None:
    lines = [b'{"i":%d,"f":0.5}\n' % row for row in range(20_000)]
    lines[15_000] = b'{"f":0.5,"i":15000}\n'
    lines[16_000] = b'{"i":016000,"f":0.5}\n'
    outcome = parse_json_lines(b"".join(lines), {"i": pl.Int64(), "f": pl.Float64()})
    assert outcome.frame["i"].to_list() == [row for row in range(20_000) if row != 16_000]
    assert [raw for _, raw in outcome.rejected] == ['{"i":016000,"f":0.5}']

"""Lines of numbers read by compiled code: what it answers is what the general parsers would."""

from __future__ import annotations

from functools import partial

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.formats import number_lines
from anabranch.connectors.formats.csv_records import CsvDialect
from anabranch.connectors.formats.csv_rows import parse_csv_lines
from anabranch.connectors.formats.json_rows import parse_json_lines
from anabranch.connectors.formats.number_lines import NumberField, parse_number_lines

JSON_FIELDS = (NumberField(b'{"key":', False), NumberField(b',"value":', True))
SCHEMA = {"key": pl.Int64(), "value": pl.Float64()}

read_json = partial(parse_number_lines, fields=JSON_FIELDS, suffix=b"}")


def lines_of(*rows: tuple[str, str]) -> bytes:
    return b"".join(b'{"key":%b,"value":%b}\n' % (key.encode(), value.encode()) for key, value in rows)


def test_numbers_become_columns() -> None:
    columns = read_json(lines_of(("1", "2.5"), ("-20", "-0.125"), ("0", "7")))
    assert columns is not None
    assert [column.to_list() for column in columns] == [[1, -20, 0], [2.5, -0.125, 7.0]]
    assert [column.dtype for column in columns] == [pl.Int64, pl.Float64]


def test_the_last_line_needs_no_end_and_lines_may_end_as_on_windows() -> None:
    columns = read_json(b'{"key":1,"value":2}\r\n{"key":3,"value":4}')
    assert columns is not None
    assert columns[0].to_list() == [1, 3]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("01", "1"),
        ("+1", "1"),
        ("", "1"),
        ("null", "1"),
        ("1.0", "1"),
        ("1", "null"),
        ("1", "1."),
        ("1", ".5"),
        ("1", "1e3"),
        ("1", "NaN"),
        ("1", "0.12345678901234567890"),
        ("1", "9007199254740993"),
        ("1234567890123456789", "1"),
        (" 1", "1"),
        ("1", '1,"more":2'),
    ],
)
def test_what_is_unusual_is_left_to_the_parser(key: str, value: str) -> None:
    assert read_json(lines_of(("1", "1"), (key, value), ("1", "1"))) is None


def test_lines_of_another_layout_are_left_to_the_parser() -> None:
    assert read_json(b'{"key":1,"value":2}\n\n{"key":1,"value":2}\n') is None
    assert read_json(b'{"key":1,"value":2}\n{"value":1,"key":2}\n') is None
    assert read_json(b'{"key":1,"value":2}\n{"key":1,"value":2') is None


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, places=6).map(str),
    st.sampled_from(["0", "-0", "-0.0", "00", "1e5", "1E-7", "0.1", "null"]),
)


@given(rows=st.lists(st.tuples(st.integers(-(2**64), 2**64).map(str), NUMBERS), min_size=1, max_size=20))
def test_json_and_csv_are_read_as_without_compiled_code(rows: list[tuple[str, str]]) -> None:
    csv = "".join(f"{key},{value}\n" for key, value in rows).encode()
    with pytest.MonkeyPatch.context() as patch:
        for at_least in (0, 2**60):
            for module in ("json_rows", "csv_rows"):
                patch.setattr(f"anabranch.connectors.formats.{module}.WORTH_COMPILED_CODE_BYTES", at_least)
            patch.setattr("anabranch.connectors.formats.json_rows._UNIFORM_FROM_BYTES", at_least)
            outcomes = (
                parse_json_lines(lines_of(*rows), SCHEMA),
                parse_csv_lines(csv, SCHEMA, list(SCHEMA), CsvDialect()),
            )
            if at_least == 0:
                compiled = outcomes
    for quick, general in zip(compiled, outcomes, strict=True):
        assert quick.frame.equals(general.frame, null_equal=True)
        assert quick.rejected == general.rejected


def test_a_number_that_stands_for_null_is_null() -> None:
    text = b"1,-999\n" * 200_000
    assert len(text) > number_lines.WORTH_COMPILED_CODE_BYTES
    dialect = CsvDialect(null_values=("-999",))
    assert parse_csv_lines(text, SCHEMA, list(SCHEMA), dialect).frame["value"].null_count() == 200_000


def test_narrow_columns_refuse_numbers_that_do_not_fit() -> None:
    text = lines_of(*[("200", "1")] * 60_000, ("300", "1"))
    assert len(text) > number_lines.WORTH_COMPILED_CODE_BYTES
    outcome = parse_json_lines(text, {"key": pl.UInt8(), "value": pl.Float64()})
    assert outcome.frame["key"].to_list() == [200] * 60_000
    assert [raw for _, raw in outcome.rejected] == ['{"key":300,"value":1}']

from __future__ import annotations

import csv
import datetime
import io

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.formats.csv_records import CsvDialect
from anabranch.connectors.formats.csv_rows import check_csv_schema, check_header, parse_csv_lines, read_header
from anabranch.errors import FlowError, SourceError
from anabranch.model import ReadOutcome
from property_tests import tries

SCHEMA = {"i": pl.Int64(), "s": pl.String(), "t": pl.Datetime("ms")}
COLUMNS = ["i", "s", "t"]


def parse(text: str | bytes, dialect: CsvDialect | None = None) -> ReadOutcome:
    raw = text.encode() if isinstance(text, str) else text
    return parse_csv_lines(raw, SCHEMA, COLUMNS, dialect or CsvDialect())


def test_fields_are_read_by_the_declared_types() -> None:
    outcome = parse('1,a,2026-01-31T10:00:00\n2,"b,c",2026-01-31\r\n3,,\n')
    assert outcome.frame.rows() == [
        (1, "a", datetime.datetime(2026, 1, 31, 10)),
        (2, "b,c", datetime.datetime(2026, 1, 31)),
        (3, None, None),
    ]
    assert outcome.rejected == ()


def test_columns_are_found_by_their_name_in_the_header() -> None:
    outcome = parse_csv_lines(b"x,7,y\n", {"i": pl.Int64()}, ["a", "i", "b"], CsvDialect())
    assert outcome.frame.rows() == [(7,)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1", "1 fields where there should be 3"),
        ("1,a", "2 fields where there should be 3"),
        ("1,a,2026-01-31,4", "4 fields where there should be 3"),
        ("x,a,2026-01-31", "column 'i' is declared as Int64, found 'x'"),
        ("1.5,a,2026-01-31", "column 'i' is declared as Int64, found '1.5'"),
        ("1,a,tomorrow", "column 't' is declared as Datetime(time_unit='ms', time_zone=None), found 'tomorrow'"),
        ('1,"a,2026-01-31', "not CSV: the quote at character 2 is not closed"),
        ('1,"a"b,2026-01-31', "not CSV: text behind the closing quote at character 4"),
    ],
)
def test_malformed_row_is_rejected_with_its_reason_and_text(line: str, reason: str) -> None:
    for before, after in (("", ""), ("1,first,\n", '2,"last",2026-01-31\n'), ("1,a,2026-01-31\n", "2,b,\n")):
        outcome = parse(f"{before}{line}\n{after}")
        assert outcome.frame["i"].to_list() == [1] * bool(before) + [2] * bool(after)
        [(found, raw)] = outcome.rejected
        assert found.startswith(reason)
        assert raw == line


def test_short_row_is_rejected_though_its_last_column_is_not_declared() -> None:
    outcome = parse_csv_lines(b"1,a\n2\n3,\n", {"i": pl.Int64()}, ["i", "rest"], CsvDialect())
    assert outcome.frame["i"].to_list() == [1, 3]
    assert [raw for _, raw in outcome.rejected] == ["2"]


def test_blank_lines_are_skipped() -> None:
    outcome = parse("\n1,a,\n\n\r\n2,b,2026-01-31\n\n")
    assert outcome.frame["i"].to_list() == [1, 2]
    assert outcome.rejected == ()


def test_row_that_is_no_utf8_is_rejected() -> None:
    outcome = parse(b"1,a,\n2,\xff,\n3,c,\n")
    assert outcome.frame["i"].to_list() == [1, 3]
    assert outcome.rejected[0][0].startswith("not UTF-8")


def test_quoted_line_end_is_read_where_the_dialect_allows_it() -> None:
    text = '1,"a\nb",\n2,c,\nx,"d\ne",\n4,f,\n'
    outcome = parse(text, CsvDialect(quoted_newlines=True))
    assert outcome.frame.select("i", "s").rows() == [(1, "a\nb"), (2, "c"), (4, "f")]
    assert [raw for _, raw in outcome.rejected] == ['x,"d\ne",']


def test_quoted_line_end_makes_both_lines_malformed_where_the_dialect_forbids_it() -> None:
    outcome = parse('1,"a\nb",\n2,c,\n')
    assert outcome.frame["i"].to_list() == [2]
    assert [raw for _, raw in outcome.rejected] == ['1,"a', 'b",']


def test_other_separators_and_null_words_are_understood() -> None:
    outcome = parse("1;NA;\n-;a;\n", CsvDialect(separator=";", null_values=("NA", "-")))
    assert outcome.frame.select("i", "s").rows() == [(1, None), (None, "a")]


def test_header_is_read_without_its_byte_order_mark_and_quotes() -> None:
    assert read_header(b'\xef\xbb\xbf"a",b\r\n', CsvDialect()) == ["a", "b"]


def test_header_with_a_name_twice_is_refused() -> None:
    with pytest.raises(SourceError, match=r"\['a'\] more than once"):
        check_header("x.csv", ["a", "a", "i"])


def test_separator_of_several_characters_is_refused() -> None:
    with pytest.raises(FlowError, match="separator must be one ASCII character and no line end, found '::'"):
        CsvDialect(separator="::")


def test_type_without_a_form_in_csv_is_refused_before_the_first_batch() -> None:
    with pytest.raises(FlowError, match="column 'x' is declared as List"):
        check_csv_schema({"x": pl.List(pl.Int64())})


fields = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.text(st.sampled_from('ab,"\r é'), max_size=4),
    st.sampled_from(["", "2026-01-31", "2026-01-31T10:00:00.5", "1700000000000", "x"]),
)


def write_row(values: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(values)
    return out.getvalue()


lines = st.one_of(
    st.lists(fields, min_size=1, max_size=4).map(write_row),
    st.lists(fields, min_size=1, max_size=4).map(",".join),
)


@tries(300)
@given(st.lists(lines, max_size=6))
def test_row_is_accepted_alone_exactly_when_it_is_accepted_among_others(rows: list[str]) -> None:
    together = parse("\n".join(rows))
    alone = [parse(row + "\n") for row in rows]
    assert [raw for _, raw in together.rejected] == [raw for outcome in alone for _, raw in outcome.rejected]
    assert together.frame.equals(pl.concat([pl.DataFrame(schema=SCHEMA), *(outcome.frame for outcome in alone)]))


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"))


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), texts)))
def test_rows_written_by_python_are_read_back(rows: list[tuple[int, str]]) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    outcome = parse_csv_lines(out.getvalue().encode(), {"i": pl.Int64(), "s": pl.String()}, ["i", "s"], CsvDialect())
    assert outcome.rejected == ()
    assert outcome.frame.rows() == rows


@pytest.mark.parametrize("schema", [{"a": pl.Int64()}, {"b": pl.String()}, {"a": pl.Int64(), "b": pl.String()}])
def test_row_with_too_many_fields_is_rejected_whichever_columns_are_declared(schema: dict[str, pl.DataType]) -> None:
    text = b"1,x\n2,y,z\n3\n4,\n"
    outcome = parse_csv_lines(text, schema, ["a", "b"], CsvDialect())
    assert outcome.frame.height == 2
    assert [raw for _, raw in outcome.rejected] == ["2,y,z", "3"]

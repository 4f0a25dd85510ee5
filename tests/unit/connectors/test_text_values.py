from __future__ import annotations

import datetime
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.formats import text_columns
from anabranch.connectors.formats.csv_records import CsvDialect
from anabranch.connectors.formats.csv_rows import parse_csv_lines
from anabranch.connectors.formats.json_rows import parse_json_lines
from anabranch.connectors.formats.text_columns import convert_text
from anabranch.connectors.formats.text_values import Misfit, reader_of
from property_tests import tries
from wild_lines import times

UTC = datetime.UTC
BERLIN = pl.Datetime("us", "Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31", datetime.datetime(2026, 1, 31)),
        ("2026-01-31T23:59", datetime.datetime(2026, 1, 31, 23, 59)),
        ("2026-01-31 23:59:58", datetime.datetime(2026, 1, 31, 23, 59, 58)),
        ("2026-01-31T23:59:58.123", datetime.datetime(2026, 1, 31, 23, 59, 58, 123_000)),
        ("2026-01-31T23:59:58.123456789Z", datetime.datetime(2026, 1, 31, 23, 59, 58, 123_456)),
        ("2026-01-31T23:59:58+02:00", datetime.datetime(2026, 1, 31, 21, 59, 58)),
        ("2026-01-31T23:59:58.5-0230", datetime.datetime(2026, 2, 1, 2, 29, 58, 500_000)),
        ("2024-02-29T00:00:00", datetime.datetime(2024, 2, 29)),
        ("1700000000000000", datetime.datetime(2023, 11, 14, 22, 13, 20)),
        ("-1", datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        ("0001-01-01T00:00:00", datetime.datetime(1, 1, 1)),
    ],
)
def test_time_is_read_alone_and_beside_other_forms(text: str, expected: datetime.datetime) -> None:
    assert reader_of(pl.Datetime("us"))(text) == pl.Series([expected], dtype=pl.Datetime("us")).to_physical()[0]
    alone = convert_text(pl.Series([text, None]), pl.Datetime("us"))
    beside = convert_text(pl.Series(["2026-01-31", text, "5", None]), pl.Datetime("us"))
    assert alone is not None and alone.to_list() == [expected, None]
    assert beside is not None and beside.to_list()[1] == expected


@tries(200)
@given(
    st.lists(st.one_of(times, times, st.none(), st.integers(-(10**15), 10**15).map(str)), min_size=1, max_size=6),
    st.sampled_from([pl.Datetime("ms"), pl.Datetime("us", "UTC"), pl.Datetime("ns"), BERLIN]),
)
def test_many_times_are_read_by_compiled_code_as_few_are(texts: list[str | None], kind: pl.Datetime) -> None:
    # One of another length, so that they are of several forms.
    column = pl.Series([*texts, "2026-01-31", "2026-01-31T10:00:00Z"], dtype=pl.String)
    few = convert_text(column, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_columns, "_MANY_TIMES", 0)
        many = convert_text(column, kind)
        assert (few is None) == (many is None)
        assert few is None or few.equals(many, null_equal=True)
        if few is not None and not any(text and text.lstrip("-").startswith("0") for text in texts):
            patch.setattr(text_columns, "_read_any_ticks", lambda *_: pytest.fail("compiled code left it to others"))
            assert convert_text(column, kind) is not None


@pytest.mark.parametrize(
    "text",
    [
        "", "junk", "2026-13-01", "2026-02-30", "2025-02-29T00:00:00", "1900-02-29T00:00:00", "2026-01-31T24:00:00",
        "2026-01-31T23:60:00", "2026-01-31T23:59:60", "2026-1-1", "12026-01-01T0:00:00", "2026-01-31T23:59:58.",
        "2026-01-31T23:59:58.1234567891", "2026-01-31T23:59:58.+5", "99999999999999999999", "+5", "2026/01/31",
        "2026-00-10T00:00:00", "2026-01-00T00:00:00", " 026-01-01", "2026-01-01T00:00:00+25:00", "0000-12-31",
        "2026-01-01T00:00:00-01:60", "-9223372036854775808", "2026-01-31\n", "+026-01-01T00:00:00", "٢026-01-01",
    ],
)  # fmt: skip
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_text_that_is_no_time_is_refused_alone_and_beside_others(text: str, unit: str) -> None:
    kind = pl.Datetime(unit)  # type: ignore[arg-type]
    assert convert_text(pl.Series([text]), kind) is None
    assert convert_text(pl.Series(["2026-01-31", text]), kind) is None
    with pytest.raises(Misfit):
        reader_of(kind)(text)


@given(
    st.lists(st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)), min_size=1, max_size=5),
    st.sampled_from(["auto", "seconds", "milliseconds", "microseconds"]),
    st.sampled_from(["", "Z", "+00:00"]),
)
def test_times_written_by_python_are_read_back(times: list[datetime.datetime], precision: str, zone: str) -> None:
    text = pl.Series([time.isoformat(timespec=precision) + zone for time in times])
    expected = [datetime.datetime.fromisoformat(time.isoformat(timespec=precision)) for time in times]
    read = convert_text(text, pl.Datetime("us"))
    assert read is not None
    assert read.to_list() == expected


def test_time_zone_of_the_column_is_kept() -> None:
    read = convert_text(pl.Series(["2026-01-31T10:00:00Z"]), pl.Datetime("ms", "Europe/Berlin"))
    assert read is not None
    assert read.dtype == pl.Datetime("ms", "Europe/Berlin")
    assert read[0].astimezone(UTC) == datetime.datetime(2026, 1, 31, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-06-01T12:00:00", datetime.datetime(2026, 6, 1, 10)),
        ("2026-06-01T12:00:00.250", datetime.datetime(2026, 6, 1, 10, 0, 0, 250_000)),
        ("2026-06-01 12:00", datetime.datetime(2026, 6, 1, 10)),
        ("2026-06-01", datetime.datetime(2026, 5, 31, 22)),
        ("2026-06-01T12:00:00Z", datetime.datetime(2026, 6, 1, 12)),
        ("2026-06-01T12:00:00-05:00", datetime.datetime(2026, 6, 1, 17)),
        ("2026-06-01 12:00:00+0530", datetime.datetime(2026, 6, 1, 6, 30)),
        ("1780000000000000", datetime.datetime(2026, 5, 28, 20, 26, 40)),
        ("2026-10-25T02:30:00+02:00", datetime.datetime(2026, 10, 25, 0, 30)),
        ("2026-10-25T02:30:00+01:00", datetime.datetime(2026, 10, 25, 1, 30)),
    ],
)
def test_time_without_an_offset_is_of_the_columns_zone_beside_any_other(text: str, expected: datetime.datetime) -> None:
    for texts in ([text], [text, None], ["2026-06-01T12:00:00", "2026-06-01T12:00:00Z", text, "5"]):
        read = convert_text(pl.Series(texts), BERLIN)
        assert read is not None and read.dtype == BERLIN
        found = read[texts.index(text)].astimezone(UTC).replace(tzinfo=None)
        assert found == expected


def test_mixed_zones_become_utc_in_a_column_without_one() -> None:
    texts = ["2026-06-01T12:00:00", "2026-06-01T12:00:00Z", "2026-06-01T12:00:00+02:00", "2026-06-01T12:00:00-05:30"]
    read = convert_text(pl.Series(texts), pl.Datetime("ms"))
    assert read is not None
    assert [time.strftime("%H:%M") for time in read] == ["12:00", "12:00", "10:00", "17:30"]


@pytest.mark.parametrize("text", ["2026-10-25T02:30:00", "2026-03-29T02:30:00", "2026-10-25 02:30"])
def test_time_that_happened_twice_or_never_is_refused_and_told_how_to_write_it(text: str) -> None:
    for texts in ([text], ["2026-06-01T12:00:00Z", text]):
        assert convert_text(pl.Series(texts), BERLIN) is None
    reason = rf"found .*{text}.* no single moment in Europe/Berlin.*write times with their offset"
    json_text = f'{{"ts":"{text}"}}\n{{"ts":"{text}+01:00"}}\n'.encode()
    csv_text = f"{text}\n{text}+01:00\n".encode()
    for outcome in (
        parse_json_lines(json_text, {"ts": BERLIN}),
        parse_csv_lines(csv_text, {"ts": BERLIN}, ["ts"], CsvDialect()),
    ):
        assert outcome.frame.height == 1
        ((found, _),) = outcome.rejected
        assert re.search(reason, found)


def test_text_that_is_no_time_at_all_is_not_blamed_on_its_zone() -> None:
    with pytest.raises(Misfit, match=r"^$"):
        reader_of(BERLIN)("junk")
    assert reader_of(BERLIN)("2026-06-01") == 1_780_264_800_000_000
    assert reader_of(pl.Datetime("us"))("2026-10-25T02:30:00") == 1_792_895_400_000_000


def test_dates_times_of_day_and_decimals_are_read() -> None:
    assert convert_text(pl.Series(["2026-01-31"]), pl.Date()).to_list() == [datetime.date(2026, 1, 31)]  # type: ignore[union-attr]
    assert convert_text(pl.Series(["10:00:00.5"]), pl.Time()).to_list() == [datetime.time(10, 0, 0, 500_000)]  # type: ignore[union-attr]
    assert str(convert_text(pl.Series(["1.25"]), pl.Decimal(10, 2))[0]) == "1.25"  # type: ignore[index]
    assert convert_text(pl.Series(["2026-1-31"]), pl.Date()) is None
    assert convert_text(pl.Series(["x"]), pl.Decimal(10, 2)) is None

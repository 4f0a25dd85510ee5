"""Values are read as they are written, to the last digit, or the row is a dead letter with the reason."""

from __future__ import annotations

import gzip
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from anabranch.connectors.filesystem.reading import read_split
from anabranch.connectors.formats.csv_records import CsvDialect
from anabranch.connectors.formats.csv_rows import parse_csv_lines
from anabranch.connectors.formats.json_rows import check_json_schema, parse_json_lines
from anabranch.connectors.formats.messages.json_values import JsonValues
from anabranch.connectors.formats.messages.messages import Messages, join_values
from anabranch.errors import FlowError
from anabranch.model import ReadOutcome


def read_json(value: str, kind: pl.DataType) -> Any:
    """Return the one value of a column, or the reason why there is none; the same from a file and from a topic."""
    line = f'{{"x": {value}}}'.encode()
    outcome = parse_json_lines(line + b"\n", {"x": kind})
    decoded = JsonValues({"x": kind}).decode(Messages("t", 0, join_values([line]), np.arange(1)))
    assert decoded.frame.equals(outcome.frame)
    assert [reason for _, reason in decoded.faults] == [reason for reason, _ in outcome.rejected]
    return only_one(outcome)


def read_csv(field: str, kind: pl.DataType) -> Any:
    return only_one(parse_csv_lines(f"{field},\n".encode(), {"x": kind}, ["x", "y"], CsvDialect()))


def only_one(outcome: ReadOutcome) -> Any:
    if outcome.rejected:
        assert outcome.frame.height == 0
        ((reason, _),) = outcome.rejected
        return reason
    return outcome.frame.get_column("x").item()


MONEY = pl.Decimal(18, 2)
PADDING = "." * 1000
"""With it, a thousand lines are as many bytes as compiled code is used for."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90071992547409.93", "90071992547409.93"),
        ("9999999999999999.99", "9999999999999999.99"),
        ("1e2", "100.00"),
        ("1.5E-1", "0.15"),
        ("12.5000", "12.50"),
        ("-0.00", "0.00"),
        ("0e999999999999", "0.00"),
    ],
)
def test_number_in_a_decimal_column_is_exact(text: str, expected: str) -> None:
    for found in (read_json(text, MONEY), read_json(f'"{text}"', MONEY), read_csv(text, MONEY)):
        assert found == Decimal(expected)
    inside = read_json(f'[{{"price": {text}}}]', pl.List(pl.Struct({"price": MONEY})))
    assert inside.to_list() == [{"price": Decimal(expected)}]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("12.345", "more than 2 digits behind the point"),
        ("1e-3", "more than 2 digits behind the point"),
        ("10000000000000000", "more than 16 digits before the point"),
        ("1e400", "more than 16 digits before the point"),
        ("1e999999999999", "more digits than it holds"),
    ],
)
def test_digits_that_a_decimal_column_cannot_hold_make_the_row_malformed(text: str, reason: str) -> None:
    assert read_json(text, MONEY).endswith(f" {text}, {reason}")
    assert read_csv(text, MONEY).endswith(f"'{text}', {reason}")
    assert reason in read_json(f"[{text}]", pl.List(MONEY))


@pytest.mark.parametrize(
    "written", ["90071992547409.93", "1.50", "-0", "1e2", "true", '{"a": 1.50,  "b": [ ]}', "[1.0, 2]", "0.1e-7", "[]"]
)
def test_json_value_in_a_string_column_keeps_its_text_as_written(written: str) -> None:
    assert read_json(written, pl.String()) == written
    assert read_json(f"[{written}]", pl.List(pl.String())).to_list() == [written]
    assert read_json(f'{{"in": {written}}}', pl.Struct({"in": pl.String()})) == {"in": written}
    many = f'{{"x": {written}, "pad": "{PADDING}"}}\n'.encode() * 1200
    assert parse_json_lines(many, {"x": pl.String()}).frame.get_column("x").unique().to_list() == [written]


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    assert "half of a surrogate pair at character 1" in read_json(r'"a\ud800"', pl.String())
    assert "half of a surrogate pair" in read_json(r'["\udc00"]', pl.List(pl.String()))
    assert read_json(r'"\ud83d\ude00"', pl.String()) == "\U0001f600"
    ignored = parse_json_lines(rb'{"x": "a", "other": "\ud800"}', {"x": pl.String()})
    assert ignored.frame.get_column("x").to_list() == ["a"]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("odd", ["9000000000000000000", '"9223372036854775807"', "-9000000000000000000", "1e300"])
def test_time_out_of_range_beside_iso_text_is_a_dead_letter(zone: str | None, odd: str) -> None:
    kind = pl.Datetime("us", zone)
    text = f'{{"x": "2026-01-01T00:00:00"}}\n{{"x": {odd}}}\n{{"x": "2026-01-02 00:00:00Z"}}\n'.encode()
    outcome = parse_json_lines(text, {"x": kind})
    assert outcome.frame.height == 2
    assert len(outcome.rejected) == 1


def test_time_of_the_year_200000_is_refused_with_the_times_that_there_are() -> None:
    far = str(6_250_000_000_000_000_000)
    for found in (read_json(far, pl.Datetime("us")), read_csv(far, pl.Datetime("us"))):
        assert "outside the times that it may hold, 0001-01-01 00:00:00 to 9999-12-31 23:59:59.999999 UTC" in found
    assert "2262-04-11" in read_json('"2300-01-01T00:00:00"', pl.Datetime("ns"))
    many = f'{{"x": {far}, "pad": "{PADDING}"}}\n'.encode() * 1200
    assert len(parse_json_lines(many, {"x": pl.Datetime("us")}).rejected) == 1200


@pytest.mark.parametrize(
    ("text", "kind", "is_json"),
    [
        ('" 026-01-01"', pl.Date(), True),
        (" 026-01-01", pl.Date(), False),
        ('"2026-01-01T00:00:00+25:00"', pl.Datetime("us"), True),
        ("2026-01-01T00:00:00+25:00", pl.Datetime("us"), False),
        ('" 1:00:00"', pl.Time(), True),
        ("23:59:60", pl.Time(), False),
        (" ", pl.Float64(), False),
        (" 1", pl.Int64(), False),
        ("1e400", pl.Float64(), True),
        ("1e400", pl.Float64(), False),
        ("1e300", pl.Float32(), True),
        ("1e300", pl.Float32(), False),
        ("5.0", pl.Datetime("us"), True),
        ("1e3", pl.Int64(), False),
    ],
)
def test_nearly_right_values_are_malformed_in_every_format(text: str, kind: pl.DataType, is_json: bool) -> None:
    found = (read_json if is_json else read_csv)(text, kind)
    assert isinstance(found, str)
    assert found.startswith("column 'x' is declared as")


def test_csv_numbers_may_have_a_plus_leading_zeros_and_no_digit_beside_the_point() -> None:
    assert [read_csv(text, pl.Int64()) for text in ("+5", "007", "-0")] == [5, 7, 0]
    assert [read_csv(text, pl.Float64()) for text in (".5", "5.", "+1e2", "inf", "-Infinity")] == [
        0.5, 5.0, 100.0, float("inf"), float("-inf"),
    ]  # fmt: skip
    assert [read_csv(text, MONEY) for text in ("+5", "007", ".5")] == [Decimal(5), Decimal(7), Decimal("0.5")]
    assert [read_csv(text, pl.Boolean()) for text in ("TRUE", '"false"')] == [True, False]


def test_minus_zero_keeps_its_sign() -> None:
    padded = f'{{"x": -0, "pad": "{PADDING}"}}\n'.encode() * 1200
    for text in (b'{"x": -0}\n', b'{"x": -0}\n' * 8000, b'{"x": 0.5}\n{"x": -0}\n{"x": null}\n' * 4000, padded):
        zeros = parse_json_lines(text, {"x": pl.Float64()}).frame.get_column("x").drop_nulls()
        assert repr(zeros[-1]) == "-0.0"


@pytest.mark.parametrize(
    "kind", [pl.Duration("us"), pl.Binary(), pl.List(pl.Binary()), pl.Struct({"a": pl.Array(pl.Duration("ms"), 2)})]
)
def test_type_without_a_form_in_json_is_refused_at_any_depth(kind: pl.DataType) -> None:
    with pytest.raises(FlowError, match="which JSON lines cannot hold"):
        check_json_schema({"x": kind})


def read_file(path: Path, format: str, schema: dict[str, pl.DataType], dialect: CsvDialect) -> ReadOutcome:
    size = path.stat().st_size
    unit = "file" if path.suffix in (".gz", ".zst") or dialect.quoted_newlines else "bytes"
    split = {"path": str(path), "size": size, "unit": unit, "from": 0, "to": size if unit == "bytes" else 1}
    outcomes = list(read_split(split, format, schema, dialect))
    rejected = tuple(reject for outcome in outcomes for reject in outcome.rejected)
    return ReadOutcome(pl.concat([outcome.frame for outcome in outcomes]), rejected)


def compress(text: bytes, ending: str) -> bytes:
    return {".gz": gzip.compress, ".zst": lambda held: pa.compress(held, "zstd", asbytes=True), "": bytes}[ending](text)


@pytest.mark.parametrize("ending", [".gz", ".zst", ""])
def test_csv_with_quoted_line_ends_is_nowhere_cut_inside_quotes(tmp_path: Path, ending: str) -> None:
    rows = 120_000
    notes = "\n".join(["a note, of several lines", 'and "quotes"', *["more of it"] * 12]).replace('"', '""')
    text = "id,note\n" + "".join(f'{row},"{notes}"\n' for row in range(rows))
    assert len(text) > 16 * 1024 * 1024
    path = tmp_path / f"notes.csv{ending}"
    path.write_bytes(compress(text.encode(), ending))
    outcome = read_file(path, "csv", {"id": pl.Int64(), "note": pl.String()}, CsvDialect(quoted_newlines=True))
    assert outcome.rejected == ()
    assert outcome.frame.get_column("id").to_list() == list(range(rows))
    assert outcome.frame.get_column("note").n_unique() == 1


def test_quote_that_is_never_closed_spoils_its_own_record_only() -> None:
    dialect = CsvDialect(quoted_newlines=True)
    text = b'1,"a\nb"\n4,5" pipe\n2,"oops\n3,c\n'
    outcome = parse_csv_lines(text, {"id": pl.Int64(), "s": pl.String()}, ["id", "s"], dialect)
    assert outcome.frame.rows() == [(1, "a\nb"), (4, '5" pipe'), (3, "c")]
    assert [raw for _, raw in outcome.rejected] == ['2,"oops']


def lines_of_noise(count: int) -> bytes:
    chance = random.Random(1)
    return b"".join(b'{"x": %d}\n' % chance.getrandbits(62) for _ in range(count))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_good_rows_before_damage_are_read_and_counted(tmp_path: Path, ending: str, damage: str) -> None:
    text = lines_of_noise(10_000)
    whole = compress(text, ending)
    broken = bytearray(whole[: len(whole) * 3 // 4])
    if damage == "flipped":
        # Behind three quarters, all is noise: no decompressor gets far in it.
        broken += random.Random(2).randbytes(len(whole) // 4)
    path = tmp_path / f"noise.json{ending}"
    path.write_bytes(broken)
    outcome = read_file(path, "json", {"x": pl.Int64()}, CsvDialect())
    ((reason, _),) = [reject for reject in outcome.rejected if "damaged" in reject[0] or "ends early" in reject[0]]
    good = outcome.frame.get_column("x").to_list()
    wanted = parse_json_lines(text, {"x": pl.Int64()}).frame.get_column("x").to_list()
    # zstd decompresses blocks of 128 KiB; what follows the last whole one is lost.
    assert len(good) > (4000 if ending == ".zst" else 7000)
    kept = len(good) if damage == "cut" else 4000
    assert good[:kept] == wanted[:kept]
    assert f"the {len(good) + len(outcome.rejected) - 1} rows before it were read" in reason


def test_checksum_that_does_not_fit_says_that_rows_may_be_wrong(tmp_path: Path) -> None:
    broken = bytearray(gzip.compress(lines_of_noise(100)))
    broken[-8] ^= 0xFF
    path = tmp_path / "noise.json.gz"
    path.write_bytes(broken)
    outcome = read_file(path, "json", {"x": pl.Int64()}, CsvDialect())
    ((reason, _),) = outcome.rejected
    assert "any of its rows may be wrong); the 100 rows before it were read" in reason


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize("format", ["json", "csv"])
def test_byte_order_mark_is_skipped_at_the_start_of_a_file_and_nowhere_else(
    tmp_path: Path, ending: str, format: str
) -> None:
    lines = ['{"x": "a"}', '\ufeff{"x": "b"}'] if format == "json" else ["a,", "\ufeffb,"]
    path = tmp_path / f"marked{ending}"
    path.write_bytes(compress(b"\xef\xbb\xbf" + "\n".join(lines).encode(), ending))
    schema = {"x": pl.String()} if format == "json" else {"x": pl.String(), "y": pl.String()}
    outcome = read_file(path, format, schema, CsvDialect(header=False))
    expected = ["a"] if format == "json" else ["a", "\ufeffb"]
    assert outcome.frame.get_column("x").to_list() == expected
    if not ending:
        split = {"path": str(path), "size": path.stat().st_size, "unit": "bytes", "from": 5, "to": path.stat().st_size}
        (second,) = read_split(split, format, schema, CsvDialect(header=False))
        assert second.frame.get_column("x").to_list() == expected[1:]

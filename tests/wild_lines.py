"""JSON and CSV lines as they come from the wild: every type, every way to write a value, and nearly every wrong one."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from anabranch.connectors.filesystem import line_ranges
from anabranch.connectors.filesystem.reading import read_split
from anabranch.connectors.formats import csv_rows, json_rows, rejects
from anabranch.connectors.formats.csv_records import CsvDialect, ExactCsv, split_records
from anabranch.connectors.formats.csv_rows import parse_csv_lines
from anabranch.connectors.formats.exact_json import DEEPEST_NESTING, read_exactly
from anabranch.connectors.formats.fixed_layout_json import PlacedLines
from anabranch.connectors.formats.json_rows import parse_json_lines
from anabranch.connectors.formats.messages import json_values as kafka_json
from anabranch.connectors.formats.messages.json_values import JsonValues
from anabranch.connectors.formats.messages.messages import Messages, ScatteredValues, Values, join_values
from anabranch.model import ReadOutcome
from oracle.text_values import (
    MALFORMED,
    Pairs,
    Undecided,
    comparable_rows,
    depth_of,
    json_value,
    parse_json,
    text_value,
)

LEAVES: list[pl.DataType] = [
    pl.Boolean(), pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.Int128(), pl.UInt8(), pl.UInt16(), pl.UInt32(),
    pl.UInt64(), pl.UInt128(), pl.Float16(), pl.Float32(), pl.Float64(), pl.String(), pl.Categorical(),
    pl.Enum(["a", "1", "true", "é"]), pl.Decimal(10, 2), pl.Decimal(38, 0), pl.Decimal(38, 38), pl.Decimal(5, 5),
    pl.Date(), pl.Time(), pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns"), pl.Datetime("us", "UTC"),
    pl.Datetime("ms", "Europe/Berlin"), pl.Datetime("ns", "America/New_York"),
]  # fmt: skip
leaves = st.sampled_from(LEAVES)
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(pl.List),
        st.tuples(inner, st.integers(0, 2)).map(lambda pair: pl.Array(*pair)),
        st.dictionaries(st.sampled_from(["a", "é", "x y"]), inner, max_size=2).map(pl.Struct),
    ),
    max_leaves=3,
)
_NAMES = ("a", "b", "s", "é", 'q"t', "a/b")
json_schemas = st.dictionaries(st.sampled_from(_NAMES), st.one_of(leaves, nested), min_size=1, max_size=3)
csv_schemas = st.dictionaries(st.sampled_from(_NAMES[:4]), leaves, min_size=1, max_size=3)

_digits = st.text("0123456789", min_size=1, max_size=22)
numbers = st.one_of(
    st.integers(-(2**130), 2**130).map(str),
    st.integers(-300, 300).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**9), 10**9, allow_nan=False, places=3).map(str),
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "-"]),
        st.one_of(st.just("0"), _digits),
        st.one_of(st.just(""), _digits.map(".{}".format)),
        st.one_of(st.just(""), st.builds("{}{}".format, st.sampled_from(["e", "E", "e+", "E-", "e-"]), _digits)),
    ),
    st.sampled_from(
        [
            "0",
            "-0",
            "-0.0",
            "0.0",
            "0e5",
            "1e2",
            "1.5E-1",
            "1e400",
            "-1e400",
            "1e-400",
            "1e300",
            "1e38",
            "3.5e38",
            "65504",
            "65520",
            "1.0",
            "1.10",
            "99999999.99",
            "1e7",
            "99999999.995",
            "0.005",
            "0.00",
            "90071992547409.93",
            "9007199254740993",
            "1e999999999999",
            "1E-999999999",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551616",
            "1700000000000",
            "1e3",
            "5.0",
            "253402300800000",
            "200000000000000000",
        ]
    ),
)
_near_numbers = st.sampled_from(
    ["+1", "007", "-007", ".5", "5.", "-.5", "1.e3", "", " ", " 1", "1 ", "\t1", "1_0", "0x1", "inf", "-inf",
     "Infinity", "NaN", "nan", "-nan", "+inf", "INF", "1e", "e1", "-", "+", ".", "--1", "1,5", "٣", "1\0", "1e+", "1f",
     "1d", "1L"]
)  # fmt: skip
_offsets = st.sampled_from(["", "Z", "+00:00", "-00:00", "+02:00", "-0530", "+14:00", "+23:59", "+24:00", "+25:00",
                            "+01:60", "z", "+1", "+01", " Z", "+02:00:00"])  # fmt: skip
times = st.one_of(
    st.builds(
        "{}{}{}{}".format,
        st.one_of(
            st.dates().map(str),
            st.sampled_from(
                [
                    "0000-01-01",
                    "2026-02-29",
                    "2024-02-29",
                    "1900-02-29",
                    "9999-12-31",
                    "0001-01-01",
                    "2026-10-25",
                    "2026-03-29",
                    " 026-01-01",
                    "2026-1-1",
                    "12026-01-01",
                    "1677-09-21",
                    "2262-04-11",
                    "2300-01-01",
                ]
            ),
        ),
        st.sampled_from(["", "T", " ", "t", "  "]),
        st.sampled_from(
            [
                "",
                "00:00",
                "23:59",
                "02:30:00",
                "23:59:59.999999999",
                "12:00:00.5",
                "24:00:00",
                "23:60:00",
                "23:59:60",
                "1:00:00",
                "12:00:00.",
                "12:00:00.1234567891",
                "12:00:00,5",
                "00:12:43.145224193",
                "23:47:16.854775807",
                "23:47:16.854775808",
                "12",
                "12:00.5",
            ]
        ),
        _offsets,
    ),
    st.datetimes().map(lambda time: time.isoformat()),
    st.times().map(str),
    st.dates().map(str),
    st.sampled_from(["10:00:00", "10:00", "24:00:00", "23:59:60", " 1:00:00", "10:00:00.123456789", "10:00:00Z"]),
)
texts = st.one_of(
    st.text(max_size=6),
    st.text(st.sampled_from('ab"\\\'/,;é☃\U0001f600\x7f\xa0\ufeff\u2028 {}[]:'), max_size=6),
    st.sampled_from(["true", "false", "True", "FALSE", "null", "a", "é", "1", "[1]", '{"a":1}', "NA", "-"]),
    numbers, _near_numbers, times,
)  # fmt: skip


def _write_string(text: str, how: int) -> str:
    """Return a JSON string, with more escapes than it needs."""
    if how == 0:
        return json.dumps(text, ensure_ascii=False)
    if how == 1:
        return json.dumps(text)
    units = text.encode("utf-16-be", "surrogatepass")
    return '"' + "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2)) + '"'


strings = st.builds(_write_string, texts, st.integers(0, 2))
odd_strings = st.sampled_from(
    ['"\\ud800"', '"\\ud83d\\ude00"', '"\\udc00\\ud800"', '"x\\ud800\\u0041"', '"\\uD83D"', '"\\\\ud800"', '"\\/"',
     '"\\q"', '"\t"', '"\\u12"', '"', '"\\u0000"', '"\\b\\f\\n\\r\\t"', "'a'", '"\x7f"', '"\\uDBFF\\uDFFF"']
)  # fmt: skip
_scalars = st.one_of(numbers, strings, st.sampled_from(["null", "true", "false"]))
json_values = st.recursive(
    st.one_of(_scalars, _scalars, odd_strings, _near_numbers, st.sampled_from(["True", "nul", "NaN", "{}", "[]"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]"),
        st.lists(st.tuples(st.sampled_from(["a", "é", "x y", "other"]), inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in pairs) + "}"
        ),
    ),
    max_leaves=4,
)  # fmt: skip


def fitting_json(kind: pl.DataType) -> st.SearchStrategy[str]:
    """Return values that mostly are of a type."""
    match kind:
        case pl.Struct():
            members = [st.tuples(st.just(field.name), fitting_json(field.dtype)) for field in kind.fields]
            return st.tuples(*members).map(
                lambda pairs: "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in pairs) + "}"
            )
        case pl.Array():
            size = st.just(kind.size)
            return size.flatmap(
                lambda count: st.lists(fitting_json(kind.inner), min_size=count, max_size=count).map(
                    lambda items: "[" + ",".join(items) + "]"
                )
            )
        case pl.List():
            return st.lists(fitting_json(kind.inner), max_size=3).map(lambda items: "[" + ",".join(items) + "]")
        case pl.Boolean():
            return st.sampled_from(["true", "false", "null"])
        case pl.Datetime() | pl.Date() | pl.Time():
            return st.one_of(times.map(json.dumps), st.integers(-(10**15), 10**15).map(str))
        case pl.String() | pl.Categorical() | pl.Enum():
            return st.one_of(strings, json_values)
        case _:
            return st.one_of(numbers, numbers, st.just("null"), numbers.map(json.dumps))


@dataclass(frozen=True)
class WildJson:
    """Lines of a schema, and what the oracle says of each: its row, ``MALFORMED``, or nothing for a blank one."""

    schema: dict[str, pl.DataType]
    lines: list[bytes]
    ending: bytes
    ends_with_one: bool

    @property
    def text(self) -> bytes:
        return self.ending.join(self.lines) + (self.ending if self.ends_with_one else b"")

    @property
    def expected(self) -> list[Any]:
        return [_expect_json(line, self.schema) for line in self.lines if line.strip(b" \t\r\n")]


def _expect_json(line: bytes, schema: dict[str, pl.DataType]) -> Any:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return MALFORMED
    value = parse_json(text)
    if not isinstance(value, Pairs) or depth_of(value) > DEEPEST_NESTING:
        return MALFORMED
    members = {name: (item, raw) for (name, item), raw in reversed(list(zip(value, _cut_members(text), strict=True)))}
    try:
        row = {name: json_value(*members.get(name, (None, "null")), kind) for name, kind in schema.items()}
    except Undecided:
        return None
    return MALFORMED if any(item is MALFORMED for item in row.values()) else row


def _cut_members(text: str) -> list[str]:
    """Return how the values of a valid object's members are written, found by counting brackets and quotes."""
    values: list[str] = []
    depth, start, in_string, at = 0, 0, False, 0
    while at < len(text):
        letter = text[at]
        if in_string:
            at += letter == "\\"
            in_string = letter != '"'
        elif letter == '"':
            in_string = True
        elif letter in "[{":
            depth += 1
        elif letter == ":" and depth == 1:
            start = at + 1
        elif (letter == "," and depth == 1) or (letter == "}" and depth == 1):
            if text[start:at].strip(" \t\r\n{"):
                values.append(text[start:at].strip(" \t\r\n"))
            depth -= letter == "}"
        elif letter in "]}":
            depth -= 1
        at += 1
    return values


@st.composite
def wild_json(draw: st.DrawFn) -> WildJson:
    schema = draw(json_schemas)
    blanks = st.sampled_from(["", "", "", " ", "\t", "\r", "  "])
    names = st.sampled_from([*schema, *schema, *schema, "other", "ä"])
    is_alike = draw(st.booleans())
    # Lines of one layout are what the quick readers are for.
    layout = [(name, draw(blanks), draw(blanks)) for name in draw(st.permutations([*schema, "other"]))]

    def draw_line() -> str:
        chosen = (
            layout if is_alike else [(name, draw(blanks), draw(blanks)) for name in draw(st.lists(names, max_size=4))]
        )
        members = []
        for name, before, behind in chosen:
            kind = schema.get(name)
            value = draw(
                json_values if kind is None else st.one_of(fitting_json(kind), fitting_json(kind), json_values)
            )
            how = 0 if is_alike else draw(st.sampled_from([0, 0, 0, 1, 2]))
            members.append(f"{before}{_write_string(name, how)}{before}:{behind}{value}{behind}")
        return "{" + ",".join(members) + "}"

    odd = st.sampled_from(
        ["", " ", "\t\r", "{}", "[]", "null", "{", "}", '{"a":1}}', '{"a":1} {"a":2}', '{"a":1,}', '{"a" 1}', "\x0c",
         "\0", "\ufeff{}", '{"a":1}\x0b', "[" * 600 + "]" * 600, '{"other":' + "[" * 499 + "]" * 499 + "}",
         '{"other":' + "[" * 500 + "]" * 500 + "}", '{"a":1}//', "{'a':1}", '{"a":1\r}', "\xa0{}", "12", '"x"'],
    )  # fmt: skip
    lines = []
    for _ in range(draw(st.integers(1, 6))):
        line = (draw(odd) if draw(st.integers(0, 7)) == 0 else draw_line()).encode("utf-8", "surrogatepass")
        lines.append(line.replace(b"\n", b"") if draw(st.integers(0, 15)) else line.replace(b"\n", b"") + b"\xff")
    return WildJson(schema, lines, draw(st.sampled_from([b"\n", b"\n", b"\r\n"])), draw(st.booleans()))


@dataclass(frozen=True)
class WildCsv:
    """Records of a schema, and what the oracle says of each."""

    schema: dict[str, pl.DataType]
    columns: list[str]
    records: list[bytes]
    dialect: CsvDialect
    ending: bytes
    ends_with_one: bool

    @property
    def text(self) -> bytes:
        return self.ending.join(self.records) + (self.ending if self.ends_with_one else b"")

    @property
    def expected(self) -> list[Any]:
        return [self._expect(record) for record in self.records if record.strip(b"\r\n")]

    def _expect(self, record: bytes) -> Any:
        try:
            text = record.decode()
        except UnicodeDecodeError:
            return MALFORMED
        quoting = csv.QUOTE_NONE if self.dialect.quote is None else csv.QUOTE_MINIMAL
        style = {"delimiter": self.dialect.separator, "quoting": quoting, "strict": True}
        style |= {} if self.dialect.quote is None else {"quotechar": self.dialect.quote}
        # Python's reader ends a line at a lone return, which is text here; a stand-in keeps it whole.
        text = text.removesuffix("\r").replace("\r", "\ue000")
        try:
            (fields,) = csv.reader(io.StringIO(text, newline=""), **style)  # type: ignore[arg-type]
        except (csv.Error, ValueError):
            return MALFORMED
        if len(fields) != len(self.columns):
            return MALFORMED
        row = {}
        for name, kind in self.schema.items():
            field = fields[self.columns.index(name)].replace("\ue000", "\r")
            is_word = isinstance(kind, pl.String | pl.Categorical | pl.Enum)
            if not field and is_word:
                return None  # Quoted or not: Python's reader does not tell.
            is_null = not field or field in self.dialect.null_values
            try:
                row[name] = None if is_null else text_value(field, kind)
            except Undecided:
                return None
        return MALFORMED if any(item is MALFORMED for item in row.values()) else row


@st.composite
def wild_csv(draw: st.DrawFn, quoted_newlines: bool | None = None) -> WildCsv:
    schema = draw(csv_schemas)
    columns = draw(st.permutations([*schema, *draw(st.sampled_from([[], ["other"], ["other", "x"]]))]))
    dialect = CsvDialect(
        separator=draw(st.sampled_from([",", ",", ";", "\t", "|", ".", " "])),
        quote=draw(st.sampled_from(['"', '"', '"', "'", None])),
        header=False,
        null_values=draw(st.sampled_from([(), (), ("NA", "-")])),
        quoted_newlines=draw(st.booleans()) if quoted_newlines is None else quoted_newlines,
    )
    spans = dialect.quoted_newlines and dialect.quote is not None
    values = st.one_of(texts, texts, numbers, times).map(
        lambda text: text if spans else text.replace("\n", " ")
    )  # fmt: skip

    def write(text: str, how: int) -> str:
        quote = dialect.quote
        needs = any(mark in text for mark in (dialect.separator, quote or ",", "\n", "\r"))
        if quote is not None and (how == 0 or (needs and how < 7)):
            return quote + text.replace(quote, quote * 2) + quote
        return text.replace("\n", " ")

    odd = st.sampled_from(["", "\r", ",", ",,", '"', '"a', 'a"', '"a"b', '"a" ', ' "a"', '""', '""""', 'a"b"c',
                           '5" x,6" y', "a\rb", "\0", "\ufeff1", '"a,b', "'a'", "''"])  # fmt: skip
    records = []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 6)) == 0:
            record = draw(odd)
        else:
            width = len(columns) + draw(st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1]))
            kinds = [schema.get(name) for name in columns]
            record = dialect.separator.join(
                write(
                    draw(
                        numbers if place < len(kinds) and kinds[place] is not None and draw(st.booleans()) else values
                    ),
                    draw(st.integers(0, 7)),
                )
                for place in range(width)
            )
        encoded = record.encode("utf-8", "surrogatepass")
        records.append(encoded if draw(st.integers(0, 15)) else encoded + b"\xff")
    return WildCsv(
        schema, list(columns), records, dialect, draw(st.sampled_from([b"\n", b"\n", b"\r\n"])), draw(st.booleans())
    )


def read_json_in_every_way(wild: WildJson) -> dict[str, ReadOutcome]:
    """Return what the readers of JSON lines make of them, quick ones and exact ones."""
    text, schema = wild.text, wild.schema
    outcomes = {"as always": parse_json_lines(text, schema)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "WORTH_COMPILED_CODE_BYTES", 0)
        outcomes["compiled"] = parse_json_lines(text, schema)
        patch.setattr(json_rows, "parse_fixed_layout_lines", lambda *_: None)
        outcomes["walked"] = parse_json_lines(text, schema)
        patch.setattr(json_rows, "WORTH_COMPILED_CODE_BYTES", 2**60)
        patch.setattr(json_rows, "_UNIFORM_FROM_BYTES", 0)
        outcomes["uniform"] = parse_json_lines(text, schema)
        patch.setattr(json_rows, "_UNIFORM_FROM_BYTES", 2**60)
        patch.setattr(rejects, "_FEW_LINES", 1)
        outcomes["halved"] = parse_json_lines(text, schema)
    lines = [line for line in text.split(b"\n") if line.strip(b" \t\r")]
    frame, faults = read_exactly(lines, schema)
    rejected = tuple((reason, rejects.shorten_raw(lines[place])) for place, reason in faults)
    outcomes["exact"] = ReadOutcome(frame, rejected)
    ways: dict[str, tuple[Values, int]] = {"messages": (join_values(lines), 2**60)}
    if lines:
        scattered = scatter_values(lines)
        ways |= {
            "walked messages": (join_values(lines), 0),
            "scattered messages": (scattered, 2**60),
            "scattered and walked messages": (scattered, 0),
        }
    for way, (values, worth_bytes) in ways.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kafka_json, "WORTH_COMPILED_CODE_BYTES", worth_bytes)
            if worth_bytes == 0:
                patch.setattr(kafka_json, "parse_placed_lines", lambda *_: None)
            decoded = JsonValues(schema).decode(Messages("t", 0, values, np.arange(len(lines))))
        rejected = tuple((reason, rejects.shorten_raw(lines[place])) for place, reason in decoded.faults)
        outcomes[way] = ReadOutcome(decoded.frame, rejected)
    return outcomes


def scatter_values(values: Sequence[bytes]) -> ScatteredValues:
    """Return values as they lie in a broker's batches: in several pieces, with other bytes between them."""
    pieces = []
    middle = len(values) // 2
    for some in (values[:middle], values[middle:]) if middle else (values,):
        memory, starts, ends = b"\x00", [], []
        for value in some:
            starts.append(len(memory))
            ends.append(len(memory) + len(value))
            memory += value + b"\n\xfe\x00"
        pieces.append(PlacedLines(np.frombuffer(bytearray(memory), np.uint8), np.array(starts), np.array(ends)))
    return ScatteredValues(tuple(pieces))


def repeat_lines(text: bytes, ending: bytes, least_bytes: int) -> bytes:
    """Return a text so often that parsers cut it into blocks of their own."""
    text = text if text.endswith(b"\n") else text + ending
    return text * (least_bytes // max(1, len(text)) + 1)


def read_csv_in_every_way(wild: WildCsv) -> dict[str, ReadOutcome]:
    """Return what the readers of CSV make of the records, quick ones and exact ones."""
    text, schema, columns, dialect = wild.text, wild.schema, wild.columns, wild.dialect
    outcomes = {"as always": parse_csv_lines(text, schema, columns, dialect)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_rows, "WORTH_COMPILED_CODE_BYTES", 0)
        outcomes["compiled"] = parse_csv_lines(text, schema, columns, dialect)
        patch.setattr(csv_rows, "WORTH_COMPILED_CODE_BYTES", 2**60)
        patch.setattr(rejects, "_FEW_LINES", 1)
        outcomes["halved"] = parse_csv_lines(text, schema, columns, dialect)
    records = split_records(text, dialect)
    frame, faults = ExactCsv(schema, columns, dialect).read(records)
    outcomes["exact"] = ReadOutcome(
        frame, tuple((reason, rejects.shorten_raw(records[place])) for place, reason in faults)
    )
    return outcomes


def read_files_in_every_way(
    folder: Path, text: bytes, format: str, schema: dict[str, pl.DataType], dialect: CsvDialect, cuts: Sequence[int]
) -> dict[str, ReadOutcome]:
    """Return what files of a text give: whole, cut into ranges, and compressed in pieces of a few bytes."""
    plain = folder / f"lines.{format}"
    plain.write_bytes(text)
    (folder / f"{plain.name}.gz").write_bytes(gzip.compress(text))
    (folder / f"{plain.name}.zst").write_bytes(pa.compress(text, "zstd", asbytes=True) if text else b"")
    whole = {"path": str(plain), "size": len(text), "unit": "bytes", "from": 0, "to": len(text), "bytes": len(text)}
    outcomes = {"whole": _join(list(read_split(whole, format, schema, dialect)), schema)}
    if not dialect.quoted_newlines:
        edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
        ranges = [whole | {"from": first, "to": last} for first, last in itertools.pairwise(edges)]
        parts = [part for split in ranges for part in read_split(split, format, schema, dialect)]
        outcomes["in ranges"] = _join(parts, schema)
    for ending in (".gz", ".zst")[: 2 if text else 1]:
        path = folder / (plain.name + ending)
        split = {"path": str(path), "size": path.stat().st_size, "unit": "file", "from": 0, "to": 1, "bytes": len(text)}
        for piece_bytes in (1, 7, 2**24):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(line_ranges, "PIECE_BYTES", piece_bytes)
                patch.setattr(line_ranges, "_CHUNK_BYTES", min(piece_bytes, 64))
                outcomes[f"{ending} in pieces of {piece_bytes}"] = _join(
                    list(read_split(split, format, schema, dialect)), schema
                )
    return outcomes


def _join(outcomes: Sequence[ReadOutcome], schema: dict[str, pl.DataType]) -> ReadOutcome:
    frames = [pl.DataFrame(schema=schema), *(outcome.frame for outcome in outcomes)]
    return ReadOutcome(pl.concat(frames), tuple(reject for outcome in outcomes for reject in outcome.rejected))


def assert_all_agree(outcomes: dict[str, ReadOutcome], schema: dict[str, pl.DataType]) -> ReadOutcome:
    """Check that every way gives the same rows of the schema and the same dead letters; return them."""
    (_, first), *others = outcomes.items()
    rows = comparable_rows(first.frame)
    for way, outcome in outcomes.items():
        assert outcome.frame.schema == pl.Schema(schema), way
    for way, outcome in others:
        assert outcome.rejected == first.rejected, way
        assert comparable_rows(outcome.frame) == rows, way
    return first


def assert_expected(outcome: ReadOutcome, expected: Sequence[Any]) -> None:
    """Check that rows are what the oracle says, and malformed lines dead letters; None is left open."""
    rows = iter(comparable_rows(outcome.frame))
    if None not in expected:
        assert list(rows) == [row for row in expected if row is not MALFORMED]
        assert len(outcome.rejected) == sum(row is MALFORMED for row in expected)
    assert outcome.frame.height + len(outcome.rejected) == len(expected)
    assert all(reason for reason, _ in outcome.rejected)


def assert_repeated(much: ReadOutcome, little: ReadOutcome, times: int) -> None:
    """Check that a text which holds another so many times gives its rows and dead letters as often."""
    assert much.frame.height == little.frame.height * times
    assert much.rejected == little.rejected * times
    if little.frame.height:
        wanted = comparable_rows(little.frame)
        ordinals = range(0, much.frame.height, max(1, much.frame.height // 1000))
        found = comparable_rows(much.frame[list(ordinals)])
        assert found == [wanted[row % little.frame.height] for row in ordinals]

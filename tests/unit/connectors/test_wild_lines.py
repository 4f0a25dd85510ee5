"""JSON and CSV in every way that they are written and read, beside an oracle; `make soak` does much more of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.connectors.formats.csv_records import CsvDialect
from property_tests import tries
from wild_lines import (
    WildCsv,
    WildJson,
    assert_all_agree,
    assert_expected,
    read_csv_in_every_way,
    read_files_in_every_way,
    read_json_in_every_way,
    wild_csv,
    wild_json,
)

cuts = st.lists(st.integers(0, 200), max_size=4)


@tries(120)
@given(wild_json())
def test_json_is_read_in_every_way_as_the_oracle_reads_it(wild: WildJson) -> None:
    outcome = assert_all_agree(read_json_in_every_way(wild), wild.schema)
    assert_expected(outcome, wild.expected)


LONG_DECIMAL = WildCsv(
    {"a": pl.Decimal(38, 0)}, ["a"], [b"10000000000000000000000000001"], CsvDialect(header=False), b"\n", False
)


@tries(120)
@example(LONG_DECIMAL)
@given(wild_csv())
def test_csv_is_read_in_every_way_as_the_oracle_reads_it(wild: WildCsv) -> None:
    outcome = assert_all_agree(read_csv_in_every_way(wild), wild.schema)
    if not wild.dialect.quoted_newlines:
        assert_expected(outcome, wild.expected)


@tries(20)
@given(wild_json(), cuts)
def test_json_files_give_the_same_whole_cut_and_compressed(wild: WildJson, cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ways = read_files_in_every_way(Path(folder), wild.text, "json", wild.schema, CsvDialect(), cuts)
    assert_all_agree(ways, wild.schema)


@tries(20)
@given(wild_csv(), cuts)
def test_csv_files_give_the_same_whole_cut_and_compressed(wild: WildCsv, cuts: list[int]) -> None:
    schema = {name: wild.schema[name] for name in wild.columns if name in wild.schema}
    with tempfile.TemporaryDirectory() as folder:
        ways = read_files_in_every_way(Path(folder), wild.text, "csv", schema, wild.dialect, cuts)
    assert_all_agree(ways, schema)

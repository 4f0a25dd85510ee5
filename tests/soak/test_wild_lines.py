"""JSON and CSV lines made by chance, by the thousand."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st

from anabranch.connectors.formats.csv_records import CsvDialect, is_regularly_quoted
from anabranch.connectors.formats.csv_rows import parse_csv_lines
from anabranch.connectors.formats.json_rows import parse_json_lines
from soak.amounts import LINE_EXAMPLES, SEED
from wild_lines import (
    WildCsv,
    WildJson,
    assert_all_agree,
    assert_expected,
    assert_repeated,
    read_csv_in_every_way,
    read_files_in_every_way,
    read_json_in_every_way,
    repeat_lines,
    wild_csv,
    wild_json,
)

long_run = settings(deadline=None, max_examples=LINE_EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
short_run = settings(long_run, max_examples=max(1, LINE_EXAMPLES // 20))


@seed(SEED)
@long_run
@given(wild_json())
def test_json_is_read_in_every_way_as_the_oracle_reads_it(wild: WildJson) -> None:
    outcome = assert_all_agree(read_json_in_every_way(wild), wild.schema)
    assert_expected(outcome, wild.expected)


@seed(SEED)
@long_run
@given(wild_csv())
def test_csv_is_read_in_every_way_as_the_oracle_reads_it(wild: WildCsv) -> None:
    outcome = assert_all_agree(read_csv_in_every_way(wild), wild.schema)
    if not wild.dialect.quoted_newlines:
        assert_expected(outcome, wild.expected)


@seed(SEED)
@short_run
@given(wild_json(), st.sampled_from([5_000, 50_000, 1_100_000]))
def test_much_json_is_read_as_little_is(wild: WildJson, least_bytes: int) -> None:
    once = repeat_lines(wild.text, wild.ending, 0)
    text = repeat_lines(wild.text, wild.ending, least_bytes)
    little, much = parse_json_lines(once, wild.schema), parse_json_lines(text, wild.schema)
    assert_repeated(much, little, len(text) // len(once))


@seed(SEED)
@short_run
@given(wild_csv(), st.sampled_from([5_000, 50_000, 1_100_000]))
def test_much_csv_is_read_as_little_is(wild: WildCsv, least_bytes: int) -> None:
    assume(wild.dialect.quote is None or wild.text.count(wild.dialect.quote.encode()) % 2 == 0)
    once = wild.text if wild.text.endswith(b"\n") else wild.text + wild.ending
    little = parse_csv_lines(once, wild.schema, wild.columns, wild.dialect)
    text = repeat_lines(once, wild.ending, least_bytes)
    much = parse_csv_lines(text, wild.schema, wild.columns, wild.dialect)
    if is_regularly_quoted(once, wild.dialect) or not wild.dialect.quoted_newlines:
        assert_repeated(much, little, len(text) // len(once))


@seed(SEED)
@short_run
@given(wild_json())
def test_json_files_give_the_same_wherever_they_are_cut_and_compressed(wild: WildJson) -> None:
    with tempfile.TemporaryDirectory() as folder:
        every_byte = range(len(wild.text))
        ways = read_files_in_every_way(Path(folder), wild.text, "json", wild.schema, CsvDialect(), every_byte)
    assert_all_agree(ways, wild.schema)


@seed(SEED)
@short_run
@given(wild_csv(), st.data())
def test_csv_files_give_the_same_wherever_they_are_cut_and_compressed(wild: WildCsv, data: st.DataObject) -> None:
    schema = {name: wild.schema[name] for name in wild.columns if name in wild.schema}
    cuts = data.draw(st.sampled_from([range(len(wild.text)), [len(wild.text) // 2]]))
    with tempfile.TemporaryDirectory() as folder:
        ways = read_files_in_every_way(Path(folder), wild.text, "csv", schema, wild.dialect, cuts)
    assert_all_agree(ways, schema)

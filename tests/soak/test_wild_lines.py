"""JSON and CSV lines made by chance, by the thousand; ``ANABRANCH_SOAK_LINES`` says how many examples of each kind."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from anabranch.connectors.csv_records import CsvDialect
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

EXAMPLES = int(os.environ.get("ANABRANCH_SOAK_LINES", "20000"))
SEED = int(os.environ.get("ANABRANCH_SOAK_SEED", random.SystemRandom().randrange(2**32)))
long_run = settings(deadline=None, max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
short_run = settings(long_run, max_examples=max(1, EXAMPLES // 20))


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

"""The answer check: one changed, lost or repeated row is found, and only closed windows count."""

from __future__ import annotations

import hashlib
import json
import struct
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.shared.answers import (
    ANSWER_READERS,
    ANSWER_SCHEMA,
    Expected,
    ask_oracle,
    canonicalise,
    check_answer,
    check_totals,
    compute_digest,
)
from benchmarks.shared.mixed_json import MIXED_JSON
from benchmarks.shared.workload import (
    WATERMARK_DELAY_MS,
    WINDOW_MS,
    list_files,
    make_rows,
    plan_workload,
    write_workload,
)

CLOSED_UNTIL_MS = 40_000
ANSWER = pl.DataFrame(
    {
        "window_start": [0, 0, 10_000, 10_000, 20_000],
        "sensor": [1, 2, 1, 3, 2],
        "readings": [4, 1, 2, 2, 9],
        "total": [1.25, 0.5, 3.0, 0.25, 7.75],
    },
    schema=ANSWER_SCHEMA,
)
EXPECTED = Expected(canonicalise(ANSWER, CLOSED_UNTIL_MS), CLOSED_UNTIL_MS)


def test_shuffled_rows_are_the_same_answer() -> None:
    assert check_answer(ANSWER.sample(fraction=1.0, shuffle=True, seed=1), EXPECTED).equal


@given(row=st.integers(0, ANSWER.height - 1), column=st.sampled_from(list(ANSWER_SCHEMA)))
def test_single_changed_value_is_found(row: int, column: str) -> None:
    values = ANSWER.get_column(column).to_list()
    values[row] += 10_000 if column == "window_start" else 1
    changed = ANSWER.with_columns(pl.Series(column, values, dtype=ANSWER_SCHEMA[column]))
    check = check_answer(changed, EXPECTED)
    assert not check.equal
    assert check.difference


def test_lost_row_is_found_and_shown() -> None:
    check = check_answer(ANSWER.slice(1), EXPECTED)
    assert not check.equal
    assert "1 rows missing" in check.difference
    assert "'sensor': 1" in check.difference


def test_repeated_row_is_found() -> None:
    check = check_answer(pl.concat([ANSWER, ANSWER.head(1)]), EXPECTED)
    assert not check.equal
    assert "1 repeated" in check.difference


def test_null_is_not_zero() -> None:
    zero = ANSWER.with_columns(total=pl.when(pl.col("sensor") == 3).then(0.0).otherwise("total"))
    null = ANSWER.with_columns(total=pl.when(pl.col("sensor") == 3).then(None).otherwise("total"))
    assert compute_digest(canonicalise(zero, CLOSED_UNTIL_MS)) != compute_digest(canonicalise(null, CLOSED_UNTIL_MS))


def test_empty_answer_is_wrong() -> None:
    assert not check_answer(pl.DataFrame(schema=ANSWER_SCHEMA), EXPECTED).equal


def test_windows_that_may_be_open_are_cut() -> None:
    drained = pl.concat([ANSWER, ANSWER.tail(1).with_columns(window_start=pl.lit(30_001, dtype=pl.Int64))])
    assert check_answer(drained, EXPECTED).equal


def test_window_that_ends_with_the_watermark_is_closed() -> None:
    last = ANSWER.tail(1).with_columns(window_start=pl.lit(CLOSED_UNTIL_MS - WINDOW_MS, dtype=pl.Int64))
    assert canonicalise(last, CLOSED_UNTIL_MS).height == 1


def test_window_starts_may_be_times_of_any_unit() -> None:
    for unit in ("ms", "us"):
        timed = ANSWER.with_columns(pl.from_epoch("window_start", time_unit="ms").cast(pl.Datetime(unit)))
        assert check_answer(timed, EXPECTED).equal


def test_digest_is_that_of_the_plain_little_endian_columns() -> None:
    packed = b"5" + b"".join(
        struct.pack(f"<5{'d' if name == 'total' else 'q'}", *EXPECTED.answer.get_column(name)) for name in ANSWER_SCHEMA
    )
    assert compute_digest(EXPECTED.answer) == hashlib.sha256(packed).hexdigest()


@pytest.mark.parametrize("file_format", ["json", "csv", "parquet"])
def test_oracle_agrees_with_polars_on_every_format(tmp_path: Path, file_format: str) -> None:
    workload = plan_workload(5_000, keys=50)
    folder = write_workload(workload, file_format, tmp_path)
    rows = pl.concat([make_rows(workload, index) for index in range(workload.file_count)])
    answer = rows.group_by(window_start=pl.col("ts") - pl.col("ts") % WINDOW_MS, sensor="sensor").agg(
        readings=pl.len(), total=pl.col("value").sum()
    )
    expected = ask_oracle(folder, file_format)
    assert expected.closed_until_ms == rows.get_column("ts").max() - WATERMARK_DELAY_MS
    assert expected.answer.height > 0
    assert check_answer(answer, expected).equal
    # The second question is answered from the file beside the input.
    assert check_answer(answer, ask_oracle(folder, file_format)).equal


def test_oracle_knows_sensors_by_name_in_json_as_it_comes(tmp_path: Path) -> None:
    workload = plan_workload(5_000, keys=50)
    folder = write_workload(workload, MIXED_JSON, tmp_path)
    events = [json.loads(line) for path in list_files(folder) for line in path.read_bytes().splitlines()]
    rows = pl.DataFrame(
        [{"sensor": event["sensor"], "ts": event["ts"], "value": event["reading"]["value"]} for event in events]
    )
    answer = rows.group_by(window_start=pl.col("ts") - pl.col("ts") % WINDOW_MS, sensor="sensor").agg(
        readings=pl.len(), total=pl.col("value").sum()
    )
    expected = ask_oracle(folder, MIXED_JSON)
    assert expected.answer.schema["sensor"] == pl.String
    assert check_answer(answer, expected).equal
    renamed = answer.with_columns(pl.col("sensor").str.replace("1$", "2"))
    assert not check_answer(renamed, expected).equal
    assert check_totals(answer, expected).equal
    assert "4999 rows" in check_totals(rows.slice(1).select(readings=pl.lit(1), total="value"), expected).difference


def test_flink_answer_names_sensors_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "part-0-0").write_text('1970-01-01 00:00:10,"Hall ""B"" 5",2,1.5\n')
    found = canonicalise(ANSWER_READERS["flink"](tmp_path), CLOSED_UNTIL_MS)
    assert found.rows() == [(10_000, 'Hall "B" 5', 2, 1.5)]


def test_flink_answer_is_read_from_committed_files_alone(tmp_path: Path) -> None:
    start = datetime.fromtimestamp(10, UTC).strftime("%Y-%m-%d %H:%M:%S")
    (tmp_path / "part-0-0").write_text(f"{start},5,2,1.5\n")
    (tmp_path / "part-0-1").write_text("")
    (tmp_path / ".part-0-2.inprogress").write_text(f"{start},5,2,1.5\n")
    found = canonicalise(ANSWER_READERS["flink"](tmp_path), CLOSED_UNTIL_MS)
    assert found.rows() == [(10_000, 5, 2, 1.5)]


def test_partial_answers_of_two_processes_are_added_up(tmp_path: Path) -> None:
    for part in range(2):
        ANSWER.write_parquet(tmp_path / f"part-{part}.parquet")
    found = canonicalise(ANSWER_READERS["two-polars"](tmp_path), CLOSED_UNTIL_MS)
    doubled = ANSWER.with_columns(pl.col("readings") * 2, pl.col("total") * 2)
    assert found.equals(canonicalise(doubled, CLOSED_UNTIL_MS))

from __future__ import annotations

import datetime

import polars as pl
import pytest

from anabranch.errors import CheckpointError
from anabranch.routing.phases import PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.state import Checkpoint, LevelState, Store
from anabranch.state.inspect import find_key, find_level, list_slots, read_rows
from unit.state.builders import commit_batches, manifest, run_files, unwindowed


def test_slots_are_listed_with_their_sizes(checkpoint: Checkpoint) -> None:
    latest = commit_batches(checkpoint, 3)[-1]
    (row,) = list_slots(latest).rows(named=True)
    assert row == {
        "operator": "agg",
        "slot": 0,
        "buckets": 4,
        "runs": 3,
        "rows": 30,
        "bytes": sum(ref.bytes for ref in latest.files()),
        "oldest_batch": 0,
        "newest_batch": 2,
    }


def test_a_slot_without_runs_is_listed() -> None:
    (row,) = list_slots(manifest(0)).rows(named=True)
    assert (row["runs"], row["rows"], row["oldest_batch"]) == (0, 0, None)


def test_rows_of_all_slots_are_read_with_their_place(store: Store) -> None:
    runs = tuple((run_files(store, slot=slot).write(unwindowed([(slot, 1)])),) * (slot + 1) for slot in range(2))
    rows = read_rows(store, LevelState("agg", PhasedRoutes(Routes.even(2, 4)).to_json(), runs))
    assert rows.select("__hash", "__slot", "__run").rows() == [(0, 0, 0), (1, 1, 0), (1, 1, 1)]


def test_an_operator_without_state_gives_an_empty_frame(store: Store) -> None:
    rows = read_rows(store, manifest(0).levels[0])
    assert rows.is_empty()
    assert find_key(rows, {"sensor": "1"}).is_empty()


def test_an_unknown_operator_names_the_known_ones() -> None:
    assert find_level(manifest(0), "agg").operator == "agg"
    with pytest.raises(CheckpointError, match="no operator 'join' in batch 0; there are: agg"):
        find_level(manifest(0), "join")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pl.Series([17, 18]), "17"),
        (pl.Series(["a", "b"]), "a"),
        (pl.Series([b"a", b"b"]), "a"),
        (pl.Series([True, False]), "True"),
        (pl.Series([1.5, 2.5]), "1.5"),
        (pl.Series([datetime.date(2024, 2, 29), None]), "2024-02-29"),
        (pl.Series([datetime.datetime(2024, 2, 29, 12), None]), "2024-02-29 12:00:00"),
    ],
)
def test_a_key_is_found_by_its_text_whatever_its_type(values: pl.Series, text: str) -> None:
    rows = pl.DataFrame({"key": values, "n": [1, 2]})
    assert find_key(rows, {"key": text})["n"].to_list() == [1]


def test_a_text_that_is_no_value_of_the_column_is_refused() -> None:
    with pytest.raises(CheckpointError, match="'abc' cannot be a value of sensor, which is Int64"):
        find_key(pl.DataFrame({"sensor": [1]}), {"sensor": "abc"})


def test_an_unknown_key_column_names_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match=r"no columns \['city'\]; it has \['sensor'\]"):
        find_key(pl.DataFrame({"sensor": [1], "__hash": [1]}), {"city": "x"})

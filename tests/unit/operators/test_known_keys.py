"""Keys are told apart by their hashes first, and by themselves where two share a hash."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import HASH
from anabranch.operators.aggregates.grouping import find_earliest
from anabranch.operators.keyed.known_keys import newest_by_key, wanted_hashes, without_known
from unit.compiled_loops import compiled_from

KEYS = ["name", "number"]
NAMES = ["", "a", "a name that is long", "a name that is longer"]
# Four keys of one hash, four of another, and so on: chance would take centuries.
key_of = st.tuples(st.sampled_from(NAMES), st.integers(0, 3))


def make_rows(keys: list[tuple[str, int]], honest: bool) -> pl.DataFrame:
    hashes = [number + (10 * NAMES.index(name) if honest else 0) for name, number in keys]
    names, numbers = [name for name, _ in keys], [number for _, number in keys]
    columns = {"name": names, "number": numbers, HASH: hashes, "row": list(range(len(keys)))}
    return pl.DataFrame(columns, schema={"name": pl.String, "number": pl.Int64, HASH: pl.UInt64, "row": pl.Int64})


@given(rows=st.lists(key_of), known=st.lists(key_of, unique=True), honest=st.booleans())
def test_rows_of_known_keys_are_left_out_whatever_their_hashes(
    rows: list[tuple[str, int]], known: list[tuple[str, int]], honest: bool
) -> None:
    left = without_known(make_rows(rows, honest), make_rows(known, honest), KEYS)
    assert left.select(KEYS).rows() == [key for key in rows if key not in known]


@given(runs=st.lists(st.lists(key_of, unique=True), min_size=1, max_size=4), honest=st.booleans())
def test_the_newest_run_that_has_a_key_counts(runs: list[list[tuple[str, int]]], honest: bool) -> None:
    frames = [make_rows(run, honest).with_columns(run=pl.lit(number)) for number, run in enumerate(runs)]
    newest = {key: number for number, run in enumerate(runs) for key in run}
    found = newest_by_key(frames, KEYS)
    assert {(name, number): run for name, number, run in found.select(*KEYS, "run").rows()} == newest
    assert found.height == len(newest)


@given(rows=st.lists(key_of))
def test_wanted_hashes_come_sorted_and_once(rows: list[tuple[str, int]]) -> None:
    frame = make_rows(rows, honest=False)
    assert wanted_hashes(frame).to_list() == sorted(set(frame[HASH].to_list()))


@given(keys=st.lists(key_of, min_size=1), data=st.data())
def test_the_earliest_row_of_each_key_is_found(keys: list[tuple[str, int]], data: st.DataObject) -> None:
    orders = data.draw(st.permutations([-(2**63), 2**63 - 1, *range(len(keys))]).map(lambda some: some[: len(keys)]))
    if data.draw(st.booleans()):
        orders = sorted(orders)
    frame = make_rows(keys, honest=True).with_columns(order=pl.Series(orders, dtype=pl.Int64))
    with compiled_from(1):
        found = find_earliest(frame, KEYS, "order")
    earliest: dict[tuple[str, int], int] = {}
    for place, key in enumerate(keys):
        if key not in earliest or orders[place] < orders[earliest[key]]:
            earliest[key] = place
    # Texts that do not repeat are not worth it.
    assert found is None or found.tolist() == sorted(earliest.values())


def test_the_earliest_row_is_found_among_many() -> None:
    frame = make_rows([("a", 1), ("a", 2), ("", 1)] * 50, honest=True)
    falling = frame.with_columns(order=pl.int_range(150, 0, -1, dtype=pl.Int64))
    with compiled_from(1):
        assert find_earliest(frame, KEYS, "row").tolist() == [0, 1, 2]  # type: ignore[union-attr]
        assert find_earliest(falling, KEYS, "order").tolist() == [147, 148, 149]  # type: ignore[union-attr]


def test_rows_that_tie_are_left_to_others() -> None:
    frame = make_rows([("a", 1), ("a", 2)] * 50, honest=True).with_columns(order=pl.lit(0, pl.Int64))
    with compiled_from(1):
        assert find_earliest(frame, KEYS, "order") is None

"""The watermarks of split keys, as the driver keeps them."""

from __future__ import annotations

import numpy as np
import polars as pl

from anabranch.eventtime.operator_clocks import OperatorClocks, follow_parts
from anabranch.model import HASH, ForgottenClocks, SplitKeyClocks


def clocks(times: dict[tuple[int, str], int]) -> SplitKeyClocks:
    """Return clocks by (hash, key)."""
    keys = pl.DataFrame(list(times), schema={HASH: pl.UInt64, "key": pl.String}, orient="row")
    clock_us = np.array(list(times.values()), np.int64)
    return SplitKeyClocks(keys, clock_us - 1, clock_us, clock_us + 7)


def by_key(found: SplitKeyClocks | None) -> dict[str, int]:
    assert found is not None
    return dict(zip(found.keys["key"].to_list(), found.clock_us.tolist(), strict=True))


def split(*hashes: int) -> np.ndarray:
    return np.array(hashes, np.uint64)


def test_clocks_survive_a_manifest() -> None:
    kept = OperatorClocks(split_keys=clocks({(2**63 + 1, "a"): 5, (3, "λ"): -4}))
    read = OperatorClocks.from_json(kept.to_json()).split_keys
    assert read is not None and kept.split_keys is not None
    assert read.keys.equals(kept.split_keys.keys)
    assert [read.before_us.tolist(), read.clock_us.tolist(), read.spoke_us.tolist()] == [[4, -5], [5, -4], [12, 3]]
    assert OperatorClocks.from_json(OperatorClocks().to_json()).split_keys is None


def test_what_was_reported_counts_and_what_was_not_stays() -> None:
    after = follow_parts(clocks({(1, "a"): 5, (2, "b"): 6}), [clocks({(2, "b"): 9})], [split(1, 2)])
    assert by_key(after) == {"a": 5, "b": 9}


def test_keys_of_one_hash_have_their_own_times() -> None:
    after = follow_parts(clocks({(1, "a"): 5, (1, "b"): 6}), [clocks({(1, "b"): 9})], [split(1)])
    assert by_key(after) == {"a": 5, "b": 9}


def test_keys_that_are_whole_and_were_so_are_forgotten() -> None:
    known = clocks({(1, "a"): 5, (2, "b"): 6, (3, "c"): 7})
    assert by_key(follow_parts(known, [], [split(2), split(3)])) == {"b": 6, "c": 7}
    assert follow_parts(known, [], [split(), split()]) is None
    assert follow_parts(None, [], [split(1)]) is None


def test_keys_that_are_not_known_are_passed_over() -> None:
    wanted = pl.DataFrame({HASH: [2, 9, 1], "key": ["b", "x", "other"]}, schema_overrides={HASH: pl.UInt64})
    places, rows = clocks({(1, "a"): 5, (2, "b"): 6}).find(wanted)
    assert (places.tolist(), rows.tolist()) == ([0], [1])


def test_key_without_a_value_is_known_like_others() -> None:
    wanted = pl.DataFrame({HASH: [3], "key": [None]}, schema={HASH: pl.UInt64, "key": pl.String})
    known = clocks({(1, "a"): 5})
    known = SplitKeyClocks(pl.concat([known.keys, wanted]), *(np.array([5, 6]) for _ in range(3)))
    places, rows = known.find(wanted)
    assert (places.tolist(), rows.tolist()) == ([0], [1])


def test_forgotten_key_that_waits_for_its_parts_is_forgotten_under_its_own_time() -> None:
    # What is left of its group, 20, is later than it ever was.
    left = ForgottenClocks.none().plus(18, {1: 20})
    after = OperatorClocks(forgotten=left, split_keys=clocks({(1, "a"): 5}))
    for until_us in (18, 40, 60):
        after = after.forgetting(until_us, {}).forgetting_parts(10)
        assert by_key(after.split_keys) == {"a": 5}
        assert after.forgotten is not None
        assert after.forgotten.clocks_us[1] == 20
    after = OperatorClocks(forgotten=left, split_keys=follow_parts(after.split_keys, [], [split(1)]))
    assert after.forgetting_parts(10).split_keys is None

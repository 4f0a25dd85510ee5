"""Whatever becomes of hosts, copies, slots and drivers, answers are right, and nothing wrong is ever read."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.disturbed_hosts import Seen, check_disturbed

SEEDS_A_TEST = 5


@pytest.mark.parametrize("first", range(0, 4 * SEEDS_A_TEST, SEEDS_A_TEST))
def test_answers_are_the_oracles_whatever_is_lost_moved_cut_and_damaged(tmp_path: Path, first: int) -> None:
    seen = [check_disturbed(tmp_path / str(seed), seed) for seed in range(first, first + SEEDS_A_TEST)]
    reads = {source for one in seen for source in one.reads}
    assert reads == {"hot", "replica", "store"}
    assert sum(one.lost_slots for one in seen) > SEEDS_A_TEST, "something was lost"
    assert tell_what(seen) >= {"lose", "damage", "fail", "come"}
    assert {"home", "replicate"} <= {action for one in seen for action in one.actions}


def tell_what(seen: list[Seen]) -> set[str]:
    words = {"lose": "lose", "damage": "damaged", "fail": "fails", "come": "comes", "take": "takes over"}
    return {name for name, word in words.items() for one in seen for event in one.events if word in event}


def test_while_fewer_hosts_fail_than_there_are_copies_the_store_is_not_read(tmp_path: Path) -> None:
    seen = [check_disturbed(tmp_path / str(seed), seed, degree=3) for seed in range(100, 100 + SEEDS_A_TEST)]
    assert sum(one.spared_stores for one in seen) > 0, "the rule was put to the test"

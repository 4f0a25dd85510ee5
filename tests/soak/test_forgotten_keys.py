"""Keys that come once and never again, by the million; and what is forgotten, under many more routes made by chance."""

from __future__ import annotations

import os

import pytest

from soak.amounts import ONCE_ONLY_KEYS, STATE_EXAMPLES
from unit.operators.once_only import OnceOnly
from unit.operators.test_forgetting import SPECS, check_on_slots

BATCHES = 100


@pytest.mark.parametrize("kind", ["tumbling", "sessions", "processor"])
def test_state_of_ten_million_keys_that_come_once_stays_as_small_as_what_is_live(kind: str) -> None:
    seen = OnceOnly(kind, ONCE_ONLY_KEYS // BATCHES, seed=int.from_bytes(os.urandom(4))).run(BATCHES)
    print(f"{kind}: at most {seen.most_state_rows:,} rows and {seen.most_state_bytes:,} bytes of state")
    assert seen.results == ONCE_ONLY_KEYS
    assert seen.most_state_rows <= 8 * ONCE_ONLY_KEYS // BATCHES
    assert seen.last_state_rows == 0


@pytest.mark.parametrize("name", SPECS)
def test_what_is_forgotten_does_not_depend_on_slots_moves_and_damage(name: str) -> None:
    begin = int.from_bytes(os.urandom(4))
    for seed in range(begin, begin + max(1, STATE_EXAMPLES // 50)):
        print(f"seed {seed}")
        check_on_slots(name, seed, count=60)

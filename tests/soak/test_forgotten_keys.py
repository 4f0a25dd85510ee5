"""Keys that come once and never again, by the million; and what is forgotten, under many more routes made by chance.

``ANABRANCH_SOAK_KEYS`` says how many keys come, ``ANABRANCH_SOAK_EXAMPLES`` how many streams are tried.
"""

from __future__ import annotations

import os

import pytest

from unit.operators.once_only import OnceOnly
from unit.operators.test_forgetting import SPECS, check_on_slots

KEYS = int(os.environ.get("ANABRANCH_SOAK_KEYS", "10000000"))
EXAMPLES = int(os.environ.get("ANABRANCH_SOAK_EXAMPLES", "1000"))
BATCHES = 100


@pytest.mark.parametrize("kind", ["tumbling", "sessions", "processor"])
def test_state_of_ten_million_keys_that_come_once_stays_as_small_as_what_is_live(kind: str) -> None:
    seen = OnceOnly(kind, KEYS // BATCHES, seed=int.from_bytes(os.urandom(4))).run(BATCHES)
    print(f"{kind}: {KEYS:,} keys, at most {seen.most_state_rows:,} rows and {seen.most_state_bytes:,} bytes of state")
    assert seen.results == KEYS
    assert seen.most_state_rows <= 8 * KEYS // BATCHES
    assert seen.last_state_rows == 0


@pytest.mark.parametrize("name", SPECS)
def test_what_is_forgotten_does_not_depend_on_slots_moves_and_damage(name: str) -> None:
    begin = int.from_bytes(os.urandom(4))
    for seed in range(begin, begin + max(1, EXAMPLES // 50)):
        print(f"seed {seed}")
        check_on_slots(name, seed, count=60)

"""Flows on played hosts that are lost, come back, are cut off and damaged, many of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flows.disturbed_hosts import check_disturbed
from soak.amounts import HOSTED_FLOWS, SEED

PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_answers_are_the_oracles_whatever_is_lost_moved_cut_and_damaged(tmp_path: Path, part: int) -> None:
    chance = random.Random(f"{SEED} {part}")
    for number in range(max(1, HOSTED_FLOWS // PARTS)):
        check_disturbed(tmp_path / str(number), chance.getrandbits(32))

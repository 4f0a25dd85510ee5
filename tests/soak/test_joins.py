"""Many random joins, with restarts on other slots, and with keys that move and are split."""

from __future__ import annotations

from typing import Any

import pytest

from flows.running import LocalBench
from flows.test_asof_joins import check as check_asof
from flows.test_join_where import check as check_where
from flows.test_joins import check as check_join
from soak.amounts import FLOWS, SEED


@pytest.mark.soak
@pytest.mark.parametrize("check", [check_join, check_asof])
@pytest.mark.parametrize("moving", [False, True])
def test_random_joins_answer_as_duckdb(tmp_path_factory: pytest.TempPathFactory, check: Any, moving: bool) -> None:
    for number in range(FLOWS):
        try:
            check(LocalBench(tmp_path_factory.mktemp("join")), SEED % 10**6 + number, moving=moving)
        except AssertionError as error:
            pytest.fail(f"with ANABRANCH_SOAK_SEED={SEED}: join {number}: {error}")


@pytest.mark.soak
@pytest.mark.parametrize("moving", [False, True])
def test_random_joins_by_a_predicate_answer_as_duckdb(tmp_path_factory: pytest.TempPathFactory, moving: bool) -> None:
    for number in range(FLOWS):
        try:
            check_where(LocalBench(tmp_path_factory.mktemp("join")), SEED % 10**6 + number, moving=moving)
        except AssertionError as error:
            pytest.fail(f"with ANABRANCH_SOAK_SEED={SEED}: join {number}: {error}")

"""Keys that move at every boundary, many times over."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from anabranch.engine.tasks.spec import FlowProgram
from anabranch.model import OperatorSpec
from flows.random_flows import KINDS, check, make_random_flow
from flows.running import FlowBench
from flows.wild_steering import WildSteering
from lab.disturbing import kill_at_random, moving
from lab.drivers import assert_same_results, finish, results, write_input
from soak.amounts import FLOWS, KILLS, KILLS_A_RUN, SEED, STREAMS
from unit.operators.moving import SPECS, check_long_stream

PATIENCE_SECONDS = 3600.0


@pytest.mark.parametrize("run", range(-(-KILLS // KILLS_A_RUN)))
def test_a_driver_killed_again_and_again_while_keys_move_leaves_the_output_of_one_slot(
    tmp_path: Path, run: int
) -> None:
    print(f"ANABRANCH_SOAK_SEED={SEED}")
    chance = random.Random(SEED + run)
    kills = min(KILLS_A_RUN, KILLS - run * KILLS_A_RUN)
    # Each life ends after a few batches at most, so there must be enough of them for all kills.
    files, rows, seed = 4 * kills + 10, chance.choice([20, 200, 2000]), chance.randrange(10**6)
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    for folder in (disturbed, undisturbed):
        write_input(folder, files, rows, seed)
    for _ in range(kills):
        kill_at_random(disturbed, chance, moving(chance.randrange(10**6)))
    finish(disturbed, patience_seconds=PATIENCE_SECONDS, environment=moving(chance.randrange(10**6)))
    finish(undisturbed, "--slots", "1", patience_seconds=PATIENCE_SECONDS)
    assert_same_results(results(disturbed), results(undisturbed))


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_flow_answers_as_the_oracle_while_its_keys_move(bench: FlowBench, kind: str) -> None:
    chance = random.Random(f"{SEED} {kind}")
    for _ in range(max(1, FLOWS // len(KINDS))):
        seed = chance.randrange(2**32)
        case = make_random_flow(kind, seed)
        rows = [row for batch in case.batches() for row in batch]

        def steer(program: FlowProgram, seed: int = seed, rows: list[dict[str, object]] = rows) -> WildSteering:
            return WildSteering(seed, program, rows)

        try:
            check(bench, case, steer)
        except Exception as error:
            pytest.fail(f"make_random_flow({kind!r}, {seed}) with WildSteering({seed}): {error}")


@pytest.mark.parametrize("damages", [False, True], ids=["intact", "damaged"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_forty_batches_emit_what_one_slot_emits_while_keys_move(spec: OperatorSpec, damages: bool) -> None:
    chance = random.Random(SEED)
    for _ in range(max(1, STREAMS // (2 * len(SPECS)))):
        seed = chance.randrange(2**32)
        try:
            check_long_stream(spec, seed, damages)
        except Exception as error:
            pytest.fail(f"check_long_stream({spec}, {seed}, {damages}): {error}")

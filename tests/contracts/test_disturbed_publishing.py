"""What every sink must do, whatever happens to a driver at any line of a publication: rows are as undisturbed.

``tests/soak`` does the same at many more lines.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.disturbed_publishing import (
    KINDS,
    Place,
    find_server,
    run_failing,
    run_killed,
    run_paused,
    run_paused_start,
    run_undisturbed,
    steps_of_start,
)

MOMENTS = 2
MakePlace = Callable[[], Place]


@pytest.fixture(params=KINDS)
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> MakePlace:
    kind = str(request.param)
    server = find_server(kind, request)
    numbers = iter(range(1000))

    def make() -> Place:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return KINDS[kind](server, folder)

    return make


def moments_of(steps: list[str]) -> list[int]:
    """Return some steps, evenly spread over the lines that there are."""
    firsts = [steps.index(step) + 1 for step in dict.fromkeys(steps)]
    return [firsts[(2 * place + 1) * len(firsts) // (2 * MOMENTS)] for place in range(MOMENTS)]


def test_a_driver_that_dies_fails_or_pauses_leaves_what_an_undisturbed_one_does(make_place: MakePlace) -> None:
    expected, steps = run_undisturbed(make_place())
    assert len(expected) > 4 and len(steps) > 10
    for place, at in enumerate(moments_of(steps)):
        assert run_killed(make_place(), at) == expected, f"killed at {steps[at - 1]}"
        assert run_failing(make_place(), at, OSError) == expected, f"failed at {steps[at - 1]}"
        found = run_paused(make_place(), at, broken=place == 0, restarted=place == 1)
        assert found == expected, f"paused at {steps[at - 1]}"


def test_a_driver_that_pauses_in_its_start_does_not_disturb_a_newer_one(make_place: MakePlace) -> None:
    expected, _ = run_undisturbed(make_place())
    steps = steps_of_start(make_place())
    for at in moments_of(steps):
        assert run_paused_start(make_place(), at) == expected, f"paused at {steps[at - 1]}"

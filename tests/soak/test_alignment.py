"""Two streams that are a factor of ten apart in speed, for a long time: what is held back, and what state grows to."""

from __future__ import annotations

import pytest

from flows.running import LocalBench, Outcome
from flows.test_alignment import TwoSpeeds, pairs_of
from soak.amounts import ALIGNED_SECONDS


def most_bytes(outcome: Outcome) -> list[int]:
    """Return the largest state of each quarter of a run, in bytes."""
    bytes = [one.state_bytes for one in outcome.progress]
    quarter = max(1, len(bytes) // 4)
    return [max(bytes[at : at + quarter]) for at in range(0, 4 * quarter, quarter)]


@pytest.mark.soak
def test_state_stays_bounded_with_alignment_and_grows_without(tmp_path_factory: pytest.TempPathFactory) -> None:
    speeds = TwoSpeeds(ALIGNED_SECONDS)
    bench = LocalBench(tmp_path_factory.mktemp("align"))
    held, free = speeds.run(bench, "5s"), speeds.run(bench, None)
    print(f"state in bytes by quarters of the run: aligned {most_bytes(held)}, not aligned {most_bytes(free)}")
    assert max(most_bytes(held)) <= 1.25 * most_bytes(held)[0]
    assert max(most_bytes(free)) > 3 * max(most_bytes(held))
    assert pairs_of(held).equals(pairs_of(free))

"""How rows leave their tasks is chosen by what the last batches measured, and not changed for little or by chance."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.decide.exchange_choice import (
    BATCHES_HELD,
    BATCHES_OF_ONE_MIND,
    FEWEST_ROWS,
    FIRST_PAUSE,
    ExchangeChooser,
)
from anabranch.model.exchanges import ExchangeCosts, ExchangeTally, ExchangeWay
from property_tests import tries

ROWS = 100_000
MERGE, SEND, HOLD = 0.05e-6, 0.1e-6, 0.02e-6
"""Processor seconds a row."""
PLAIN_BYTES, MERGED_BYTES = 20, 24
PLAIN_OR_MERGED: tuple[ExchangeWay, ...] = ("plain", "merged")
ALL_WAYS: tuple[ExchangeWay, ...] = ("plain", "merged", "held")


def batch(
    chooser: ExchangeChooser, left: float, new: float = 1.0, rows: int = ROWS, noise: float = 1.0
) -> tuple[ExchangeTally, ExchangeCosts]:
    """Return a batch of which a merge leaves a part, and of that a part finds nothing held to merge with."""
    left_rows = round(left * rows)
    sent = {"plain": rows, "merged": left_rows, "held": round(new * left_rows)}[chooser.way]
    tally = ExchangeTally(
        rows=rows,
        sent_rows=sent,
        sent_bytes=sent * PLAIN_BYTES,
        tried_rows=rows,
        left_rows=left_rows,
        plain_bytes=rows * PLAIN_BYTES,
        merged_bytes=left_rows * MERGED_BYTES,
    )
    hold_seconds = HOLD * rows if chooser.way == "held" else 0.0
    return tally, ExchangeCosts(MERGE * rows * noise, SEND * sent / noise, hold_seconds)


def ways(chooser: ExchangeChooser, lefts: list[float], new: float = 1.0) -> list[ExchangeWay]:
    """Return how each of the batches went."""
    gone: list[ExchangeWay] = []
    for left in lefts:
        gone.append(chooser.way)
        chooser.observe(*batch(chooser, left, new))
    return gone


def test_keys_that_hardly_repeat_are_no_longer_merged() -> None:
    gone = ways(ExchangeChooser(PLAIN_OR_MERGED), [1.0] * 10)
    assert gone == ["merged"] * BATCHES_OF_ONE_MIND + ["plain"] * (10 - BATCHES_OF_ONE_MIND)


def test_keys_that_begin_to_repeat_are_merged_again_within_some_batches() -> None:
    chooser = ExchangeChooser(PLAIN_OR_MERGED)
    assert ways(chooser, [1.0] * 20)[-1] == "plain"
    gone = ways(chooser, [0.01] * 10)
    assert gone[-1] == "merged"
    assert "of the rows are left after the merge" in chooser.reason


def test_one_batch_unlike_all_others_changes_nothing() -> None:
    chooser = ExchangeChooser(PLAIN_OR_MERGED)
    assert set(ways(chooser, [0.05] * 10 + [1.0] + [0.05] * 10)) == {"merged"}


def test_small_batches_say_nothing() -> None:
    chooser = ExchangeChooser(PLAIN_OR_MERGED)
    for _ in range(50):
        assert not chooser.observe(*batch(chooser, 1.0, rows=FEWEST_ROWS // 10))
    assert not chooser.costs
    assert chooser.way == "merged"


def test_costs_of_both_ways_are_those_of_where_rows_are_merged_and_what_crosses() -> None:
    chooser = ExchangeChooser(PLAIN_OR_MERGED)
    chooser.observe(*batch(chooser, 0.25))
    assert abs(chooser.costs["plain"] - (0.1 + 20 / 200 + 0.05)) < 1e-6
    assert abs(chooser.costs["merged"] - (0.05 + 0.25 * (0.1 + 0.05 + 24 / 200))) < 1e-6


@tries(60)
@given(
    left=st.floats(0.001, 1.0),
    noises=st.lists(st.floats(0.75, 1.33), min_size=300, max_size=300),
    begins=st.sampled_from(PLAIN_OR_MERGED),
)
def test_a_stream_that_stays_as_it_is_changes_ways_at_most_once_after_the_tenth_batch(
    left: float, noises: list[float], begins: ExchangeWay
) -> None:
    chooser = ExchangeChooser(PLAIN_OR_MERGED, begins)
    changes = []
    for number, noise in enumerate(noises):
        if chooser.observe(*batch(chooser, left, noise=noise)):
            changes.append(number)
    assert len([number for number in changes if number >= 10]) <= 1, changes


def test_a_driver_that_takes_over_goes_on_with_what_was_chosen() -> None:
    assert ExchangeChooser(PLAIN_OR_MERGED, "plain").way == "plain"
    assert ExchangeChooser(PLAIN_OR_MERGED, None).way == "merged"
    assert ExchangeChooser(PLAIN_OR_MERGED, "held").way == "merged", "the flow no longer allows it"


def test_rows_that_later_ones_merge_with_are_held_back() -> None:
    chooser = ExchangeChooser(ALL_WAYS)
    assert set(ways(chooser, [0.3] * 60, new=0.1)) == {"held"}
    assert set(chooser.costs) == set(ALL_WAYS)


def test_rows_that_no_later_one_merges_with_are_not_held_back_until_it_is_tried_again() -> None:
    chooser = ExchangeChooser(ALL_WAYS)
    first = ways(chooser, [0.3] * (BATCHES_HELD + FIRST_PAUSE), new=1.0)
    left_after = first.index("merged")
    assert BATCHES_HELD <= left_after <= BATCHES_HELD + BATCHES_OF_ONE_MIND
    assert "held" not in first[left_after:]
    assert "held" in ways(chooser, [0.3] * 3, new=1.0), "the next try"
    assert chooser.way in ALL_WAYS


def test_tries_to_hold_back_become_rarer() -> None:
    chooser = ExchangeChooser(ALL_WAYS)
    gone = ways(chooser, [0.3] * 2_000, new=1.0)
    assert gone.count("held") < 80
    begins = [at for at in range(1, len(gone)) if gone[at] == "held" != gone[at - 1]]
    pauses = [later - earlier for earlier, later in pairwise(begins)]
    assert pauses == sorted(pauses)


def test_a_window_whose_first_batch_finds_nothing_to_merge_with_stays_held_back() -> None:
    chooser = ExchangeChooser(ALL_WAYS)
    for number in range(200):
        chooser.observe(*batch(chooser, 0.3, new=1.0 if number % 10 == 0 else 0.05))
        assert chooser.way == "held", number

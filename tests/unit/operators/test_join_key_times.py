"""The time of keys of a join, from what came and what the driver knows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from anabranch.model import BEGINNING_OF_TIME, HASH, Clock, ForgottenClocks, OperatorTime, SplitKeyClocks
from anabranch.model.joins import JoinInput, JoinSpec
from anabranch.model.times import INPUT_CLOCKS, INPUT_SPOKES
from anabranch.operators.joins.key_times import tell_times

INPUT = JoinInput(("key",), {}, {"key": pl.Int64()})
SPEC = JoinSpec((INPUT, INPUT), "left", time_column="ts", clock=Clock("key", idle_us=10))
KEYS = pl.DataFrame({HASH: [3], "key": [3]}, schema_overrides={HASH: pl.UInt64})


@pytest.mark.parametrize(("until_us", "left_us", "right_us"), [(59, 70, 45), (60, 70, BEGINNING_OF_TIME)])
def test_input_says_nothing_of_a_split_key_that_was_forgotten_until_it_shows_it_again(
    until_us: int, left_us: int, right_us: int
) -> None:
    (before_us, clock_us, spoke_us) = (np.array([us]) for us in (40, 50, 60))
    inputs = pl.DataFrame(
        {name: [us] for name, us in zip((*INPUT_CLOCKS, *INPUT_SPOKES), (50, 45, 60, 60), strict=True)}
    )
    time = OperatorTime(
        batch=3,
        now_us=72,
        split_keys=SplitKeyClocks(KEYS, before_us, clock_us, spoke_us, inputs),
        forgotten=ForgottenClocks.none().plus(until_us, {3: 55}),
    )
    never = np.array([BEGINNING_OF_TIME])
    times = tell_times(SPEC, time, KEYS, None, (np.array([70]), never), never)
    assert [us.tolist() for us in times.input_us] == [[left_us], [right_us]]
    is_forgotten = until_us == 60
    assert times.closed_us.tolist() == [55 if is_forgotten else 50], "what is left of its group counts, else its own"
    assert times.is_silent[1].tolist() == [not is_forgotten], "an input that has not shown a key is waited for"

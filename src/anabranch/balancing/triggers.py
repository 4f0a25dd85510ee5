"""When to ask a planner, and whether its plan is worth it: state in, decision out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anabranch.model.balance import BalanceTrigger
from anabranch.model.moves import find_imbalance


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What is known at the end of a batch."""

    batch: int
    now_seconds: float
    rows_in_all: int
    loads: NDArray[np.float64]
    """By slot, in the batch or lately."""
    means: NDArray[np.float64]
    """By slot, its fair share (``Goal.find_means``)."""
    extra: float = 0.0
    """What a batch takes longer, as a part of it, because of the routes that there are."""

    @property
    def imbalance(self) -> float:
        """The busiest slot's load over its fair share, with what its routes cost besides."""
        return find_imbalance(self.loads, self.means) * (1 + self.extra)

    @property
    def balance(self) -> float:
        """The idlest slot's load over the busiest's, each over its fair share; 1 when there is no load."""
        stays: NDArray[np.bool_] = self.means > 0
        if not stays.any():
            return 1.0
        relative = self.loads[stays] / self.means[stays]
        return float(relative.min() / relative.max())


@dataclass(frozen=True, slots=True)
class TriggerState:
    """When planning was last asked for, and when a plan was last carried out or refused."""

    asked_seconds: float
    asked_rows: int
    settled_seconds: float | None = None
    settled_batch: int | None = None

    def settle(self, batch: int, now_seconds: float) -> TriggerState:
        """Return the state in which the cool-down begins."""
        return replace(self, settled_seconds=now_seconds, settled_batch=batch)


@dataclass(frozen=True, slots=True)
class TriggerDecision:
    """Yes or no, the reason, and the state to go on with."""

    go: bool
    reason: str
    state: TriggerState


def decide_to_plan(trigger: BalanceTrigger, state: TriggerState, reading: Reading) -> TriggerDecision:
    """Return whether to ask a planner now."""
    cooling = _describe_cool_down(trigger, state, reading)
    if cooling:
        return TriggerDecision(False, cooling, state)
    reason = _find_reason(trigger, state, reading)
    if not reason:
        return TriggerDecision(
            False, f"nothing is due, and the busiest slot has {reading.imbalance:.3f} × its share", state
        )
    asked = replace(state, asked_seconds=reading.now_seconds, asked_rows=reading.rows_in_all)
    return TriggerDecision(True, reason, asked)


def decide_to_apply(
    trigger: BalanceTrigger, state: TriggerState, reading: Reading, imbalance_before: float, imbalance_after: float
) -> TriggerDecision:
    """Return whether a plan is worth carrying out; either way the cool-down begins, or it would be made again."""
    settled = state.settle(reading.batch, reading.now_seconds)
    gained = imbalance_before - imbalance_after
    found = f"the plan takes the busiest slot from {imbalance_before:.3f} to {imbalance_after:.3f} × its share"
    if gained < trigger.smallest_improvement or gained <= 0:
        return TriggerDecision(False, f"{found}; less than {trigger.smallest_improvement:g} is not worth it", settled)
    return TriggerDecision(True, found, settled)


def _describe_cool_down(trigger: BalanceTrigger, state: TriggerState, reading: Reading) -> str:
    if state.settled_batch is None or state.settled_seconds is None:
        return ""
    batches_left = state.settled_batch + trigger.cool_down_batches - reading.batch
    if batches_left >= 0 and trigger.cool_down_batches:
        return f"cooling down: the last plan was made in batch {state.settled_batch}"
    seconds_left = state.settled_seconds + trigger.cool_down_seconds - reading.now_seconds
    return f"cooling down: {seconds_left:.1f} s are left" if seconds_left > 0 else ""


def _find_reason(trigger: BalanceTrigger, state: TriggerState, reading: Reading) -> str:
    if trigger.imbalance_above is not None and reading.imbalance > trigger.imbalance_above:
        return f"the busiest slot has {reading.imbalance:.3f} × its share, above {trigger.imbalance_above:g}"
    if trigger.balance_below is not None and reading.balance < trigger.balance_below:
        return f"the idlest slot has {reading.balance:.3f} of the busiest one's load, below {trigger.balance_below:g}"
    seconds = reading.now_seconds - state.asked_seconds
    if trigger.every_seconds is not None and seconds >= trigger.every_seconds:
        return f"{seconds:.1f} s have passed, and planning is due every {trigger.every_seconds:g} s"
    rows = reading.rows_in_all - state.asked_rows
    if trigger.every_rows is not None and rows >= trigger.every_rows:
        return f"{rows:,} rows have passed, and planning is due every {trigger.every_rows:,}"
    return ""

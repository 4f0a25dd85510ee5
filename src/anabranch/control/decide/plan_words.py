"""Plans in words."""

from __future__ import annotations

from anabranch.balancing import LevelPlan


def describe_plan(plan: LevelPlan, planner: str) -> str:
    """Return what a plan does, and what it cannot do."""
    moves = [count_of(len(plan.key_plan.moves), "part of a key", "parts of keys")]
    if plan.bucket_plan is not None and len(plan.bucket_plan.moves):
        moves.append(count_of(len(plan.bucket_plan.moves), "bucket", "buckets"))
    facts = [f"{planner} moves {' and '.join(moves)}"]
    split = len(plan.table.split_keys())
    if split:
        facts.append(count_of(split, "key is split", "keys are split"))
    if plan.shortfall:
        facts.append(plan.shortfall)
    return "; ".join(facts)


def count_of(number: int, one: str, several: str) -> str:
    """Return a number with the word for one or for several."""
    return f"{number} {one if number == 1 else several}"

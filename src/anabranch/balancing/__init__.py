"""Loads in, moves out: planners that bring every slot near its fair share, and when to ask them."""

from anabranch.balancing.goals import Goal
from anabranch.balancing.level import BUCKETS_ONLY, LevelLoads, LevelPlan, plan_level
from anabranch.balancing.planners.balance_load import balance_buckets
from anabranch.balancing.planners.cooling import plan_cooling
from anabranch.balancing.planners.mnrt import plan_mnrt
from anabranch.balancing.planners.outcome import Clock
from anabranch.balancing.planners.qmmp import plan_qmmp
from anabranch.balancing.planners.readj import plan_readj
from anabranch.balancing.planners.registry import PLANNERS, PlanKeys, Planner, find_planner, register_planner
from anabranch.balancing.triggers import Reading, TriggerDecision, TriggerState, decide_to_apply, decide_to_plan
from anabranch.model.balance import BalanceTrigger

__all__ = [
    "BUCKETS_ONLY",
    "PLANNERS",
    "BalanceTrigger",
    "Clock",
    "Goal",
    "LevelLoads",
    "LevelPlan",
    "PlanKeys",
    "Planner",
    "Reading",
    "TriggerDecision",
    "TriggerState",
    "balance_buckets",
    "decide_to_apply",
    "decide_to_plan",
    "find_planner",
    "plan_cooling",
    "plan_level",
    "plan_mnrt",
    "plan_qmmp",
    "plan_readj",
    "register_planner",
]

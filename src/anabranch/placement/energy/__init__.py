"""Which hosts may sleep, and where slots go so that they can: models, ERDM, and what it is compared with."""

from anabranch.placement.energy.accounting import saved_by_hosts, saved_by_traffic
from anabranch.placement.energy.board import Board, Limits, PathCosts
from anabranch.placement.energy.governor import EnergyDecision, GovernorState, WindowReading, decide_energy
from anabranch.placement.energy.loads import FlowLoad, Host, Pair, SlotUse, WindowLoad
from anabranch.placement.energy.policies import (
    POLICIES,
    EnergyPlan,
    Erdm,
    FewestHosts,
    FrequencyAware,
    MemoryVoltage,
    PlacesForEnergy,
    RoundRobin,
    TrafficAware,
    draw_watts,
    find_policy,
)
from anabranch.placement.energy.reallocation import (
    Reallocation,
    SlotMove,
    choose_target,
    count_needed,
    plan_reallocation,
    reallocate,
)

__all__ = [
    "POLICIES",
    "Board",
    "EnergyDecision",
    "EnergyPlan",
    "Erdm",
    "FewestHosts",
    "FlowLoad",
    "FrequencyAware",
    "GovernorState",
    "Host",
    "Limits",
    "MemoryVoltage",
    "Pair",
    "PathCosts",
    "PlacesForEnergy",
    "Reallocation",
    "RoundRobin",
    "SlotMove",
    "SlotUse",
    "TrafficAware",
    "WindowLoad",
    "WindowReading",
    "choose_target",
    "count_needed",
    "decide_energy",
    "draw_watts",
    "find_policy",
    "plan_reallocation",
    "reallocate",
    "saved_by_hosts",
    "saved_by_traffic",
]

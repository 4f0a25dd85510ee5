"""Copies of slots' state in hosts' memory: where they stand, what is copied, who serves when a host is lost."""

from anabranch.model.replicas import PLACEMENTS, Replicas
from anabranch.placement.replicas.availability import find_availability, find_survived, list_copies, list_failures
from anabranch.placement.replicas.copying import (
    CopyRound,
    Holdings,
    SlotRuns,
    Stretch,
    find_current,
    measure_held,
    measure_lag,
    plan_round,
)
from anabranch.placement.replicas.placing import place_replicas, restore_replicas
from anabranch.placement.replicas.plan import (
    ReplicaDrop,
    ReplicaMove,
    ReplicaPlan,
    ResourcesInsufficient,
    Shortage,
    StandingReplicas,
)
from anabranch.placement.replicas.problem import Network, ReplicaHost, ReplicaProblem, ReplicaSlot
from anabranch.placement.replicas.recovery import choose_executors, choose_heirs

__all__ = [
    "PLACEMENTS",
    "CopyRound",
    "Holdings",
    "Network",
    "ReplicaDrop",
    "ReplicaHost",
    "ReplicaMove",
    "ReplicaPlan",
    "ReplicaProblem",
    "ReplicaSlot",
    "Replicas",
    "ResourcesInsufficient",
    "Shortage",
    "SlotRuns",
    "StandingReplicas",
    "Stretch",
    "choose_executors",
    "choose_heirs",
    "find_availability",
    "find_current",
    "find_survived",
    "list_copies",
    "list_failures",
    "measure_held",
    "measure_lag",
    "place_replicas",
    "plan_round",
    "restore_replicas",
]

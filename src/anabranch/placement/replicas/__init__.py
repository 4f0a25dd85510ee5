"""Copies of slots' state in the memory of hosts: where they stand, who serves when a host is lost, what that is worth.

Nothing on Spark uses it yet: the simulator does.
"""

from anabranch.placement.replicas.availability import find_availability, find_survived, list_copies, list_failures
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
from anabranch.placement.replicas.recovery import choose_heirs
from anabranch.placement.replicas.settings import PLACEMENTS, Replicas

__all__ = [
    "PLACEMENTS",
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
    "StandingReplicas",
    "choose_heirs",
    "find_availability",
    "find_survived",
    "list_copies",
    "list_failures",
    "place_replicas",
    "restore_replicas",
]

"""What a simulation is given: a cluster and a flow, what happens to them, and which policies steer."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.model.elasticity import Elasticity
from anabranch.model.energy import Energy
from anabranch.placement.replicas import Replicas
from anabranch.sim.cluster import Host, Links, SimulatedFlow, SimulationError
from anabranch.sim.failures import HostEvent
from anabranch.sim.load import LoadTrace


@dataclass(frozen=True, slots=True)
class Steering:
    """Which policies steer a flow."""

    replicas: Replicas | None = None
    """None: there are no replicas."""
    restores: bool = True
    """Replicas that are lost are placed again; without it, those that stood at first are all there ever are."""
    elasticity: Elasticity | None = None
    """None: all hosts run all the time, unless energy lets some sleep."""
    energy: Energy | None = None
    """Which hosts sleep while load is low; not together with elasticity, which would decide about the same hosts."""
    evens_out: bool = True
    """Slots get other homes where hosts differ too much in what they do."""
    has_store: bool = True
    """State is in a checkpoint store, too; without it, state of which no current copy is left is lost."""
    look_again_batches: int = 10
    """So often replicas are looked at although no host and no home changed: sizes and traffic may have."""

    def __post_init__(self) -> None:
        if self.elasticity is not None and self.energy is not None and self.energy.releases_hosts:
            msg = "elasticity and energy would both decide which simulated hosts there are; give one of them"
            raise SimulationError(msg)


@dataclass(frozen=True, slots=True)
class Costs:
    """What takes how long, beside slots and wires."""

    batch_seconds: float = 1.0
    """A batch begins so long after the one before it, unless that takes longer."""
    fixed_seconds: float = 0.3
    """What a batch takes without rows."""
    detection_seconds: float = 0.5
    """Until the driver knows that a host is gone: the batch that it was part of is begun again then."""
    starting_seconds: float = 10.0
    """Until a host that is asked for is there."""
    store_bytes_per_second: float = 12.5e6
    """Of the checkpoint store, all hosts together."""
    most_rows_seconds: float = 5.0
    """A batch has no more rows than all cores work off, and the busiest wire carries, in so long."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster, a flow, and what happens to both."""

    hosts: tuple[Host, ...]
    flow: SimulatedFlow
    load: LoadTrace
    events: tuple[HostEvent, ...] = ()
    links: Links = field(default_factory=Links)
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        known = {host.name for host in self.hosts}
        if strangers := sorted({event.host for event in self.events} - known):
            msg = (
                f"something is to happen to {', '.join(strangers)}, which are no hosts; draw events for those there are"
            )
            raise SimulationError(msg)

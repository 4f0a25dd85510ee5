"""A simulated cluster under the same policies as a flow on Spark: hosts, links, slots, replicas, failures, load."""

from anabranch.sim.cluster import Host, Links, SimulatedFlow, SimulationError, Slot, Snapshot
from anabranch.sim.failures import HostEvent, draw_history, draw_waves
from anabranch.sim.load import LoadTrace
from anabranch.sim.records import BatchRecord, find_drawn
from anabranch.sim.scenario import Costs, Scenario, Steering
from anabranch.sim.simulation import Simulation

__all__ = [
    "BatchRecord",
    "Costs",
    "Host",
    "HostEvent",
    "Links",
    "LoadTrace",
    "Scenario",
    "SimulatedFlow",
    "Simulation",
    "SimulationError",
    "Slot",
    "Snapshot",
    "Steering",
    "draw_history",
    "draw_waves",
    "find_drawn",
]

"""A simulated cluster under the same policies as a flow on Spark: hosts, links, slots, replicas, failures, load."""

from anabranch.sim.cluster import Host, Links, SimulatedFlow, SimulationError, Slot, Snapshot

__all__ = ["Host", "Links", "SimulatedFlow", "SimulationError", "Slot", "Snapshot"]

"""The data of a simulated cluster: what slots cost and send, by host and by pair."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.sim import Host, Links, SimulatedFlow, SimulationError, Slot, Snapshot

A, B, C = Host("a", rack="1"), Host("b", rack="1"), Host("c", cores=4, rack="2")
FLOW = SimulatedFlow(
    (Slot((1, 0), 1e-3, 100), Slot((1, 1), 2e-3), Slot((2, 0), 3e-3)),
    {((1, 0), (2, 0)): 10.0, ((1, 1), (2, 0)): 20.0},
)
SHOT = Snapshot((A, B, C), FLOW, {(1, 0): "a", (1, 1): "b", (2, 0): "a"}, rows_per_second=500.0)


def test_hosts_are_as_busy_as_their_slots() -> None:
    assert SHOT.find_busy_cores() == pytest.approx({"a": 2.0, "b": 1.0, "c": 0.0})
    assert SHOT.find_loads(2.0)[1, 0].cpu_seconds == pytest.approx(1.0)
    assert SHOT.find_loads()[1, 0].state_bytes == 100


def test_what_stays_on_a_host_crosses_no_wire() -> None:
    assert SHOT.find_traffic() == {((1, 0), (2, 0)): 5_000.0, ((1, 1), (2, 0)): 10_000.0}
    assert SHOT.find_host_traffic() == {("b", "a"): 10_000.0}


def test_hosts_of_a_rack_are_nearer_and_pairs_may_differ() -> None:
    links = Links(1.0, 2.0, {("c", "a"): 5.0})
    assert np.array_equal(links.make_matrix((A, B, C)), [[0, 1, 5], [1, 0, 2], [5, 2, 0]])


def test_a_host_is_an_executor_of_its_name_to_policies() -> None:
    known = C.as_executor(is_leaving=True)
    assert (known.id, known.host, known.cores, known.memory_bytes, known.is_leaving) == ("c", "c", 4, 0, True)


def test_what_does_not_fit_together_is_refused_with_its_name() -> None:
    with pytest.raises(SimulationError, match="hosts a are there more than once"):
        Snapshot((A, A), FLOW, {}, 1.0)
    with pytest.raises(SimulationError, match=r"slot \(1, 0\) is at home on 'd', which is not there; .*a, b, c"):
        Snapshot((A, B, C), FLOW, {(1, 0): "d"}, 1.0)
    with pytest.raises(SimulationError, match=r"slots \[\(1, 0\)\] are there more than once"):
        SimulatedFlow((Slot((1, 0)), Slot((1, 0))))
    with pytest.raises(SimulationError, match=r"slots \[\(9, 9\)\], which the flow does not have"):
        SimulatedFlow((Slot((1, 0)),), {((1, 0), (9, 9)): 1.0})

"""The energy bench: its topologies, its day, what it compares and what it claims."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from anabranch.placement.energy import Board, Erdm, RoundRobin, saved_by_hosts
from anabranch.sim.energy_day import make_hosts, make_load
from benchmarks.energy import bench
from benchmarks.energy.bench import PAPER, compute_figures, run
from benchmarks.energy.runs import SETTINGS, SHAPE, DayRun, check_day, run_day, run_steady
from benchmarks.energy.topologies import HOSTS, TOPOLOGIES, Topology, make_flow, make_paper_hosts
from benchmarks.energy.trace import PASSENGERS, make_shape
from benchmarks.shared.registry import BenchError, BenchOptions

SORT = TOPOLOGIES[2]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
def test_at_the_papers_rate_hosts_are_as_busy_as_the_paper_says(topology: Topology) -> None:
    flow = make_flow(topology)
    assert [sum(slot.id[0] == level for slot in flow.slots) for level in range(len(topology.components))] == [
        component.slots for component in topology.components
    ]
    load = make_load(flow, SHAPE, 30.0).scale(topology.default_rate)
    hosts = make_hosts(make_paper_hosts())
    homes = RoundRobin().plan(hosts, load, {}, frozenset(), SETTINGS).homes
    board = Board(hosts, load, homes)
    assert board.cpu_shares().mean() == pytest.approx(0.6)
    assert 0.5 <= board.cpu_shares().min() <= board.cpu_shares().max() <= 0.72
    assert board.network_shares().max() < 0.9
    # Of the one that strains the network, it is as full as in the paper.
    if topology.name == "Sol":
        assert 0.5 <= board.network_shares().mean() <= 0.7


def test_the_day_has_the_published_shape() -> None:
    shape = make_shape(30, seed=7)
    assert len(shape) == 2_880
    assert shape.mean() == pytest.approx(1)
    hourly = shape.reshape(48, 60).mean(axis=1)
    published = np.array(PASSENGERS) / np.mean(PASSENGERS)
    assert np.corrcoef(hourly, published)[0, 1] > 0.99
    assert np.array_equal(shape, make_shape(30, seed=7))
    assert not np.array_equal(shape, make_shape(30, seed=8))


def test_the_papers_setting_releases_as_many_hosts_and_is_accounted_for_both_ways() -> None:
    runs = run_steady(SORT, (RoundRobin(), Erdm()))
    paper = runs[-1]
    assert paper.system == PAPER
    assert paper.hosts == HOSTS - SORT.released
    assert paper.paper_energy_change_pct == pytest.approx(-100 * saved_by_hosts(16, 2, 0.182))
    # At an equal rate, two of sixteen hosts cannot save more than an eighth.
    assert -12.5 < paper.energy_change_pct < 0
    assert paper.bytes_change_pct < 0
    assert runs[0].energy_change_pct == 0


def test_a_part_of_a_day_is_compared_with_round_robin() -> None:
    settings = replace(SETTINGS, window_seconds=600.0, windows_down=2, cool_down_seconds=0.0)
    runs, days = run_day(SORT, 7, policies=(RoundRobin(), Erdm()), settings=settings)
    assert len(days[0].windows) == 144
    assert runs[0].energy_saved_pct == 0
    assert runs[1].hosts_awake < 16
    assert 0 < runs[1].energy_saved_least_pct < runs[1].energy_saved_pct < runs[1].energy_saved_most_pct
    assert runs[1].energy_saved_pct < runs[1].energy_saved_at_best_pct
    assert runs[1].joules_low < runs[1].joules_per_million_rows < runs[1].joules_high


def make_day(**changes: object) -> DayRun:
    figures = dict.fromkeys(
        ("utilisation", "hosts_awake", "moved_bytes", "rows_per_second", "mean_seconds", "longest_seconds"), 1.0
    )
    others = dict.fromkeys(("within_bound_pct", "bytes_between_hosts", "joules_low", "joules_high"), 1.0)
    given = {
        "system": "ERDM",
        "topology": "Sol",
        "releases": 1,
        "restarts": 1,
        "carried_pct": 100.0,
        "p95_seconds": 3.0,
        "joules_per_million_rows": 2.0,
        **figures,
        **others,
        **changes,
    }
    return DayRun(**given)  # type: ignore[arg-type]


def test_a_day_that_is_late_or_leaves_rows_undone_claims_nothing() -> None:
    assert check_day(make_day()) == ""
    assert "bound" in check_day(make_day(p95_seconds=4.1))
    assert "was done" in check_day(make_day(carried_pct=99.0))
    assert compute_figures([make_day()], [], [], ["it was late"]) == {"answers_equal": 0}


def test_figures_are_means_over_the_topologies() -> None:
    figures = compute_figures([make_day(energy_saved_pct=20.0), make_day(energy_saved_pct=30.0)], [], [], [])
    assert figures["answers_equal"] == 1
    assert figures["energy_saved_pct"] == 25
    assert figures["energy_saved_least_topology_pct"] == 20


def test_the_report_is_printed_and_written_with_what_it_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "TOPOLOGIES", (SORT,))
    shown = StringIO()
    options = BenchOptions(only=("steady",), json_path=tmp_path / "energy.json", out_dir=tmp_path)
    report = run(options, Console(file=shown, width=200))
    assert report.answers_equal
    assert "simulated" in shown.getvalue()
    written = json.loads((tmp_path / "energy.json").read_text())
    assert {run["basis"] for run in written["steady"]} == {"simulated, energy modelled"}
    assert len(written["hosts"]) == 16
    assert (tmp_path / "energy-hosts.svg").exists()
    with pytest.raises(BenchError, match="unknown part night"):
        run(BenchOptions(only=("night",)))

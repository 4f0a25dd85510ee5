"""The energy bench: its topologies, its day, what it compares and what it claims."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from anabranch.placement.energy import Board, Erdm, RoundRobin, saved_by_hosts
from anabranch.sim.energy_day import make_load
from benchmarks.energy import bench, lab, lab_check, runs
from benchmarks.energy.bench import PAPER, compute_figures, run
from benchmarks.energy.runs import SETTINGS, SHAPE, DayRun, check_day, run_day, run_steady, run_windows
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
    hosts = tuple(host.as_energy_host() for host in make_paper_hosts())
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


def report(hosts: int, joules: float) -> dict[str, object]:
    """Return what a run of ten batches on the lab reports."""
    batch = {"rows": 100, "seconds": 0.5, "hosts": [str(host) for host in range(hosts)], "crossing_bytes": 50 * hosts}
    energy = {"energy": [joules, 0.9 * joules, 1.2 * joules, "modelled"]}
    readers = [
        {"id": (0, slot), "cpu_seconds": 0.01, "state_bytes": 0, "sent_bytes": [[1, 0, 500], [-1, -1, 1500]]}
        for slot in range(2)
    ]
    slots = [{"id": (1, slot), "cpu_seconds": 0.02, "state_bytes": 100, "sent_bytes": []} for slot in range(4)]
    tasks = {"tasks": [*readers, *slots]}
    batches = [{**batch, **energy, **tasks, "committed_at": 100.0 + 2 * number} for number in range(10)]
    first = {**batches[0], "rows": 0, "energy": None}
    released = {"action": "release", "sender": "energy", "reason": "2, 3: their slots have left"}
    return {"batches": [first, *batches], "decisions": [released] * (hosts < 4)}


def test_a_run_in_the_lab_is_judged_once_its_hosts_have_settled() -> None:
    flow, answer = lab.FLOWS[0], pl.DataFrame({"word": ["a"], "count": [3]})
    awake = lab.evaluate("awake", flow, report(4, 100.0), answer)
    erdm = lab._compare(lab.evaluate("erdm", flow, report(2, 60.0), answer), awake)
    assert (awake.rows, awake.hosts, awake.releases, awake.rows_per_second) == (1_000, 4, 0, 50)
    assert awake.joules_per_million_rows == pytest.approx(1e6)
    assert (erdm.hosts, erdm.releases, erdm.energy_basis) == (2, 2, "modelled")
    assert erdm.energy_saved_pct == pytest.approx(40) and erdm.bytes_change_pct == pytest.approx(-50)
    assert (erdm.latency_change_pct, erdm.rate_change_pct) == (0, 0)
    figures = compute_figures([], [], [], [], [awake, erdm])
    assert figures["lab_energy_saved_pct"] == pytest.approx(40) and figures["lab_hosts"] == 2


def test_an_answer_in_the_lab_that_is_another_is_told() -> None:
    flow = lab.FLOWS[0]
    awake, erdm = (
        lab.evaluate(name, flow, report(4, 1.0), pl.DataFrame({"n": [n]})) for n, name in enumerate(("awake", "erdm"))
    )
    assert lab.find_wrong([awake, erdm]) == ["WordCount, lab, erdm: the answer is another than with all hosts awake"]
    assert lab.find_wrong([awake, replace(erdm, digest=awake.digest)]) == []


def test_the_simulator_is_given_what_tasks_took_with_all_hosts_awake() -> None:
    measured = lab_check.measure_load(report(4, 1.0))
    assert measured.rates == [50.0] * 3
    load = measured.load
    # In a window of one row a second: 6 rows of 100, at a third of a core.
    assert load.slots[0, 0].cpu_seconds == pytest.approx(0.01 / lab.HOST_CPU * 6 / 100)
    assert load.slots[1, 3].state_bytes == 100
    # 2,000 bytes a reader and batch: 500 to a slot that is named, the rest to the three others.
    assert load.sent_bytes[(0, 1), (1, 0)] == load.sent_bytes[(0, 1), (1, 2)] == pytest.approx(500 * 6 / 100)
    # A batch of 0.5 s: what its slots do not explain is the same for each level.
    explained = 2 * 0.02 / lab.HOST_CPU / 2 + 0.01 / lab.HOST_CPU
    assert load.level_seconds == pytest.approx((0.5 - explained) / 2)


def test_runs_of_the_lab_stand_beside_the_simulator_and_say_what_was_not_kept() -> None:
    flow, answer = lab.FLOWS[0], pl.DataFrame({"n": [1]})
    awake = lab.evaluate("awake", flow, report(4, 100.0), answer)
    erdm = lab._compare(lab.evaluate("erdm", flow, report(2, 60.0), answer), awake)
    long = {**report(4, 1.0), "batches": report(4, 1.0)["batches"] * 12}  # type: ignore[operator]
    for number, batch in enumerate(long["batches"]):
        long["batches"][number] = {**batch, "committed_at": 100.0 + 2 * number}
    checks = lab_check.check_runs([awake, erdm], {flow.name: lab_check.measure_load(long)})
    assert (checks[0].simulated_hosts, checks[0].hosts) == (4, 4)
    assert checks[0].simulated_p95_seconds == pytest.approx(0.95 * 2 + 0.5, abs=0.1)
    assert checks[1].simulated_hosts < 4
    assert checks[1].simulated_bytes_a_row < checks[0].simulated_bytes_a_row
    figures = compute_figures([], [], [], [], [awake, erdm], checks)
    assert figures["lab_erdm_fewer_hosts_flows"] == figures["lab_erdm_fewer_bytes_flows"] == 1
    assert figures["sim_lab_hosts_off"] == pytest.approx(abs(checks[1].simulated_hosts - 2) / 2)
    none, told = lab_check.find_gains([awake, replace(awake, system="erdm", p95_seconds=9.0)], 8.0, "awake")
    assert none == dict.fromkeys(none, 0) and len(told) == 3
    assert "WordCount, erdm, in the lab: 95 % of rows within more than 8 s" in told


def test_longer_monitor_windows_send_less_and_stand_beside_the_papers_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_half_an_hour(window_seconds: float, seed: int) -> np.ndarray:
        return make_shape(window_seconds, seed)[: int(1_800 / window_seconds)]

    monkeypatch.setattr(runs, "make_shape", make_half_an_hour)
    found = run_windows(SORT, 7)
    assert [run.window_seconds for run in found] == [10, 20, 30, 40, 50]
    assert [run.paper_network_pct for run in found] == [17.4, 10.3, 6.1, 4.6, 3.2]
    told = [run.monitor_bytes_pct for run in found]
    assert told[0] > told[1] > told[2] > told[3] > told[4] > 0
    assert told[0] == pytest.approx(5 * told[-1], rel=0.1)
    assert found[0].added_latency_ms == 0
    # Who looks more often lets hosts go sooner.
    assert found[0].energy_saved_pct > found[-1].energy_saved_pct > 0

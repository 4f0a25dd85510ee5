"""The parts of the elastic bench that spread a flow, small: strategies, homes of slots, and what measuring costs."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.elastic import balance, measuring, strategies
from benchmarks.elastic.parts import PartOutcome
from benchmarks.elastic.spread_figures import OPERATOR, OPERATOR_SET, QUERY, STRATEGIES
from benchmarks.shared.registry import BenchOptions
from lab.hosts import find_what_is_missing
from quick_jvm import QUICK_JVM, SPARK_ENVIRONMENT

# Each makes a lab.
pytestmark = pytest.mark.xdist_group("lab")


@pytest.fixture
def run_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PartOutcome]:
    for name, value in {**SPARK_ENVIRONMENT, "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}.items():
        monkeypatch.setenv(name, value)

    def run(part: Callable[..., PartOutcome], rows: int, extent: object) -> PartOutcome:
        options = BenchOptions(rows=rows, cache_dir=tmp_path / "cache", out_dir=tmp_path / "out")
        return part(options, (), Console(file=StringIO()), extent)

    return run


def test_every_strategy_answers_alike_and_more_hops_send_more(
    run_part: Callable[..., PartOutcome], tmp_path: Path
) -> None:
    extent = strategies.Extent(
        strategies=STRATEGIES,
        warms_up=False,
        batches=2,
        warm_up_batches=1,
        rounds=1,
        quotas=False,
    )
    found = run_part(strategies.run_strategies, 48_000, extent)
    assert [str(answer.difference) for answer in found.answers.values() if not answer.equal] == []
    runs = {run["strategy"]: run for run in found.runs if "strategy" in run}
    hops = {name: (run["hops"], run["fan_out"]) for name, run in runs.items()}
    assert hops == {QUERY: (2, 24), OPERATOR: (5, 10), OPERATOR_SET: (2, 8)}
    sent = {name: run["exchanged_bytes_per_row"] for name, run in runs.items()}
    assert max(sent[OPERATOR_SET], sent[QUERY]) < sent[OPERATOR]
    for run in runs.values():
        assert sum(run["shares"].values()) == pytest.approx(1) and min(run["shares"].values()) >= 0
    assert found.figures["operator_set_communication_pct"] > 0
    assert (tmp_path / "out" / "strategies.svg").exists()
    missing = find_what_is_missing()
    if missing:
        assert any(missing in note for note in found.notes)
        pytest.skip(f"without hosts: {missing}")
    assert all(run["wire_bytes_per_row"] > 0 for run in runs.values())


def test_homes_follow_what_slots_cost_where_they_may(run_part: Callable[..., PartOutcome]) -> None:
    # Enough to do that executors differ by more than the default, which is a share of what they have.
    # The first batch does not count, and three in a row must be uneven, which one is not where others keep cores busy.
    extent = balance.Extent(batches=8, warm_up_batches=4, quotas=False)
    found = run_part(balance.run_balance, 480_000, extent)
    assert [str(answer.difference) for answer in found.answers.values() if not answer.equal] == []
    changes = {run["homes"]: run["home_changes"] for run in found.runs}
    assert changes[balance.DEALT] == 0 < changes[balance.BY_LOAD]
    assert found.figures["executor_cpu_max_over_mean"] >= 1


def test_measuring_costs_something_and_not_much(run_part: Callable[..., PartOutcome]) -> None:
    found = run_part(measuring.run_measuring, 400_000, measuring.Extent(batches=2, pairs=1, warm_up_pairs=0))
    assert [str(answer.difference) for answer in found.answers.values() if not answer.equal] == []
    assert 0 < found.figures["measuring_cost_pct"] < 5
    assert len(found.runs) == 1

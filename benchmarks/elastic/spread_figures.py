"""From what tasks, executors and hosts did, batch by batch, to shares, spreads and figures; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import Any

from benchmarks.shared.answers import AnswerCheck

OPERATOR_SET, OPERATOR, QUERY = "operator-set", "operator", "query"
STRATEGIES = (QUERY, OPERATOR, OPERATOR_SET)
MERGED = "operator-set, merged"
"""As flows run by default: rows of a key are merged before the exchange where that is worth it."""

Seen = Mapping[str, Any]
"""A flow, or a batch of one, as the script that ran it tells it."""


@dataclass(frozen=True, slots=True)
class CpuShares:
    """What became of the processor time that executors may use; the three are 1 together."""

    processing: float
    """Reading, steps, operators and state, in tasks."""
    communication: float
    """All else that executors did: blocks that are packed, carried and unpacked, their JVMs, tasks that start."""
    idle: float


@dataclass(frozen=True, slots=True)
class SpreadRun:
    """One strategy over one input."""

    strategy: str
    instances: int
    """Parallel instances of all units together."""
    hops: int
    fan_out: int
    rows: int
    answer: AnswerCheck
    rows_per_second: float
    shares: CpuShares
    exchanged_bytes_per_row: float
    wire_bytes_per_row: float | None
    """What hosts sent, to each other and to the driver; None without hosts."""
    cpu_us_per_row: float
    """What executors used for each row that was read, whoever else keeps the machine busy."""
    batch_seconds: float
    """The median."""
    tasks_per_batch: float
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CpuSpread:
    """How much of their processor time executors used in a batch."""

    batch: int
    mean: float
    deviation: float


def select_steady(flow: Seen, warm_up_batches: int) -> list[Seen]:
    """Return the batches with rows behind the warm-up, and before them what was seen as they began."""
    with_rows = [flow["began"], *(batch for batch in flow["batches"] if batch["rows"])]
    return with_rows[warm_up_batches:]


def find_shares(steady: Sequence[Seen], cores: float) -> CpuShares:
    """Return what became of the cores' time between the first and the last of some batches, which is a start only."""
    capacity = cores * _span_seconds(steady)
    working = sum(batch["task_seconds"] - batch["exchange_seconds"] for batch in steady[1:])
    used = sum(sum(_used_seconds(before, batch).values()) for before, batch in pairwise(steady))
    # Counters of groups and of processes are read at slightly different moments.
    used = min(max(used, working), capacity)
    processing = min(working, capacity) / capacity
    return CpuShares(processing, used / capacity - processing, 1 - used / capacity)


def find_spreads(flow: Seen, cores: float) -> list[CpuSpread]:
    """Return mean and standard deviation of what executors used of their cores, by batch, the first one left out."""
    spreads = []
    for number, (before, batch) in enumerate(pairwise(select_steady(flow, 1)), start=1):
        used = list(_used_seconds(before, batch).values())
        own_seconds = cores / max(1, len(used)) * (batch["committed_at"] - before["committed_at"])
        shares = [seconds / own_seconds for seconds in used] or [0.0]
        spreads.append(CpuSpread(number, fmean(shares), pstdev(shares)))
    return spreads


def find_max_over_mean(batches: Sequence[Seen], figure: str = "busy_seconds") -> float:
    """Return the busiest executor's processor time over the mean of all, in these batches together."""
    sums: dict[str, float] = {}
    for batch in batches:
        for executor, seconds in batch[figure].items():
            sums[executor] = sums.get(executor, 0.0) + seconds
    mean = fmean(sums.values()) if sums else 0.0
    return max(sums.values()) / mean if mean else 1.0


def evaluate_strategy(
    flow: Seen,
    warm_up_batches: int,
    cores: float,
    answer: AnswerCheck,
    *,
    strategy: str,
    instances: int,
    hops: int,
    fan_out: int,
) -> SpreadRun:
    """Return what a strategy did behind its warm-up."""
    steady = select_steady(flow, warm_up_batches)
    shares = find_shares(steady, cores)
    rows = sum(batch["rows"] for batch in steady[1:])
    sent = [
        batch["hosts"][host]["sent_bytes"] - before["hosts"][host]["sent_bytes"]
        for before, batch in pairwise(steady)
        if "hosts" in before
        for host in batch["hosts"]
    ]
    return SpreadRun(
        strategy=strategy,
        instances=instances,
        hops=hops,
        fan_out=fan_out,
        rows=rows,
        answer=answer,
        rows_per_second=rows / _span_seconds(steady),
        shares=shares,
        cpu_us_per_row=1e6 * (1 - shares.idle) * cores * _span_seconds(steady) / rows,
        exchanged_bytes_per_row=sum(batch["exchanged_bytes"] for batch in steady[1:]) / rows,
        wire_bytes_per_row=sum(sent) / rows if sent else None,
        batch_seconds=median(batch["committed_at"] - before["committed_at"] for before, batch in pairwise(steady)),
        tasks_per_batch=fmean(batch["tasks"] for batch in steady[1:]),
        details={"flow": flow},
    )


def compute_strategy_figures(runs: Sequence[SpreadRun], instances: int) -> dict[str, float]:
    """Return the figures of strategies on as many instances; those of strategies that did not run are absent."""
    found: dict[str, list[SpreadRun]] = {}
    for run in runs:
        if run.instances == instances:
            found.setdefault(run.strategy, []).append(run)
    if OPERATOR_SET not in found:
        return {}
    ours = found[OPERATOR_SET]
    rate = fmean(run.rows_per_second for run in ours)
    figures = {
        "operator_set_communication_pct": 100 * fmean(run.shares.communication for run in ours),
        "operator_set_rows_per_second": rate,
    }
    for strategy in (QUERY, OPERATOR):
        if strategy in found:
            name = strategy.replace("-", "_")
            others = found[strategy]
            figures[f"{name}_communication_pct"] = 100 * fmean(run.shares.communication for run in others)
            figures[f"operator_set_x_{name}"] = rate / fmean(run.rows_per_second for run in others)
    return figures


def _span_seconds(steady: Sequence[Seen]) -> float:
    return float(steady[-1]["committed_at"] - steady[0]["committed_at"])


def _used_seconds(before: Seen, batch: Seen) -> dict[str, float]:
    """Return the processor time of each host, or, where there are none, what tasks and their executors told."""
    told = {host: counted["cpu_seconds"] for host, counted in batch.get("hosts", {}).items()}
    if "hosts" in before and all(seconds is not None for seconds in told.values()):
        return {host: told[host] - before["hosts"][host]["cpu_seconds"] for host in told}
    return dict(batch["busy_seconds"])

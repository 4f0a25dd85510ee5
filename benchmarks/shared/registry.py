"""The benches by name, and the options that each of them takes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from anabranch.errors import AnabranchError


class BenchError(AnabranchError):
    """A bench cannot run as asked: an unknown peer, a peer that failed, a tool that is missing."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What a user asks of a bench."""

    rows: int | None = None
    """Input rows; the bench has its own default, long enough for a steady state."""
    peers: tuple[str, ...] | None = None
    """Systems to compare with; all that the bench knows when none are named."""
    json_path: Path | None = None
    out_dir: Path | None = None
    """Where pictures and logs go; nowhere when it is not given."""
    cache_dir: Path = field(default_factory=lambda: Path(tempfile.gettempdir()) / "anabranch-bench")
    """Inputs and peers' installations, kept from run to run."""
    seed: int = 7
    curves: bool = False
    """Also measure how speed and memory change with rows and keys; takes several minutes more."""
    keys: int | None = None
    """Keys to plan for, or to hold state of; the bench has its own default."""
    slots: int | None = None
    exponents: tuple[float, ...] | None = None
    """Zipf exponents; the bench has its own defaults."""
    only: tuple[str, ...] | None = None
    """Parts of the bench to run, such as operators; all of them when none are named."""
    formats: tuple[str, ...] | None = None
    """Formats of files; all that the bench has when none are named."""
    rounds: int | None = None
    """How often systems take turns, or runs of a simulated point; the bench has its own default."""
    memory_rows: int | None = None
    """Rows of the long run that shows whether memory stays bounded; the bench has its own default."""
    data_dir: Path | None = None
    """A folder with real data; nothing is read from it when it is not given."""


class Outcome(Protocol):
    """What a bench found, with its answers checked."""

    @property
    def answers_equal(self) -> bool:
        """Whether all answers were right: without that, no speed is a claim."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data: workload, figures, systems, and what they were measured on."""
        ...


@dataclass(frozen=True, slots=True)
class Bench:
    """A bench by name; ``run`` prints the table, writes what the options ask for and returns the report."""

    name: str
    summary: str
    run: Callable[[BenchOptions], Outcome]
    peers: tuple[str, ...] = ()
    """Other systems that it can compare with, as ``--peers`` names them."""


def _run_keyed_window(options: BenchOptions) -> Outcome:
    # Imported when it runs: listing the benches must not load Polars and Matplotlib.
    from benchmarks.keyed_window.bench import run

    return run(options)


def _run_planners(options: BenchOptions) -> Outcome:
    from benchmarks.planners.bench import run

    return run(options)


def _run_skew(options: BenchOptions) -> Outcome:
    from benchmarks.skew.bench import run

    return run(options)


def _run_migration(options: BenchOptions) -> Outcome:
    from benchmarks.migration.bench import run

    return run(options)


def _run_disorder(options: BenchOptions) -> Outcome:
    from benchmarks.disorder.bench import run

    return run(options)


def _run_ysb(options: BenchOptions) -> Outcome:
    from benchmarks.ysb.bench import run

    return run(options)


def _run_exchange(options: BenchOptions) -> Outcome:
    from benchmarks.exchange.bench import run

    return run(options)


def _run_operators(options: BenchOptions) -> Outcome:
    from benchmarks.operators.bench import run

    return run(options)


def _run_apps(options: BenchOptions) -> Outcome:
    from benchmarks.apps.bench import run

    return run(options)


def _run_joins(options: BenchOptions) -> Outcome:
    from benchmarks.joins.bench import run

    return run(options)


def _run_elastic(options: BenchOptions) -> Outcome:
    from benchmarks.elastic.bench import run

    return run(options)


def _run_replicas(options: BenchOptions) -> Outcome:
    from benchmarks.replicas.bench import run

    return run(options)


def _run_energy(options: BenchOptions) -> Outcome:
    from benchmarks.energy.bench import run

    return run(options)


BENCHES: dict[str, Bench] = {
    bench.name: bench
    for bench in (
        Bench(
            name="keyed-window",
            summary="10 s windows, count and sum over 100,000 zipf keys, beside native Spark, Flink, Polars, DuckDB",
            run=_run_keyed_window,
            peers=("spark", "flink", "polars", "duckdb"),
        ),
        Bench(
            name="planners",
            summary="plans for 1 and 10 million skewed keys: time, routing table, state moved, load split",
            run=_run_planners,
        ),
        Bench(
            name="skew",
            summary="how even 16 slots are under every strategy as skew moves, and what balance costs and brings",
            run=_run_skew,
            peers=("spark", "flink"),
        ),
        Bench(
            name="migration",
            summary="a part of 200 MB of state moves while a stream runs, beside stopping and repartitioning it",
            run=_run_migration,
            peers=("spark",),
        ),
        Bench(
            name="disorder",
            summary="sources that lag behind each other: a watermark a key beside one a slot, a Flink subtask, a query",
            run=_run_disorder,
            peers=("flink", "spark"),
        ),
        Bench(
            name="ysb",
            summary="the Yahoo Streaming Benchmark from a Kafka topic, beside Flink and native Spark: speed, latency",
            run=_run_ysb,
            peers=("flink", "spark"),
        ),
        Bench(
            name="exchange",
            summary="plain exchange, Local Merge, Global Merge, Ahead KeyBy: bytes and speed, also between two hosts",
            run=_run_exchange,
        ),
        Bench(
            name="operators",
            summary="nine operators on text keys, from sliding windows to processors, beside those of native Spark",
            run=_run_operators,
            peers=("spark",),
        ),
        Bench(
            name="apps",
            summary="low-voltage detection and vault monitoring on one machine, beside Flink and native Spark",
            run=_run_apps,
            peers=("flink", "spark"),
        ),
        Bench(
            name="joins",
            summary="an interval join of skewed streams, EQ5 over TPC-H, beside Flink, Spark and dbsp; slots; memory",
            run=_run_joins,
            peers=("flink", "spark", "dbsp"),
        ),
        Bench(
            name="elastic",
            summary="executors that follow a load ×4 and back, beside rescaling Flink and restarting native Spark",
            run=_run_elastic,
            peers=("flink", "spark"),
        ),
        Bench(
            name="replicas",
            summary="simulated: how often flows go on from memory when hosts fail; on a lab: lab, recovery, cost",
            run=_run_replicas,
        ),
        Bench(
            name="energy",
            summary="which hosts may sleep: four topologies, seven policies, a day; simulated, energy by a power curve",
            run=_run_energy,
        ),
    )
}


def choose_names(what: str, asked: tuple[str, ...] | None, known: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names that were asked for, or all, in their own order; raise ``BenchError`` for strangers."""
    names = tuple(known)
    unknown = sorted(set(asked or ()) - set(names))
    if unknown:
        msg = f"unknown {what} {', '.join(unknown)}; there are {', '.join(names)}"
        raise BenchError(msg)
    return tuple(name for name in names if asked is None or name in asked)


def choose_peers(name: str, asked: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the peers that a bench is to compare with, in its own order; raise ``BenchError`` for strangers."""
    known = BENCHES[name].peers
    if asked is None:
        return known
    unknown = sorted(set(asked) - set(known))
    if unknown:
        msg = f"unknown peers {', '.join(unknown)}; {name} knows {', '.join(known) or 'no peers; do without --peers'}"
        raise BenchError(msg)
    return tuple(peer for peer in known if peer in asked)

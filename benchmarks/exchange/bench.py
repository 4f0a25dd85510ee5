"""The exchange bench: one flow whose rows of a key come together plainly, merged first, in a store, or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from anabranch.lab.errors import LabError
from anabranch.lab.namespaces import HostNetwork, host_network
from anabranch.lab.standalone import SparkHost, WorkerSize, name_settings, standalone_cluster
from benchmarks.exchange.answers import ask_oracle, check_way
from benchmarks.exchange.figures import LOCAL, PLAIN, WAYS, ExchangeRun, compute_figures, pool_rates
from benchmarks.exchange.inputs import (
    DELAY_MS,
    FEWEST_BATCHES,
    FILE_FORMAT,
    MIXED,
    PARTITIONED,
    PARTITIONS,
    READINGS_PER_SECOND,
    WINDOW_MS,
    ExchangeInput,
    plan_input,
    write_input,
)
from benchmarks.exchange.report import NAMES, ExchangeReport, draw_curves, draw_ways, print_report
from benchmarks.shared.answers import Expected
from benchmarks.shared.figures import WARM_UP_SHARE, compute_steady_rate, find_longest_steady_batch
from benchmarks.shared.launch import CORES, JVM_MEMORY, Places, our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.registry import BenchOptions, choose_peers
from benchmarks.shared.report import BUSY_NEIGHBOUR_SHARE, deliver
from benchmarks.shared.workload import read_through

DEFAULT_ROWS = 24_000_000
DEFAULT_SENSORS = 2_000
HOSTS = 2
LIMIT_MBIT = 100.0
CURVE_LIMITS_MBIT = (1_000.0, 25.0)
"""Beside the one above, with curves."""
CURVE_SENSORS = (200, 2_000, 20_000, 200_000)
CURVE_ROWS = 12_000_000
CURVE_BATCHES = 6
_EXECUTOR_MEMORY = "1g"
_WORKER_MEMORY = "1200m"
_DRIVER_MEMORY = "1g"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is run: all of it, unless a part is to be worked on."""

    ways: tuple[str, ...] = WAYS
    rounds: int = 2
    """Each way runs so often, the second time in the other order: who comes later finds a warmer machine."""
    warm_ups: tuple[str, ...] = (LOCAL, PLAIN)
    """Ways that run before anything is measured: a JVM compiles its hot loops for tens of seconds."""
    fewest_batches: int = FEWEST_BATCHES


_WHOLE = Extent()


def run(options: BenchOptions, console: Console | None = None, extent: Extent = _WHOLE) -> ExchangeReport:
    """Run every way, freely and between two hosts with thin wires, and report; answers are compared first."""
    console = console or Console()
    bench = _Exchange(options, console, extent)
    rows, sensors = options.rows or DEFAULT_ROWS, options.keys or DEFAULT_SENSORS
    given = plan_input(rows, sensors, options.seed, extent.fewest_batches)
    runs = bench.run_freely(given, extent.rounds)
    limited = bench.run_limited(given, (LIMIT_MBIT, *(CURVE_LIMITS_MBIT if options.curves else ())))
    curves: list[ExchangeRun] = []
    if options.curves:
        for sensors in CURVE_SENSORS:
            point = plan_input(min(CURVE_ROWS, given.rows), sensors, options.seed, CURVE_BATCHES)
            curves += bench.run_freely(point, 1)
    figures = compute_figures(runs, limited, LIMIT_MBIT, curves)
    pictures: list[Path] = []
    # No matching answers, no claim: a picture would be one.
    if options.out_dir is not None and figures["answers_equal"] == 1:
        pictures += draw_ways(runs, [run for run in limited if run.limit_mbit == LIMIT_MBIT], options.out_dir)
        pictures += draw_curves(curves, options.out_dir) if curves else []
    report = ExchangeReport(
        workload=bench.describe(given),
        figures=figures,
        systems=[*runs, *limited],
        seed=options.seed,
        curves=curves,
        pictures=pictures,
        notes=tuple(bench.notes),
    )
    return deliver(report, options.json_path, print_report, console)


class _Exchange:
    """One call of the bench: what was asked for, and where things lie."""

    def __init__(self, options: BenchOptions, console: Console, extent: Extent) -> None:
        choose_peers("exchange", options.peers)
        self._options = options
        self._console = console
        self._extent = extent
        self._ways = extent.ways
        self._slots = options.slots or PARTITIONS
        self._inputs = options.cache_dir / "exchange"
        self._logs = (options.out_dir or options.cache_dir) / "logs"
        self.notes: list[str] = []

    def run_freely(self, given: ExchangeInput, rounds: int) -> list[ExchangeRun]:
        """Run every way in one process, in turn, behind a flow that warms it up."""
        name = f"{given.sensors:,} sensors"
        order = [way for number in range(rounds) for way in (self._ways if number % 2 == 0 else self._ways[::-1])]
        folder, expected = self._prepare(given, name)
        with scratch_places(self._options.cache_dir, self._logs, f"exchange-{given.sensors}") as places:
            session = {"master": f"local[{CORES}]", "memory": JVM_MEMORY}
            seen = self._run_ways(name, [*self._extent.warm_ups, *order], folder, session, places)
            runs = _judge(seen, self._extent, given, expected, places.output)
        self._say(name, runs)
        return runs

    def run_limited(self, given: ExchangeInput, limits_mbit: Sequence[float]) -> list[ExchangeRun]:
        """Run every way on two workers that are hosts of their own, with thin wires.

        Where this machine cannot have such hosts, it is left out, and a note says why.
        """
        runs: list[ExchangeRun] = []
        with ExitStack() as stack:
            try:
                network = stack.enter_context(host_network(HOSTS))
                network.limit(limits_mbit[0])
            except LabError as error:
                self.notes.append(f"without two hosts and a limit of bandwidth between them: {error}")
                return []
            folder, expected = self._prepare(given, "two hosts")
            for limit_mbit in limits_mbit:
                network.limit(limit_mbit)
                runs += self._run_between(network, given, folder, expected, limit_mbit)
        return runs

    def describe(self, given: ExchangeInput) -> dict[str, Any]:
        """Return what was run."""
        return {
            "name": "exchange",
            "rows": given.rows,
            "batch_rows": given.batch_rows,
            "batches": given.batches,
            "sensors": given.sensors,
            "readings_per_second": READINGS_PER_SECOND,
            "event_seconds": given.span_seconds,
            "window_ms": WINDOW_MS,
            "watermark_delay_ms": DELAY_MS,
            "aggregates": ["count", "sum"],
            "format": FILE_FORMAT,
            "block_codec": "lz4",
            "files_per_batch": PARTITIONS,
            "slots": self._slots,
            "partitions": PARTITIONS,
            "ways": list(self._ways),
            "rounds": self._extent.rounds,
            "cores": CORES,
            "jvm_memory": JVM_MEMORY,
            "hosts": HOSTS,
            "limit_mbit": LIMIT_MBIT,
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _run_between(
        self, network: HostNetwork, given: ExchangeInput, folder: Path, expected: Expected, limit_mbit: float
    ) -> list[ExchangeRun]:
        name = f"two hosts, {limit_mbit:g} Mbit/s"
        workers = [SparkHost(host.address, host.prefix) for host in network.hosts]
        master = SparkHost(network.gateway)
        with (
            scratch_places(self._options.cache_dir, self._logs, f"exchange-{limit_mbit:g}mbit") as places,
            standalone_cluster(places.scratch, workers, master=master, worker_memory=_WORKER_MEMORY) as url,
        ):
            session = _describe_session(url, network)
            seen = self._run_ways(name, [*self._extent.warm_ups, *self._ways], folder, session, places)
            runs = _judge(seen, self._extent, given, expected, places.output, limit_mbit, network)
        self._say(name, runs)
        return runs

    def _prepare(self, given: ExchangeInput, name: str) -> tuple[Path, Expected]:
        """Return the input's folder, warm in the page cache, and what its answer is."""
        with show_activity(self._console, f"input of {name}"):
            folder = write_input(given, self._inputs)
            expected = ask_oracle(folder)
            read_through(folder / MIXED)
            for partition in sorted((folder / PARTITIONED).iterdir()):
                read_through(partition)
        return folder, expected

    def _run_ways(
        self, name: str, ways: Sequence[str], folder: Path, session: Mapping[str, object], places: Places
    ) -> Sequence[Mapping[str, Any]]:
        path = places.scratch / "runs.json"
        path.write_text(json.dumps([{"way": way, "folder": str(folder)} for way in ways]))
        options = {"runs": path, "slots": self._slots, **session}
        with show_activity(self._console, name):
            reported, took = run_peer(name, our_script("exchange.peers.ours"), options, places)
        # The workers of a cluster are no children of the driver, and would be taken for neighbours.
        if "executors" not in session and took.other_cpu_share > BUSY_NEIGHBOUR_SHARE:
            self.notes.append(f"busy machine: other programs took {took.other_cpu_share:.0%} of it during {name}")
        seen: Sequence[Mapping[str, Any]] = reported["runs"]
        return seen

    def _say(self, name: str, runs: Sequence[ExchangeRun]) -> None:
        for run in runs:
            rate = f"{run.rows_per_second / 1e6:.2f} M rows/s" if run.rows_per_second else "too short for a rate"
            verdict = "answers equal" if run.answer.equal else f"[red]wrong answer[/]: {run.answer.difference}"
            self._console.print(f"{name}, {NAMES[run.way]}: {rate}, {run.exchanged_bytes / 1e6:.2f} MB, {verdict}")


def _describe_session(master: str, network: HostNetwork) -> dict[str, object]:
    settings = {
        **name_settings(master, network.gateway, WorkerSize(memory=_EXECUTOR_MEMORY)),
        # A full wire delays heartbeats, too.
        "spark.network.timeout": "300s",
    }
    return {
        "master": master,
        "memory": _DRIVER_MEMORY,
        "executors": len(network.hosts),
        "settings": json.dumps(settings),
        "links": ",".join([*(host.link for host in network.hosts), network.bridge]),
    }


def _judge(
    seen: Sequence[Mapping[str, Any]],
    extent: Extent,
    given: ExchangeInput,
    expected: Expected,
    output: Path,
    limit_mbit: float | None = None,
    network: HostNetwork | None = None,
) -> list[ExchangeRun]:
    """Check the answers of every flow that ran, warm-ups too, and work out rates and bytes of those behind them."""
    warm_up_rows = given.rows * WARM_UP_SHARE
    checks = [check_way(reported["way"], output / str(number), expected) for number, reported in enumerate(seen)]
    runs = []
    for way in extent.ways:
        numbers = [number for number, reported in enumerate(seen) if reported["way"] == way]
        measured = [number for number in numbers if number >= len(extent.warm_ups)]
        wrong = [checks[number] for number in numbers if not checks[number].equal]
        rounds = [seen[number] for number in measured]
        samples = [[(float(at), int(rows)) for at, rows in reported["samples"]] for reported in rounds]
        longest = [find_longest_steady_batch(reported["batches"], warm_up_rows) for reported in rounds]
        crossed = rounds[0]["crossed_bytes"]
        runs.append(
            ExchangeRun(
                way=way,
                sensors=given.sensors,
                rows=given.rows,
                answer=wrong[0] if wrong else checks[measured[0]],
                rows_per_second=pool_rates([compute_steady_rate(each, warm_up_rows) for each in samples]),
                batch_seconds=max((seconds for seconds in longest if seconds is not None), default=None),
                exchanged_bytes=sum(batch["exchanged_bytes"] for batch in rounds[0]["batches"]),
                shuffle_bytes=rounds[0]["shuffle_bytes"],
                limit_mbit=limit_mbit,
                wire_bytes=sum(crossed[host.link] for host in network.hosts) if network is not None else None,
                driver_bytes=crossed[network.bridge] if network is not None else None,
                details={"rounds": rounds},
            )
        )
    return runs

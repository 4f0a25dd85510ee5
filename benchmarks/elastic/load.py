"""The part ``load``: on hosts with quotas, a load becomes four times as high and is then as before."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anabranch.lab.lab import Lab
from anabranch.lab.plan import LabPlan
from anabranch.lab.record import RecordFile
from benchmarks.elastic.grounds import LAB_RECORD
from benchmarks.elastic.load_figures import LoadRun, compute_load_figures, evaluate_load
from benchmarks.elastic.parts import PartOutcome
from benchmarks.elastic.stream import TICK_SECONDS, Readings, compare_answers, compute_answer
from benchmarks.shared.launch import Places, describe_environment, our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.picture import save_figure
from benchmarks.shared.registry import BenchOptions
from benchmarks.shared.report import BUSY_NEIGHBOUR_SHARE
from benchmarks.skew.peers.lehmer import LehmerSum

HOSTS = 4
HOST_CPU, DRIVER_CPU = 0.35, 0.5
"""Of a core; what is left of two cores is for the master and what else runs."""
MEMORY_MB = 640
ELASTICITY: Mapping[str, float] = {
    "max_executors": HOSTS,
    "target": 0.6,
    "upper": 0.8,
    "lower": 0.4,
    "cores_per_executor": HOST_CPU,
    # As quick as up, for what is asked for is three batches each way.
    "samples_down": 2,
    "seconds_down": 1.0,
    "cool_down_seconds": 30.0,
    "catch_up_seconds": 120.0,
}
SENSORS = 2_000
WINDOW_MS = 10_000
STEPS = 8_000
OF_ROWS = 0.75
"""The part of the target that rows take by themselves at first; what tasks cost besides is seen then, and the rate made
such that one executor is at its target."""
_SHORT_LIVED = "-XX:ActiveProcessorCount=1 -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    # JVMs that run for minutes on a third of a core: the optimising compiler would take it from the rows.
    "spark.executor.extraJavaOptions": _SHORT_LIVED,
    "spark.executor.memory": "512m",
}
_CALIBRATED_ROWS = 4_096
_OUR_COLOUR, _PEER_COLOUR, _INK = "#0b6e99", "#b8c4cc", "#22303a"


@dataclass(frozen=True, slots=True)
class Extent:
    """How long it is run: all of it, unless the part is to be worked on."""

    warm_up_batches: int = 8
    """What batches cost is learnt."""
    settled_batches: int = 6
    """Of each load, once it holds."""


WHOLE = Extent()


def run_load(options: BenchOptions, peers: Sequence[str], console: Console, extent: Extent = WHOLE) -> PartOutcome:
    """Let executors of a lab follow a load, and compare the answer with the oracle's. No peer does that by itself."""
    seconds_a_row = measure_row()
    rows_per_second = OF_ROWS * ELASTICITY["target"] * HOST_CPU / seconds_a_row
    readings = Readings(max(1, round(rows_per_second * TICK_SECONDS)), SENSORS, options.seed)
    logs = (options.out_dir or options.cache_dir) / "logs"
    notes: list[str] = []
    with scratch_places(options.cache_dir, logs, "elastic-load") as places:
        reported, other_share = _run_on_lab(readings, extent, options.cache_dir, places, console)
        wanted = compute_answer(readings, range(reported["files"]), WINDOW_MS, STEPS)
        found = pl.read_parquet(places.output / "*.parquet").with_columns(pl.col("window_start").dt.epoch("ms"))
        answer = compare_answers(found, wanted)
    if other_share > BUSY_NEIGHBOUR_SHARE:
        notes.append(f"busy machine: other programs took {other_share:.0%} of it during the load part")
    run = evaluate_load(reported, ELASTICITY["target"], HOST_CPU)
    notes += [f"the load part proves nothing: {breach}" for breach in run.breaches]
    notes += [f"the load part was easier than it is meant to be: {doubt}" for doubt in run.doubts]
    return PartOutcome(
        answers={"load": answer},
        figures=compute_load_figures(run),
        workload={
            "hosts": HOSTS,
            "host_cpu": HOST_CPU,
            "driver_cpu": DRIVER_CPU,
            "rows_per_second": reported["rows_per_second"],
            "rows_per_second_high": 4 * reported["rows_per_second"],
            "row_cpu_microseconds": 1e6 * seconds_a_row,
            "sensors": SENSORS,
            "window_ms": WINDOW_MS,
            "trigger": "3s",
            "latency": "4s",
            "batches_of_a_load": extent.settled_batches,
            "elasticity": dict(ELASTICITY),
            "rows": reported["files"] * readings.rows,
        },
        runs=[
            {
                "system": "anabranch",
                **asdict(run),
                "without_results_seconds": run.without_results_seconds,
                "answer": asdict(answer),
                "details": reported,
            }
        ],
        tables=[_build_table(run)],
        notes=notes,
        pictures=_draw(reported, run, options.out_dir) if options.out_dir is not None and answer.equal else (),
    )


def measure_row() -> float:
    """Return the processor time that the costly aggregate takes for a row on this machine: the best of some tries."""
    work, seeds = LehmerSum("value", STEPS), pl.Series(range(1, _CALIBRATED_ROWS + 1), dtype=pl.Int64)
    tries = []
    for _ in range(5):
        began = time.thread_time()
        work._take_steps(seeds)
        tries.append(time.thread_time() - began)
    return min(tries) / _CALIBRATED_ROWS


def _run_on_lab(
    readings: Readings, extent: Extent, cache_dir: Path, places: Places, console: Console
) -> tuple[dict[str, Any], float]:
    lab = Lab(RecordFile(cache_dir / LAB_RECORD))
    plan = LabPlan(HOSTS, cpu=HOST_CPU, driver_cpu=DRIVER_CPU, memory_mb=MEMORY_MB)
    # Executors load the aggregate from here, too.
    settings = {**SETTINGS, "spark.executorEnv.PYTHONPATH": describe_environment()["PYTHONPATH"]}
    given = {
        "rows": readings.rows,
        "sensors": readings.sensors,
        "seed": readings.seed,
        "window-ms": WINDOW_MS,
        "steps": STEPS,
        "settings": json.dumps(settings),
        "elasticity": json.dumps(dict(ELASTICITY)),
        "batches": json.dumps([extent.warm_up_batches, extent.settled_batches]),
    }
    try:
        with show_activity(console, "a lab of four hosts"):
            lab.down()
            lab.up(plan)
        command, variables = lab.place("driver", our_script("elastic.peers.ours_load"))
        with show_activity(console, "load ×4 and back"):
            reported, took = run_peer("elastic-load", command, given, places, variables)
            hosts = {host.name: host.cpu_use for host in lab.status().hosts}
    finally:
        lab.down()
    reported["host_cpu_seconds"] = {name: None if use is None else use.seconds for name, use in hosts.items()}
    # Executors are no children of the driver: what hosts used is known by their groups.
    used = sum(seconds or 0.0 for name, seconds in reported["host_cpu_seconds"].items() if name != "driver")
    return reported, max(0.0, took.other_cpu_share - used / (2 * took.run_seconds))


def _build_table(run: LoadRun) -> Table:
    table = Table(title="a load on hosts with quotas", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("load", no_wrap=True)
    for name in ("batches", "median", "slowest over it", "use by what comes", "use of all", "executors"):
        table.add_column(name, justify="right")
    for phase in run.phases:
        table.add_row(
            phase.name,
            str(phase.batches),
            f"{phase.median_seconds:.2f} s",
            f"{phase.slowest_over_median:.2f}",
            f"{phase.utilisation:.0%}",
            f"{phase.used:.0%}",
            str(phase.executors),
        )
    table.caption = (
        f"up: decided in {run.decided_up_batches} batches, {run.up_changes} change, all have slots after "
        f"{run.grown_seconds:.0f} s; down: in {run.decided_down_batches} batches, {run.down_changes} change; "
        "utilisation of the quotas, by what comes times what a row takes (utilisation_error_points), and by all that "
        "executors used, their JVMs included (used_error_points); the longest gap between commits was "
        f"{run.longest_gap_seconds:.1f} s, a usual one {run.usual_gap_seconds:.1f} s; {run.runs - 1} restarts, "
        f"{run.replayed_batches} batches replayed"
    )
    return table


def _draw(reported: Mapping[str, Any], run: LoadRun, folder: Path) -> list[Path]:
    from matplotlib.figure import Figure

    batches = [batch for batch in reported["batches"] if batch["rows"]]
    start = batches[0]["committed_at"]
    at = [batch["committed_at"] - start for batch in batches]
    figure = Figure(figsize=(8.5, 5.2), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    panels[0].plot(at, [batch["seconds"] for batch in batches], "o-", ms=3, color=_OUR_COLOUR)
    panels[0].set_title("seconds a batch", loc="left", fontsize=9.5, color=_INK)
    panels[1].plot(
        at, [100 * batch["elasticity"].get("utilisation", 0.0) for batch in batches], "o-", ms=3, color=_OUR_COLOUR
    )
    panels[1].axhline(100 * run.target, color=_PEER_COLOUR, linewidth=1)
    panels[1].set_title("% of the quotas that what comes takes (line: target)", loc="left", fontsize=9.5, color=_INK)
    panels[2].step(at, [batch["executors"] for batch in batches], where="post", color=_PEER_COLOUR, label="there")
    panels[2].step(at, [batch["homes"] for batch in batches], where="post", color=_OUR_COLOUR, label="with slots")
    panels[2].legend(fontsize=8, frameon=False)
    panels[2].set_title("executors", loc="left", fontsize=9.5, color=_INK)
    panels[2].set_xlabel("seconds", fontsize=8, color=_INK)
    for panel in panels:
        panel.set_ylim(bottom=0)
        for moment in (reported["changed_up_at"], reported["changed_down_at"]):
            panel.axvline(moment - start, color="#c06c2b", linewidth=0.8, linestyle="--")
        panel.tick_params(labelsize=8, labelcolor=_INK)
        panel.spines[["top", "right"]].set_visible(False)
    return save_figure(figure, folder, "elastic-load")

"""The parts ``recovery`` and ``cost``: how soon results come again when a host is killed, and what replicas take.

Both run on a lab: three hosts with executors, and one whose worker makes room for a server that speaks S3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anabranch.lab.lab import Lab
from anabranch.lab.plan import LabPlan
from benchmarks.replicas.live_lab import describe_runs, describe_s3, list_settings, make_bucket, open_lab, serve_s3
from benchmarks.shared.launch import our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.registry import BenchError, BenchOptions

RECOVERY, COST, NATIVE = "recovery", "cost", "native"
EXECUTORS = 3
STORE, KILLED = "h4", "h2"
STORE_MBIT = 100.0
SLOTS = 3
STATE_BYTES_A_SLOT = 200_000_000
BYTES_A_KEY = 225
"""What a key takes of a run, in the mean: hash, key, count, and 200 letters that cannot be packed."""
DEFAULT_ROUNDS = 3
COST_KEYS, COST_ROWS_A_BATCH = 100_000, 100_000


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """What was seen of the parts that run on hosts."""

    runs: Sequence[Mapping[str, Any]]
    store_mbit: float = STORE_MBIT
    without_native: str = ""
    """Why no native query with its state in RocksDB ran beside ``recovery``; nothing if one did, or none was due."""

    def compute_figures(self) -> dict[str, float]:
        """Return the figures by name; one alone where an answer is wrong."""
        figures: dict[str, float] = {"answers_equal": int(all(run["is_right"] for run in self.runs))}
        if not figures["answers_equal"]:
            return figures
        recoveries = [run for run in self.runs if run["kind"] == RECOVERY]
        pairs = list(zip(_of_degree(recoveries, 1), _of_degree(recoveries, 2), strict=True))
        if pairs:
            figures["recovery_store_s"] = median(store["recovery_seconds"] for store, _ in pairs)
            figures["recovery_replica_s"] = median(replica["recovery_seconds"] for _, replica in pairs)
            figures["recovery_replica_over_store"] = median(
                replica["recovery_seconds"] / store["recovery_seconds"] for store, replica in pairs
            )
            figures["detection_s"] = median(run["detection_seconds"] for run in recoveries)
            figures["state_mb_a_slot"] = median(run["state_bytes"] for run in recoveries) / SLOTS / 1e6
            figures["slots_lost"] = median(run["slots_lost"] for run in recoveries)
        natives = [run["recovery_seconds"] for run in self.runs if run["kind"] == NATIVE]
        if natives:
            figures["recovery_native_s"] = median(natives)
            if pairs:
                figures["recovery_replica_over_native"] = figures["recovery_replica_s"] / figures["recovery_native_s"]
        costs = [run for run in self.runs if run["kind"] == COST]
        pairs = list(zip(_of_degree(costs, 1), _of_degree(costs, 2), strict=True))
        if pairs:
            figures["replication_cost_pct"] = 100 * (
                1 - median(copied["rows_per_second"] / alone["rows_per_second"] for alone, copied in pairs)
            )
        return figures


def _of_degree(runs: Sequence[Mapping[str, Any]], degree: int) -> list[Mapping[str, Any]]:
    return [run for run in runs if run["degree"] == degree]


def run_live(parts: Sequence[str], options: BenchOptions, console: Console) -> LiveRuns:
    """Run the parts in alternating pairs, without replicas and with them, and return what was seen."""
    rounds = options.rounds or DEFAULT_ROUNDS
    logs = options.out_dir or options.cache_dir / "logs"
    plan = LabPlan(hosts=EXECUTORS + 1, memory_mb=1_024)
    with open_lab(options.cache_dir, plan) as (lab, record), serve_s3(lab, STORE, logs) as endpoint:
        addresses = {host.name: host.address for host in lab.status().hosts}
        runs = [
            {
                **_describe(part, options, addresses),
                "name": f"{part}-{number}-{degree}",
                "degree": degree,
                "checkpoint": f"{make_bucket(endpoint, f'{part}-{number}-{degree}')}/state",
            }
            for part in parts
            for number in range(rounds)
            # Whoever is first has a machine that is less warm: turns change.
            for degree in ((1, 2) if number % 2 == 0 else (2, 1))
        ]
        secrets = describe_s3(endpoint)
        settings = list_settings(lab.status(), endpoint)
        with scratch_places(options.cache_dir, logs, "replicas-live") as places:
            told = describe_runs(runs, places, lab, record, settings, EXECUTORS)
            with show_activity(console, f"{', '.join(parts)}: {len(runs)} runs"):
                reported, _ = run_peer(
                    "replicas-live", our_script("replicas.peers.ours_recovery"), told, places, secrets
                )
        seen, why_not = list(reported["runs"]), ""
        if RECOVERY in parts:
            try:
                seen += _run_native(options, console, lab, record, endpoint, addresses)
            except BenchError as error:
                why_not = str(error)
    return LiveRuns(seen, without_native=why_not)


def _run_native(
    options: BenchOptions, console: Console, lab: Lab, record: Path, endpoint: str, addresses: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Run the native query once, on the same hosts and store, and return what was seen."""
    logs = options.out_dir or options.cache_dir / "logs"
    status = lab.status()
    bucket = make_bucket(endpoint, "recovery-native")
    run = {
        **_describe(RECOVERY, options, addresses),
        "name": "recovery-native",
        # Spark's own way to the same server.
        "checkpoint": f"{bucket.replace('s3://', 's3a://')}/state",
    }
    with scratch_places(options.cache_dir, logs, "replicas-native") as places:
        told = {
            "run": json.dumps(run),
            "master": status.master_url,
            "settings": json.dumps(list_settings(status, endpoint)),
            "record": record,
            "executors": EXECUTORS,
        }
        with show_activity(console, "recovery: the native query"):
            script = our_script("replicas.peers.native_recovery")
            reported, _ = run_peer("replicas-native", script, told, places, describe_s3(endpoint))
    return list(reported["runs"])


_COLUMNS = (
    ("rows/s", "rows_per_second", 1, 0),
    ("slots lost", "slots_lost", 1, 0),
    ("MB of state", "state_bytes", 1e6, 0),
    ("loss found, s", "detection_seconds", 1, 2),
    ("then results, s", "recovery_seconds", 1, 2),
    ("usual batch, s", "usual_seconds", 1, 2),
)
"""Title, name of what is noted of a run, unit and digits."""


def print_live(live: LiveRuns, console: Console) -> None:
    """Print every run, and what the history told of the losses."""
    table = Table(title="measured on hosts of a lab, in alternating pairs", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for name in ("run", "degree", "right"):
        table.add_column(name, no_wrap=True)
    # Parts note different things, and a terminal has no room for columns that say nothing.
    shown = [column for column in _COLUMNS if any(column[1] in run for run in live.runs)]
    for title, *_ in shown:
        table.add_column(title, justify="right")
    has_sources = any(run.get("run_reads") for run in live.runs)
    if has_sources:
        table.add_column("state came from")
    for run in live.runs:
        sources = [f"{source} {size / 1e6:,.0f} MB" for source, (_, size) in run.get("run_reads", {}).items()]
        table.add_row(
            run["kind"],
            str(run["degree"]),
            "yes" if run["is_right"] else "[red]no[/]",
            *(f"{run[name] / unit:,.{digits}f}" if name in run else "–" for _, name, unit, digits in shown),
            *(["\n".join(sources)] if has_sources else []),
        )
    console.print(table)
    wire = f"The store's wire carries {live.store_mbit:g} Mbit/s from when the state is there; no other is limited."
    if any(run["kind"] == NATIVE for run in live.runs):
        console.print(f"{wire} The native query (state in RocksDB) ran once, on the same hosts and the same store.")
    else:
        why = f": {live.without_native}" if live.without_native else "."
        console.print(f"{wire} No native query with RocksDB ran beside these{why}")


def _describe(part: str, options: BenchOptions, addresses: Mapping[str, str]) -> dict[str, Any]:
    common = {"kind": part, "seed": options.seed, "slots": SLOTS, "memory_mb": 2_048}
    if part == COST:
        return {**common, "keys": options.keys or COST_KEYS, "rows_a_batch": options.rows or COST_ROWS_A_BATCH}
    return {
        **common,
        "keys": options.keys or SLOTS * STATE_BYTES_A_SLOT // BYTES_A_KEY,
        "host": KILLED,
        "address": addresses[KILLED],
        "store": STORE,
        "store_mbit": STORE_MBIT,
    }

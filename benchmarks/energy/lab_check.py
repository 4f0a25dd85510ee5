"""The simulator beside the lab: what tasks were measured to take with all hosts awake, played under each policy."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch.model.cluster import SlotId
from anabranch.model.energy import Energy
from anabranch.model.measures import OTHER_SLOTS
from anabranch.placement.energy import Board, FlowLoad, RoundRobin, SlotUse, find_policy
from anabranch.placement.energy import Host as EnergyHost
from anabranch.sim.cluster import Host
from anabranch.sim.energy_day import SimulatedDay, simulate_day
from benchmarks.energy.lab import ENERGY, HOST_CPU, HOSTS, SETTLED, TRIGGER_SECONDS, LabRun

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class LabCheck:
    """A flow under a policy, once hosts have settled: in the lab, and simulated from what the lab measured."""

    topology: str
    system: str
    hosts: float
    simulated_hosts: float
    p95_seconds: float
    simulated_p95_seconds: float
    bytes_a_row: float
    """Between hosts."""
    simulated_bytes_a_row: float

    @property
    def p95_off_pct(self) -> float:
        """By how much the simulated latency differs."""
        return 100 * (self.simulated_p95_seconds / self.p95_seconds - 1)

    @property
    def bytes_off_pct(self) -> float | None:
        """By how much the simulated bytes differ; None where none crossed in the lab."""
        return 100 * (self.simulated_bytes_a_row / self.bytes_a_row - 1) if self.bytes_a_row else None


@dataclass(frozen=True, slots=True)
class LabLoad:
    """What a flow did in the lab with all hosts awake."""

    load: FlowLoad
    """In a window of one row a second."""
    rates: Sequence[float]
    """Rows a second, window by window."""


def measure_load(reported: Mapping[str, Any], hosts: int = HOSTS) -> LabLoad:
    """Return the load of a run with all hosts awake, from its settled part, and its rates from begin to end.

    A host has part of a core, and the simulator knows whole ones: a second of processor time takes as long as it does
    under the quota.
    """
    window = float(ENERGY["window_seconds"])
    batches = [batch for batch in reported["batches"] if batch["rows"]]
    settled = batches[int(SETTLED * len(batches)) :]
    rows = sum(batch["rows"] for batch in settled)
    cpu: defaultdict[SlotId, float] = defaultdict(float)
    state: dict[SlotId, int] = {}
    sent: defaultdict[tuple[SlotId, SlotId], float] = defaultdict(float)
    for batch in settled:
        there = [tuple(task["id"]) for task in batch["tasks"]]
        for task in batch["tasks"]:
            slot = tuple(task["id"])
            cpu[slot] += task["cpu_seconds"] / HOST_CPU
            state[slot] = task["state_bytes"]
            for target, bytes_ in spread_others(slot, _read_sent(task), there).items():
                sent[slot, target] += bytes_
    load = FlowLoad(
        seconds=window,
        batches=max(1, round(window / TRIGGER_SECONDS)),
        rows=window,
        slots={
            slot: SlotUse(seconds * window / rows, state[slot], state[slot]) for slot, seconds in sorted(cpu.items())
        },
        sent_bytes={pair: bytes_ * window / rows for pair, bytes_ in sorted(sent.items())},
        trigger_seconds=TRIGGER_SECONDS,
    )
    began = batches[0]["committed_at"]
    counted: defaultdict[int, float] = defaultdict(float)
    for batch in batches[1:]:
        counted[max(0, math.ceil((batch["committed_at"] - began) / window - _ROUNDING) - 1)] += batch["rows"]
    # The last window may not be over.
    over = int((batches[-1]["committed_at"] - began) / window + _ROUNDING)
    rates = [counted[place] / window for place in range(over)] or [rows / window]
    seconds = sum(batch["seconds"] for batch in settled) / len(settled)
    return LabLoad(_calibrate(load, seconds, rows / len(settled), make_lab_hosts(hosts)), rates)


def spread_others(
    sender: SlotId, sent: Mapping[SlotId, float], there: Sequence[tuple[int, ...]]
) -> dict[SlotId, float]:
    """Return what a task sent by target; what measures tell of all others together is shared out among these."""
    named = {target: bytes_ for target, bytes_ in sent.items() if target != OTHER_SLOTS}
    rest = sent.get(OTHER_SLOTS, 0.0)
    levels = sorted({level for level, _ in there if level > sender[0]})
    others = [(level, slot) for level, slot in there if levels and level == levels[0] and (level, slot) not in named]
    named = {target: bytes_ for target, bytes_ in named.items() if target in there and target[0] > sender[0]}
    return named | {target: rest / len(others) for target in others if rest}


def _read_sent(task: Mapping[str, Any]) -> dict[SlotId, float]:
    return {(level, slot): float(bytes_) for level, slot, bytes_ in task["sent_bytes"]}


def make_lab_hosts(count: int = HOSTS) -> tuple[Host, ...]:
    """Return the hosts of the lab, each of which does with its part of a core what it does."""
    return tuple(Host(f"h{number}", cores=1) for number in range(1, count + 1))


def _calibrate(load: FlowLoad, batch_seconds: float, batch_rows: float, hosts: Sequence[Host]) -> FlowLoad:
    """Return the load with what a batch took beside what its slots did, the same for each level."""
    known: tuple[EnergyHost, ...] = tuple(host.as_energy_host() for host in hosts)
    homes = RoundRobin().plan(known, load, {}, frozenset(), read_settings("awake")).homes
    per_batch = load.rows / load.batches
    explained = Board(known, load.scale(batch_rows / per_batch), homes).batch_seconds()
    return replace(load, level_seconds=max(0.0, batch_seconds - explained) / load.levels)


def read_settings(policy: str) -> Energy:
    """Return the settings of the lab; the limit of a host is that of its own part of a core."""
    return Energy.from_names({**ENERGY, "cpu_limit": ENERGY["cpu_limit"] / HOST_CPU, "policy": policy})


def check_runs(runs: Sequence[LabRun], loads: Mapping[str, LabLoad]) -> list[LabCheck]:
    """Return every run of the lab beside what the simulator makes of the same load under the same policy."""
    found = []
    for run in runs:
        measured, settings = loads[run.topology], read_settings(run.system)
        day = simulate_day(find_policy(settings.policy), settings, make_lab_hosts(), measured.load, measured.rates)
        hosts, p95, bytes_a_row = describe_settled(day)
        found.append(
            LabCheck(
                run.topology,
                run.system,
                run.hosts,
                hosts,
                run.p95_seconds,
                p95,
                run.bytes_between_hosts_a_row,
                bytes_a_row,
            )
        )
    return found


def describe_settled(day: SimulatedDay) -> tuple[float, float, float]:
    """Return of the last part of the windows the hosts awake, the latency of 95 % of rows, and the bytes a row."""
    windows = day.windows[int(SETTLED * len(day.windows)) :]
    part = replace(day, windows=tuple(windows))
    return part.mean_awake, part.find_latency(0.95), part.crossing_bytes / max(part.done_rows, 1e-9)


def find_gains(runs: Sequence[LabRun], bound_seconds: float, baseline: str) -> tuple[dict[str, float], list[str]]:
    """Return how many flows kept what sleeping hosts are for, as figures, and in words which did not."""
    before = {run.topology: run for run in runs if run.system == baseline}
    figures: dict[str, float] = {}
    told: list[str] = []
    for system in dict.fromkeys(run.system for run in runs if run.system != baseline):
        some = [run for run in runs if run.system == system]
        fewer_hosts = [run for run in some if run.hosts < before[run.topology].hosts]
        fewer_bytes = [
            run for run in some if run.bytes_between_hosts_a_row < before[run.topology].bytes_between_hosts_a_row
        ]
        in_time = [run for run in some if run.p95_seconds <= bound_seconds]
        for name, kept, words in (
            ("fewer_hosts", fewer_hosts, "hosts as many as with all awake"),
            ("fewer_bytes", fewer_bytes, "bytes between hosts no fewer a row"),
            ("within_bound", in_time, f"95 % of rows within more than {bound_seconds:g} s"),
        ):
            figures[f"lab_{system}_{name}_flows"] = len(kept)
            told += [f"{run.topology}, {system}, in the lab: {words}" for run in some if run not in kept]
    return figures, told

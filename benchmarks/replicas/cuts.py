"""The part ``lab``: hosts of a lab lose their wires, and the simulator is told the same; what differs is shown.

It is one row of the paper's experiments on hosts, and a check of the simulator. The lab says where slots were at home,
where their replicas stood and what a row cost; everything after the cut the simulator has to find out by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anabranch.lab.plan import DRIVER, LabPlan
from anabranch.placement.replicas import Replicas, find_availability, find_survived, list_copies
from anabranch.sim import Costs, Host, HostEvent, LoadTrace, Scenario, SimulatedFlow, Simulation, Slot, Steering
from benchmarks.replicas.live_lab import describe_runs, describe_s3, list_settings, make_bucket, open_lab, serve_s3
from benchmarks.shared.launch import our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.registry import BenchOptions

LAB = "lab"
NETWORK_TIMEOUT_SECONDS, LOOK_SECONDS, HEARTBEAT_SECONDS = 10, 2, 2
"""An executor of which Spark has heard nothing for so long is given up; it looks so often, and is told so often."""
DETECTION_SECONDS = NETWORK_TIMEOUT_SECONDS + (LOOK_SECONDS - HEARTBEAT_SECONDS) / 2
"""What the simulator takes it to be, from these settings: not what the lab was found to take."""
STORE_BYTES_PER_SECOND = 125e6
_WATCHED_SECONDS = 30.0
_SPARK: Mapping[str, str] = {
    "spark.network.timeout": f"{NETWORK_TIMEOUT_SECONDS}s",
    "spark.network.timeoutInterval": f"{LOOK_SECONDS}s",
    "spark.executor.heartbeatInterval": f"{HEARTBEAT_SECONDS}s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    # A slot that lost its home waits so long for a core of the host where its replica is.
    "spark.locality.wait": "10s",
    # JVMs that run for minutes, many on few cores: the optimising compiler would take these from the rows.
    "spark.executor.extraJavaOptions": "-XX:ActiveProcessorCount=1 -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is run."""

    hosts: int = 6
    slots: int = 6
    degree: int = 2
    failures: int = 2
    """Hosts that are cut off at once."""
    cuts: int = 4
    """By each placement; the same ones."""
    placements: tuple[str, ...] = ("mrp", "random")
    keys: int = 30_000
    rows: int = 500
    """Every so often."""
    interval_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Course:
    """How a flow went on after a cut."""

    sources: Mapping[str, str]
    """Slots whose home was cut off, by their number → *replica* or *store*."""
    gap_seconds: float
    """The longest time between two commits, from the last one before the cut on."""
    later_commits: int
    """Batches with rows that were committed after the cut, as long as it was looked at."""

    @property
    def survived(self) -> bool:
        """Whether nobody needed the store, which a flow in the paper does not have."""
        return "store" not in self.sources.values()


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut, as the lab had it, and as the simulator did."""

    placement: str
    cut: Sequence[str]
    homes: Mapping[str, str]
    replicas: Mapping[str, Sequence[str]]
    is_right: bool
    detection_seconds: float
    has_copies: bool
    """Whether each slot has a copy on a host that is left: what availability is counted by."""
    enumerated_pct: float
    """Of all sets of so many hosts, those that leave each slot a copy, where copies stand so."""
    ran: Mapping[str, str]
    """Slots whose home was cut off → the host on which they ran next, in the lab."""
    lab: Course
    simulated: Course

    @property
    def differences(self) -> list[str]:
        """What the simulator had otherwise."""
        told = [
            f"slot {slot}: {source} in the lab, {self.simulated.sources.get(slot, 'nothing')} in the simulator"
            f" (it ran on {self.ran.get(slot, '?')}, its replicas are on {', '.join(self.replicas.get(slot, ()))})"
            for slot, source in self.lab.sources.items()
            if self.simulated.sources.get(slot) != source
        ]
        told += [
            f"slot {slot} is lost in the simulator only" for slot in self.simulated.sources.keys() - self.lab.sources
        ]
        if self.lab.survived != self.has_copies:
            told.append(f"{'every' if self.has_copies else 'not every'} slot has a copy left")
        if not self.simulated.later_commits or not self.lab.later_commits:
            told.append("no batch is committed after it")
        return told


def draw_cuts(extent: Extent, seed: int) -> list[tuple[str, ...]]:
    """Return the hosts that are cut off, by chance, no set twice as long as there are others."""
    names = [f"h{number}" for number in range(1, extent.hosts + 1)]
    sets = list(itertools.combinations(names, extent.failures))
    order = np.random.default_rng([seed, 17]).permutation(len(sets)).tolist()
    return [sets[order[place % len(sets)]] for place in range(extent.cuts)]


def run_cuts(options: BenchOptions, console: Console, extent: Extent | None = None) -> list[Cut]:
    """Cut hosts of a lab off, each set from a flow of its own, and let the simulator do the same."""
    extent = extent or Extent()
    if options.rounds:
        extent = replace(extent, cuts=options.rounds)
    logs = options.out_dir or options.cache_dir / "logs"
    plan = LabPlan(hosts=extent.hosts, memory_mb=600)
    with open_lab(options.cache_dir, plan) as (lab, record), serve_s3(lab, DRIVER, logs) as endpoint:
        status = lab.status()
        runs = [
            {
                "name": f"cut-{placement}-{number}",
                "placement": placement,
                "cut": cut,
                "names": {host.address: host.name for host in status.hosts},
                "checkpoint": f"{make_bucket(endpoint, f'cut-{placement}-{number}')}/state",
                "seed": options.seed + number,
                "memory_mb": 256,
                **asdict(extent),
            }
            for number, cut in enumerate(draw_cuts(extent, options.seed))
            for placement in extent.placements
        ]
        with scratch_places(options.cache_dir, logs, "replicas-cuts") as places:
            settings = {**list_settings(status, endpoint), **_SPARK}
            told = describe_runs(runs, places, lab, record, settings, extent.hosts)
            with show_activity(console, f"{LAB}: {len(runs)} cuts"):
                script = our_script("replicas.peers.ours_cuts")
                reported, _ = run_peer("replicas-cuts", script, told, places, describe_s3(endpoint))
    return [judge(seen, extent) for seen in reported["runs"]]


def judge(seen: Mapping[str, Any], extent: Extent) -> Cut:
    """Return a cut as the lab had it, beside what its copies and the simulator say."""
    hosts = [f"h{number}" for number in range(1, extent.hosts + 1)]
    homes = {(1, int(slot)): home for slot, home in seen["homes"].items()}
    replicas = {(1, int(slot)): tuple(there) for slot, there in seen["replicas"].items()}
    copies = list_copies(hosts, homes, replicas)
    failed = np.array([[host in seen["cut"] for host in hosts]])
    before = max((at for at, _ in seen["commits"] if at <= seen["cut_seconds"]), default=0.0)
    moments = [before, *(at for at, _ in seen["commits"] if at > seen["cut_seconds"])]
    return Cut(
        placement=seen["placement"],
        cut=seen["cut"],
        homes=seen["homes"],
        replicas=seen["replicas"],
        is_right=seen["is_right"],
        detection_seconds=seen["found_seconds"] - seen["cut_seconds"],
        has_copies=bool(find_survived(copies, failed)[0]),
        ran=seen["ran"],
        enumerated_pct=100 * find_availability(copies, len(seen["cut"])),
        lab=Course(
            {slot: "store" if "store" in sources else "replica" for slot, sources in seen["sources"].items()},
            _find_gap(moments),
            len(moments) - 1,
        ),
        simulated=simulate(seen, extent),
    )


def simulate(seen: Mapping[str, Any], extent: Extent) -> Course:
    """Return how the simulator lets the same flow go on on the same hosts after the same cut."""
    hosts = tuple(Host(f"h{number}", cores=1) for number in range(1, extent.hosts + 1))
    homes = {(1, int(slot)): home for slot, home in seen["homes"].items()}
    flow = SimulatedFlow(
        tuple(
            Slot((1, one["slot"]), one["cpu_seconds_a_row"], one["state_bytes"], one["changed_bytes_a_row"])
            for one in seen["slots"]
        )
    )
    levels = max(one["cpu_seconds_a_row"] for one in seen["slots"]) * extent.rows
    costs = Costs(
        batch_seconds=extent.interval_seconds,
        fixed_seconds=max(0.0, seen["steady_seconds"] - levels),
        detection_seconds=DETECTION_SECONDS,
        store_bytes_per_second=STORE_BYTES_PER_SECOND,
    )
    cut_at = seen["cut_seconds"]
    simulation = Simulation(
        Scenario(
            hosts,
            flow,
            LoadTrace.constant(extent.rows / extent.interval_seconds),
            tuple(HostEvent(cut_at, host, "cut") for host in seen["cut"]),
            costs=costs,
        ),
        Steering(Replicas(extent.degree, seen["placement"])),
        homes=homes,
        replicas={(1, int(slot)): tuple(there) for slot, there in seen["replicas"].items()},
        rng=np.random.default_rng(1),
    )
    records = simulation.run_until(max(cut_at + _WATCHED_SECONDS, *(at for at, _ in seen["commits"])))
    moments = [record.began_seconds + record.seconds for record in records if record.is_committed]
    before = max((at for at in moments if at <= cut_at), default=0.0)
    after = [at for at in moments if at > cut_at]
    sources = {str(slot): source for record in records for (_, slot), source in record.recovered.items()}
    last = max(at for at, _ in seen["commits"])
    return Course(sources, _find_gap([before, *after]), sum(at <= last for at in after))


def _find_gap(moments: Sequence[float]) -> float:
    return max((later - earlier for earlier, later in itertools.pairwise(moments)), default=0.0)


def compute_cut_figures(cuts: Sequence[Cut]) -> dict[str, float]:
    """Return the figures by name; one alone where an answer is wrong."""
    figures: dict[str, float] = {"answers_equal": int(all(cut.is_right for cut in cuts))}
    if not cuts or not figures["answers_equal"]:
        return figures
    for placement in dict.fromkeys(cut.placement for cut in cuts):
        some = [cut for cut in cuts if cut.placement == placement]
        figures |= {
            f"lab_{placement}_availability_pct": 100 * float(np.mean([cut.lab.survived for cut in some])),
            f"sim_{placement}_availability_pct": 100 * float(np.mean([cut.simulated.survived for cut in some])),
            f"lab_{placement}_enumerated_pct": float(np.mean([cut.enumerated_pct for cut in some])),
        }
    slots = [source == cut.simulated.sources.get(slot) for cut in cuts for slot, source in cut.lab.sources.items()]
    return figures | {
        "lab_cuts": len(cuts),
        "lab_lost_slots": len(slots),
        "sim_sources_as_lab_pct": 100 * float(np.mean(slots)) if slots else 100.0,
        "lab_goes_on_pct": 100 * float(np.mean([cut.lab.later_commits > 0 for cut in cuts])),
        "sim_goes_on_pct": 100 * float(np.mean([cut.simulated.later_commits > 0 for cut in cuts])),
        "lab_gap_s": median(cut.lab.gap_seconds for cut in cuts),
        "sim_gap_s": median(cut.simulated.gap_seconds for cut in cuts),
        "lab_detection_s": median(cut.detection_seconds for cut in cuts),
    }


def describe_cuts(cuts: Sequence[Cut]) -> list[dict[str, Any]]:
    """Return the cuts as plain data, with what differs."""
    return [{**asdict(cut), "differences": cut.differences} for cut in cuts]


def print_cuts(cuts: Sequence[Cut], console: Console) -> None:
    """Print every cut, in the lab and in the simulator, and what differs."""
    table = Table(title="hosts of a lab cut off, and the same simulated", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for name in ("placement", "cut off", "right", "copy left"):
        table.add_column(name)
    for name in ("all sets %", "slots lost", "lab: replica", "store", "sim: replica", "store", "found, s"):
        table.add_column(name, justify="right")
    for name in ("lab: gap, s", "sim", "lab: later", "sim"):
        table.add_column(name, justify="right")
    for cut in cuts:
        table.add_row(
            cut.placement,
            ", ".join(cut.cut),
            "yes" if cut.is_right else "[red]no[/]",
            "yes" if cut.has_copies else "no",
            f"{cut.enumerated_pct:.0f}",
            str(len(cut.lab.sources)),
            *(
                str(list(course.sources.values()).count(source))
                for course in (cut.lab, cut.simulated)
                for source in ("replica", "store")
            ),
            f"{cut.detection_seconds:.1f}",
            f"{cut.lab.gap_seconds:.1f}",
            f"{cut.simulated.gap_seconds:.1f}",
            str(cut.lab.later_commits),
            str(cut.simulated.later_commits),
        )
    table.caption = (
        "copy left: each slot has one on a host that is not cut off; gap: longest time between two commits; "
        "later: batches committed after the cut"
    )
    console.print(table)
    told = [
        f"{cut.placement}, {', '.join(cut.cut)} cut off: {'; '.join(cut.differences)}"
        for cut in cuts
        if cut.differences
    ]
    console.print(
        "The simulator differs from the lab: " + " | ".join(told)
        if told
        else "The simulator had every slot go on as the lab did."
    )

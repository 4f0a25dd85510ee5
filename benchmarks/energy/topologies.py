"""The four topologies of the paper on energy (its table 3), as simulated flows on its 16 hosts.

What a row costs is set so that at the paper's own rate under round-robin hosts are as busy as it says (its figure 8: 50
to 70 %). How that is shared among components, and how large messages are where the table does not say, is assumed here
and named below; none of it was chosen by what policies make of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.model.cluster import SlotId
from anabranch.sim.cluster import Host, SimulatedFlow, Slot

CORES = 4
MEMORY_BYTES = 8_000_000_000
BANDWIDTH = 12_500_000
"""Of the paper's hosts: an i7-4790, 8 GB, 100 Mbit/s each way."""
HOSTS = 16
PAPER_UTILISATION = 0.6
_WORDS = 10_000
_SEED = 17


@dataclass(frozen=True, slots=True)
class Component:
    """A component of a topology: a level of slots."""

    slots: int
    cpu_share: float
    """Of all processor time; an assumption."""
    message_bytes: float = 0.0
    """For each row of the flow, to each row of which the component sends on."""
    state_bytes: int = 0
    """A slot's."""
    by_key: bool = False
    """Whether its rows come by key (words), and not dealt out evenly."""


@dataclass(frozen=True, slots=True)
class Topology:
    """A topology, and what the paper measured of it."""

    name: str
    kind: str
    components: tuple[Component, ...]
    default_rate: float
    """Tuples a second under Storm's own schedule."""
    rate_change: float
    """By ERDM, as the paper has it."""
    latency_change: float | None
    energy_change: float | None
    released: int
    """Of 16 hosts (its figure 7)."""
    moved: int
    """Executors, and how many of them no longer send between hosts, and what each of these saves of such traffic."""
    localised: int
    saved_each: float
    executors: int
    """In all, as its text says: more than its table 3 adds up to for three of the four."""


TOPOLOGIES: tuple[Topology, ...] = (
    Topology(
        "WordCount",
        "processors",
        (
            Component(50, 0.15, message_bytes=100),
            Component(100, 0.40, message_bytes=100),
            Component(100, 0.45, state_bytes=5_000_000, by_key=True),
        ),
        77_572 / 1.137,
        0.137,
        -0.063,
        None,
        2,
        17,
        14,
        0.008,
        326,
    ),
    Topology(
        "Sol",
        "network",
        # Two bolts behind each other: a tuple is sent twice, and rates of the paper count what is sent.
        (Component(50, 0.34, message_bytes=1_000), Component(100, 0.33, message_bytes=1_000), Component(100, 0.33)),
        76_471 / 1.133,
        0.133,
        -0.087,
        None,
        3,
        21,
        18,
        0.011,
        286,
    ),
    Topology(
        "RollingSort",
        "memory",
        # Messages of 100 bytes: the 100,000 of table 3 would be 6 GB/s, thirty times what 16 such hosts can receive.
        # Each bolt sorts chunks of 2,000,000 messages.
        (Component(50, 0.30, message_bytes=100), Component(100, 0.70, state_bytes=200_000_000)),
        59_763 / 1.182,
        0.182,
        -0.104,
        None,
        2,
        15,
        12,
        0.015,
        318,
    ),
    Topology(
        "RollingCount",
        "as in practice",
        (
            Component(50, 0.15, message_bytes=100),
            Component(100, 0.35, message_bytes=100),
            # Windows of 150 s, told every 30 s: five counts a word.
            Component(100, 0.50, state_bytes=25_000_000, by_key=True),
        ),
        57_530 / 1.125,
        0.125,
        None,
        -0.273,
        2,
        14,
        11,
        0.013,
        266,
    ),
)


def make_paper_hosts(count: int = HOSTS) -> tuple[Host, ...]:
    """Return the paper's hosts."""
    return tuple(
        Host(f"host-{number:02d}", CORES, MEMORY_BYTES, 2 * BANDWIDTH, kind="i7-4790") for number in range(1, count + 1)
    )


def make_flow(topology: Topology) -> SimulatedFlow:
    """Return the flow whose hosts are as busy as in the paper at the paper's rate."""
    seconds_a_row = PAPER_UTILISATION * HOSTS * CORES / topology.default_rate
    slots: list[Slot] = []
    sent: dict[tuple[SlotId, SlotId], float] = {}
    before: list[tuple[SlotId, float]] = []
    for level, component in enumerate(topology.components):
        shares = _share_out_words(component.slots, topology) if component.by_key else np.full(component.slots, 1.0)
        shares = shares / shares.sum()
        ids = [(level, number) for number in range(component.slots)]
        slots += [
            Slot(id, float(seconds_a_row * component.cpu_share * share), component.state_bytes)
            for id, share in zip(ids, shares.tolist(), strict=True)
        ]
        message = topology.components[level - 1].message_bytes if level else 0.0
        for sender, part in before:
            for receiver, share in zip(ids, shares.tolist(), strict=True):
                sent[sender, receiver] = message * part * share
        before = list(zip(ids, shares.tolist(), strict=True))
    return SimulatedFlow(tuple(slots), sent)


def _share_out_words(slots: int, topology: Topology) -> NDArray[np.float64]:
    """Return what slots get of words, zipf by frequency, of which a sender sends each once a batch (local merge)."""
    rng = np.random.default_rng(_SEED)
    frequency = 1 / np.arange(1, _WORDS + 1, dtype=np.float64)
    frequency /= frequency.sum()
    words_a_sender = topology.default_rate / topology.components[-2].slots
    sent = 1 - (1 - frequency) ** words_a_sender
    homes = rng.integers(0, slots, _WORDS)
    shares: NDArray[np.float64] = np.bincount(homes, sent, slots).astype(np.float64)
    return shares

"""Where a flow can run and where its slots are at home, as data that policies read and manifests keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from anabranch.model.elasticity import SMALLEST_IMPROVEMENT

SlotId = tuple[int, int]
"""(level, slot): an instance of all stateful operators of a level, one task a batch."""

Homes = Mapping[SlotId, str]
"""Slot → the id of the executor that it is asked to run on. A slot without a home runs wherever Spark puts it."""


@dataclass(frozen=True, slots=True)
class Executor:
    """A process that runs tasks."""

    id: str
    """Spark's own; the ids of two applications may be the same."""
    host: str
    cores: int
    memory_bytes: int = 0
    """What its Python workers may take, in which state and blocks lie; 0 if unknown."""
    port: int = 0
    """On which it serves blocks; 0 if unknown."""
    is_leaving: bool = False
    """It is being decommissioned: it still answers, and must get no slots."""
    is_warm: bool = True
    """A job has run there: its Python workers have started, and what they import is loaded."""

    @property
    def is_usable(self) -> bool:
        """Whether slots may be sent there."""
        return self.is_warm and not self.is_leaving


@dataclass(frozen=True, slots=True)
class ReleaseWait:
    """Executors that are to go, and are not to be let go yet."""

    executors: frozenset[str] = frozenset()
    reason: str = ""
    """Why; or, if it names none, why nobody waits any longer."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What runs a flow's tasks, and what may be asked of it."""

    manager: str
    """``one process``, ``standalone``, ``local-cluster``, ``yarn``, ``kubernetes``, or a master as Spark is told it."""
    application: str = ""
    """Spark's id of the application: ids of executors mean something within it only."""
    pins_slots: bool = True
    """Whether slots can be asked to run on an executor."""
    obstacles: tuple[str, ...] = ()
    """Why executors can be neither added nor released, each with what to change; none if they can."""
    costs: tuple[str, ...] = ()
    """What it costs to release executors for want of settings, each with the setting."""
    shares_host_out: bool = False
    """All executors are on one host, to try things out, and each stands for a host: the memory where copies of state
    are kept is shared out among them."""

    def name_memory(self, executor: Executor) -> str:
        """Return whose memory an executor sees: that of its host, which is gone when the host is."""
        return f"executor-{executor.id}" if self.shares_host_out else executor.host


class Executors(Protocol):
    """The executors of a flow. Asked by the thread that runs the batches, at most once a batch for its list."""

    def describe(self) -> Cluster:
        """Return what this is, and what may be asked of it."""
        ...

    def list(self) -> tuple[Executor, ...]:
        """Return those that are there now, in the order of their ids, also those that are leaving; in 2 ms or less."""
        ...

    def request(self, total: int) -> None:
        """Ask for so many executors in all, but for those that are leaving; they come when they can.

        Fewer than are there ends none of them. Raises ``EngineError`` with the reason if that cannot be asked for.
        """
        ...

    def decommission(self, ids: Sequence[str]) -> None:
        """Let executors end what they do, hand on their blocks and go; none comes in their place."""
        ...

    def kill(self, ids: Sequence[str]) -> None:
        """End executors at once; what they do is done again elsewhere, and none comes in their place."""
        ...


@dataclass(frozen=True, slots=True)
class HomeChoice:
    """Homes, and in a few words how they were chosen."""

    homes: Homes
    reason: str


@dataclass(frozen=True, slots=True)
class SlotLoad:
    """What a slot costs in a batch, and what it costs to move it."""

    cpu_seconds: float
    state_bytes: int = 0
    memory_bytes: int = 0
    """What its executor holds for it."""
    batches: int = 1
    """From how many batches that is known."""


@dataclass(frozen=True, slots=True)
class SlotLoads:
    """What is known of the slots of a flow when they get their homes."""

    slots: Mapping[SlotId, SlotLoad] = field(default_factory=dict)
    """Of those that were measured."""
    uneven: str = ""
    """In words, by how much executors differ in what slots take there, if that is a reason to move some; else empty."""
    smallest_improvement: float = SMALLEST_IMPROVEMENT
    """By how much the busier of two executors must get less to do when a slot moves, as a part of the mean of all."""


class ChoosesHomes(Protocol):
    """A policy: where slots are at home."""

    def __call__(
        self, slots: Sequence[SlotId], executors: Sequence[Executor], loads: SlotLoads, before: Homes
    ) -> HomeChoice:
        """Return a home for each slot, among these executors, all of which are usable.

        ``before`` has the homes so far of slots whose executors are among these. It may name slots that are not given:
        they stay there, and take room. Equal arguments give equal homes.
        """
        ...


@dataclass(frozen=True, slots=True)
class Home:
    """An executor, and its host: that still means something when the executor is gone."""

    executor: str
    host: str


@dataclass(frozen=True, slots=True)
class Pin:
    """Where people want a slot, whatever policies say."""

    executor: str | None
    """None: any of the host."""
    host: str

    def admits(self, executor: Executor) -> bool:
        """Say whether a slot that is pinned so may be there."""
        return self.executor == executor.id if self.executor is not None else self.host == executor.host

    def __str__(self) -> str:
        return f"host {self.host}" if self.executor is None else f"executor {self.executor} on {self.host}"


@dataclass(frozen=True, slots=True)
class KeptHomes:
    """What a manifest says of homes, for the next batch."""

    application: str = ""
    """Within which ids of executors mean something."""
    homes: Mapping[SlotId, Home] = field(default_factory=dict)
    pins: Mapping[SlotId, Pin] = field(default_factory=dict)

    @property
    def executors(self) -> Homes:
        """Slot → the id of its executor."""
        return {slot: home.executor for slot, home in self.homes.items()}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "application": self.application,
            "slots": [[*slot, home.executor, home.host] for slot, home in sorted(self.homes.items())],
            "pins": [[*slot, pin.executor, pin.host] for slot, pin in sorted(self.pins.items())],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KeptHomes:
        """Read what ``to_json`` wrote."""
        return cls(
            application=data["application"],
            homes={(level, slot): Home(executor, host) for level, slot, executor, host in data["slots"]},
            pins={(level, slot): Pin(executor, host) for level, slot, executor, host in data["pins"]},
        )


@dataclass(frozen=True, slots=True)
class SettledHomes:
    """The homes that a batch runs under, and how they came about."""

    kept: KeptHomes = field(default_factory=KeptHomes)
    changes: Mapping[tuple[int, str], Mapping[SlotId, Home]] = field(default_factory=dict)
    """(level, why) → the slots that have another home than before, and which."""
    moved_bytes: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """The same → the state of those that had a home before, as far as it was measured."""


def sort_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """Return ids of executors as people count: 2 before 10."""
    return tuple(sorted(ids, key=lambda id: (len(id), id)))

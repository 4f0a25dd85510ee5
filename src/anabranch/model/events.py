"""What happens to a flow, as its history keeps it: events with types, and their plain JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, get_args

from anabranch.model.measures import BatchMeasures
from anabranch.model.power import EnergyFigure
from anabranch.model.progress import BatchProgress, RunTotals

EventKind = Literal["start", "stop", "batch", "decision", "effect", "failure", "recovery", "span"]
EVENT_KINDS: tuple[str, ...] = get_args(EventKind)

Sender = Literal[
    "balancer", "ctl", "resize", "exchange", "alignment", "first look", "placement", "elasticity", "energy"
]
"""Who decided: a policy, or people through ``ctl``."""

RouteAction = Literal["resize", "strategy", "split", "merge", "move"]
ExecutorAction = Literal["provision", "request", "offload", "hold", "keep", "release"]
DecisionAction = Literal[RouteAction, ExecutorAction, "exchange", "set", "home", "replicate"]

RecoveryAction = Literal["restart", "attempts", "publish", "repair", "set aside", "rollback", "replica"]


@dataclass(frozen=True, slots=True)
class StartEvent:
    """A driver has taken the checkpoint."""

    kind: ClassVar[EventKind] = "start"

    host: str
    process: int
    release: str
    """Of anabranch."""
    batch: int | None = None
    """The last one that was committed before."""
    undone: tuple[int, ...] = ()
    """Numbers of decisions that came to nothing: their batch was not committed by who made them."""


@dataclass(frozen=True, slots=True)
class StopEvent:
    """A driver has given the checkpoint back."""

    kind: ClassVar[EventKind] = "stop"

    batch: int | None = None
    """The last one that was committed."""


@dataclass(frozen=True, slots=True)
class BatchEvent:
    """A batch is over."""

    kind: ClassVar[EventKind] = "batch"

    progress: BatchProgress
    start_offset: Mapping[str, Any] = field(default_factory=dict)
    end_offset: Mapping[str, Any] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """The batch's number."""
        return self.progress.batch


@dataclass(frozen=True, slots=True)
class RouteDelta:
    """How routes differ from those before them."""

    slots_before: int
    slots_after: int
    moved_keys: int = 0
    """Keys that get other slots, whole."""
    split_keys: int = 0
    """Keys that several slots share from now on."""
    merged_keys: int = 0
    """Keys that are whole again."""
    moved_buckets: int = 0
    strategy_before: str = ""
    strategy_after: str = ""


@dataclass(frozen=True, slots=True)
class DecisionEvent:
    """Something changes from the next batch on."""

    kind: ClassVar[EventKind] = "decision"

    batch: int
    """At whose end it changes."""
    operator: str
    """The stateful operator; of ``hold`` and ``release`` by ``alignment``, the source; of others that are about
    executors, ``executors``, and of replicas, ``replicas``."""
    action: DecisionAction
    sender: Sender
    reason: str
    protocol: str | None = None
    """How routes change: *state* moves at once, or open *window*s end where they are."""
    costs: Mapping[str, Any] | None = None
    """What ``PlanCosts`` has, as plain data; of homes, the ``moved_bytes`` alone."""
    imbalance_before: float | None = None
    """The busiest slot's load over its fair share, as it was seen last."""
    imbalance_expected: float | None = None
    """The same, as the plan promises it; None where nothing was planned."""
    change: RouteDelta | None = None
    executors: int | None = None
    """Of those about executors: how many are to have slots."""

    def describe(self) -> str:
        """Return it as a sentence."""
        by = "" if self.protocol is None else f" (by the {self.protocol} protocol)"
        return f"{self.operator}: {self.reason}{by}"


@dataclass(frozen=True, slots=True)
class EffectEvent:
    """What a decision was found to have done."""

    kind: ClassVar[EventKind] = "effect"

    batch: int
    """The first that ran under its routes alone and had rows enough to tell; of executors, the first in which as many
    as were wanted had slots."""
    operator: str
    decision: int
    """Its number."""
    imbalance: float | None = None
    """Of routes."""
    moved_bytes: int = 0
    """State that was handed over."""
    utilisation_before: float | None = None
    """Of executors: the share of the cores of those that had slots that what came took, when it was decided."""
    utilisation: float | None = None
    """The same, of those that have slots now."""


@dataclass(frozen=True, slots=True)
class FailureEvent:
    """Something went wrong."""

    kind: ClassVar[EventKind] = "failure"

    reason: str
    batch: int | None = None
    attempt: int | None = None
    """Which try of the batch's job it was, from 1; None of what is no job."""
    ends_run: bool = False


@dataclass(frozen=True, slots=True)
class SlotRecovery:
    """A slot that lost its home: where it went on, and where its runs of state came from."""

    level: int
    slot: int
    lost_host: str
    """Its home of before."""
    host: str = ""
    """Where it ran; empty if it was not measured."""
    hot_runs: int = 0
    """Runs of which a copy lay there that the host's own slots had left; likewise below."""
    hot_bytes: int = 0
    replica_runs: int = 0
    replica_bytes: int = 0
    store_runs: int = 0
    store_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RecoveryEvent:
    """Something that went wrong is over, or was worked around."""

    kind: ClassVar[EventKind] = "recovery"

    action: RecoveryAction
    reason: str
    batch: int | None = None
    seconds: float | None = None
    """Of *replica*: until results were there again, since the loss was found; likewise below."""
    silent_seconds: float | None = None
    """Between the results before the loss and those after it."""
    batches: float | None = None
    """How many batches more would have had results in that time, at the pace of those before."""
    slots: tuple[SlotRecovery, ...] = ()
    """Those that lost their homes; of very many, the first."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Batches that are long over, summed up."""

    kind: ClassVar[EventKind] = "span"

    first_batch: int
    last_batch: int
    since: float
    """When the first was over, in seconds since 1970."""
    totals: RunTotals
    batch_seconds: float
    longest_seconds: float
    largest_max_over_mean: float | None = None
    host_cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """Host → processor time of what ran there; of many hosts, those with the most."""
    largest_memory_bytes: int = 0
    """The most that the process of a task held."""

    @property
    def batch(self) -> int:
        """The last of them."""
        return self.last_batch


Event = StartEvent | StopEvent | BatchEvent | DecisionEvent | EffectEvent | FailureEvent | RecoveryEvent | SpanEvent

_TYPES: dict[str, type[Any]] = {kind.kind: kind for kind in get_args(Event)}
_VERSIONS: dict[str, int] = dict.fromkeys(EVENT_KINDS, 1) | {"batch": 2}
"""The first version of batches had neither numbers nor company."""
_TOLD_BY_DECISIONS = ("changes", "plan_costs")
_PARTS: dict[str, type[Any]] = {
    **{"change": RouteDelta, "totals": RunTotals, "energy": EnergyFigure},
    "slots": SlotRecovery,
}


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """An event, who told of it, and when."""

    epoch: int
    """The turn of the driver that told of it: each start of a flow has a higher one."""
    number: int
    """Rises over all drivers of a checkpoint."""
    at: float
    """When, in seconds since 1970."""
    event: Event

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data; what has nothing to say is left out."""
        kind = self.event.kind
        envelope = {"kind": kind, "version": _VERSIONS[kind], "epoch": self.epoch, "number": self.number, "at": self.at}
        return envelope | _fields_of(self.event)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HistoryRecord | None:
        """Read what ``to_json`` wrote, also in earlier versions; None for a kind or a version to come."""
        kind, version = data["kind"], data["version"]
        if (kind, version) == ("batch", 1):
            progress = BatchProgress.from_json(data["progress"])
            return cls(data["epoch"], progress.batch, data["ended_at"], BatchEvent(progress))
        if _VERSIONS.get(kind) != version:
            return None
        return cls(data["epoch"], data["number"], data["at"], _read(_TYPES[kind], data))


def with_company(records: Iterable[HistoryRecord]) -> Iterator[HistoryRecord]:
    """Yield records with what other events of a batch say also in its progress, as the running flow told it."""
    company: list[HistoryRecord] = []
    for record in records:
        event = record.event
        if isinstance(event, DecisionEvent | RecoveryEvent):
            company = [one for one in company if _is_of(one, record)]
            company.append(record)
        if isinstance(event, BatchEvent):
            own = [one.event for one in company if _is_of(one, record)]
            company = []
            if own:
                decided = [one for one in own if isinstance(one, DecisionEvent)]
                repairs = tuple(one.reason for one in own if isinstance(one, RecoveryEvent) and one.action == "repair")
                told = replace(event.progress, problems=repairs + event.progress.problems, **tell_decisions(decided))
                yield replace(record, event=replace(event, progress=told))
                continue
        yield record


def tell_decisions(decisions: Iterable[DecisionEvent]) -> dict[str, Any]:
    """Return what the progress of a batch says of the decisions at its end."""
    told = [one for one in decisions if one.protocol is not None or one.action == "exchange"]
    return {
        "changes": tuple(one.describe() for one in told),
        "plan_costs": {one.operator: dict(one.costs) for one in told if one.costs is not None},
    }


def _is_of(one: HistoryRecord, other: HistoryRecord) -> bool:
    return one.epoch == other.epoch and getattr(one.event, "batch", None) == getattr(other.event, "batch", None)


def _fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults, as plain JSON data."""
    found = {}
    for one in fields(value):
        each = getattr(value, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if each == default or (isinstance(value, BatchProgress) and one.name in _TOLD_BY_DECISIONS):
            continue
        found[one.name] = _plain(each)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, BatchMeasures):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return _fields_of(value) if hasattr(value, "__dataclass_fields__") else value


def _read(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """Return an event; fields that this version does not know are left out."""
    given: dict[str, Any] = {}
    for one in fields(kind):
        if one.name not in data:
            continue
        value = data[one.name]
        if one.name == "progress":
            given[one.name] = BatchProgress.from_json(value)
        elif one.name in _PARTS and isinstance(value, list):
            given[one.name] = tuple(_read(_PARTS[one.name], each) for each in value)
        elif one.name in _PARTS and value is not None:
            given[one.name] = _read(_PARTS[one.name], value)
        else:
            given[one.name] = tuple(value) if isinstance(value, list) else value
    return kind(**given)

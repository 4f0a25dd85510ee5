"""What a task says to the driver. It crosses exchanges on its way, so equal reports are equal bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anabranch.control.observe.load_sampling import LoadReport
from anabranch.control.observe.state_sizes import SizesReport
from anabranch.engine.ahead.partition_key_audit import KeysReport
from anabranch.engine.tasks.blocks import Block
from anabranch.errors import EngineError
from anabranch.eventtime.watermarks import SeenTimes
from anabranch.model import RunRef, SplitKeyClocks, StagedFile
from anabranch.model.exchanges import ExchangeTally, ReaderBuffer

REPORT_VERSION = 1
"""Changes with whatever tasks tell each other and the driver as JSON; all of them must speak the same."""

T = TypeVar("T")


def write_report(content: Mapping[str, Any]) -> bytes:
    """Return plain JSON data as bytes, with the version; equal data give equal bytes."""
    return json.dumps({"version": REPORT_VERSION, **content}, sort_keys=True, separators=(",", ":")).encode()


def read_report(payload: bytes | str) -> dict[str, Any]:
    """Read what ``write_report`` wrote; raise ``EngineError`` for another version."""
    content: dict[str, Any] = json.loads(payload)
    found = content.pop("version", None)
    if found != REPORT_VERSION:
        msg = (
            f"a task reports in version {found}, and this process reads version {REPORT_VERSION}; install the same "
            "anabranch for the driver and on every host that runs its tasks"
        )
        raise EngineError(msg)
    return content


def read_times(blocks: Iterable[Block]) -> Iterator[SeenTimes]:
    """Yield what tasks before this one saw of event time."""
    return (SeenTimes.from_json(read_report(block.payload)) for block in blocks)


@dataclass(frozen=True, slots=True)
class SlotReport:
    """What one stateful operator did on one slot."""

    runs: tuple[RunRef, ...] = ()
    """Its state, oldest run first."""
    handed: Mapping[int, RunRef] = field(default_factory=dict)
    """By slot, what was written for it because it has the keys from the next batch on."""
    rows: int = 0
    """Rows that came to it."""
    next_due_us: int | None = None
    """The end of the first window that is open."""
    last_end_us: int | None = None
    """The end of the last window that fired."""
    wake_us: int | None = None
    """When, by the wall clock, it wants to run even if no data comes."""
    latest_us: int | None = None
    """The latest event time of its rows, where slots look at it."""
    group_latest_us: Mapping[int, int] = field(default_factory=dict)
    """The same by group of keys."""
    forgotten_us: Mapping[int, int] = field(default_factory=dict)
    """By group of keys, the highest watermark of those that are forgotten now."""
    fire_us: int | None = None
    """Up to when windows fired, where the driver compares it with its own knowledge."""
    split_keys: SplitKeyClocks | None = None
    """The watermarks of keys that slots will share."""
    load: LoadReport | None = None
    """What it saw of its rows, if it was told to look and had any."""
    sizes: SizesReport | None = None
    """How much state it has, if it was told to measure it."""
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return _without_nothing(
            {
                "runs": [ref.to_json() for ref in self.runs],
                "handed": _by_number(self.handed, RunRef.to_json),
                "rows": self.rows,
                "next_due_us": self.next_due_us,
                "last_end_us": self.last_end_us,
                "wake_us": self.wake_us,
                "latest_us": self.latest_us,
                "group_latest_us": _by_number(self.group_latest_us, int),
                "forgotten_us": _by_number(self.forgotten_us, int),
                "fire_us": self.fire_us,
                "split_keys": None if self.split_keys is None else self.split_keys.to_text(),
                "load": None if self.load is None else self.load.to_json(),
                "sizes": None if self.sizes is None else self.sizes.to_json(),
                "problems": list(self.problems),
            }
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SlotReport:
        """Read what ``to_json`` wrote."""
        return cls(
            runs=tuple(RunRef.from_json(ref) for ref in data.get("runs", ())),
            handed=_read_numbers(data, "handed", RunRef.from_json),
            rows=data["rows"],
            next_due_us=data.get("next_due_us"),
            last_end_us=data.get("last_end_us"),
            wake_us=data.get("wake_us"),
            latest_us=data.get("latest_us"),
            group_latest_us=_read_numbers(data, "group_latest_us", int),
            forgotten_us=_read_numbers(data, "forgotten_us", int),
            fire_us=data.get("fire_us"),
            split_keys=_read(data, "split_keys", SplitKeyClocks.from_text),
            load=_read(data, "load", LoadReport.from_json),
            sizes=_read(data, "sizes", SizesReport.from_json),
            problems=tuple(data.get("problems", ())),
        )


@dataclass(frozen=True, slots=True)
class MeetReport:
    """What became of an operator's keys that slots share, where their parts met, if they have their own time."""

    next_due_us: int | None = None
    last_end_us: int | None = None
    wake_us: int | None = None
    fire_us: int | None = None
    split_keys: SplitKeyClocks | None = None
    """The watermarks of these keys after the batch."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return _without_nothing(
            {
                "next_due_us": self.next_due_us,
                "last_end_us": self.last_end_us,
                "wake_us": self.wake_us,
                "fire_us": self.fire_us,
                "split_keys": None if self.split_keys is None else self.split_keys.to_text(),
            }
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MeetReport:
        """Read what ``to_json`` wrote."""
        return cls(
            data.get("next_due_us"),
            data.get("last_end_us"),
            data.get("wake_us"),
            data.get("fire_us"),
            _read(data, "split_keys", SplitKeyClocks.from_text),
        )


@dataclass(frozen=True, slots=True)
class BufferReport:
    """What one task holds back of the rows of one operator, after a batch."""

    held: ReaderBuffer
    next_due_us: int | None = None
    wake_us: int | None = None
    last_end_us: int | None = None
    """The end of the last window that was merged into a store by a drain."""
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return _without_nothing(
            {
                "held": self.held.to_json(),
                "next_due_us": self.next_due_us,
                "wake_us": self.wake_us,
                "last_end_us": self.last_end_us,
                "problems": list(self.problems),
            }
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BufferReport:
        """Read what ``to_json`` wrote."""
        return cls(
            ReaderBuffer.from_json(data["held"]),
            data.get("next_due_us"),
            data.get("wake_us"),
            data.get("last_end_us"),
            tuple(data.get("problems", ())),
        )


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task did in a batch."""

    level: int
    task: int
    """Its number among those of its level; tasks in which parts of keys meet come after the slots."""
    counters: Mapping[str, int] = field(default_factory=dict)
    seen: SeenTimes = field(default_factory=SeenTimes)
    slot_latest_us: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Stateful node → by slot, the latest event time of the rows that it was sent."""
    group_latest_us: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Stateful node → by group of keys, the latest event time of rows that may wait here."""
    staged: Mapping[int, StagedFile] = field(default_factory=dict)
    """Sink → its results."""
    exchanged_bytes: int = 0
    exchanges: Mapping[int, ExchangeTally] = field(default_factory=dict)
    """Stateful node → what this task's part of its exchange did."""
    bad_files: Mapping[str, str] = field(default_factory=dict)
    """Path → reason of files that cannot be used."""
    buffers: Mapping[int, BufferReport] = field(default_factory=dict)
    """Stateful node → what is held back of its rows."""
    partition_keys: Mapping[int, KeysReport] = field(default_factory=dict)
    """Stateful node whose slots are partitions → the keys that this one has."""
    operators: Mapping[int, SlotReport] = field(default_factory=dict)
    """Stateful node → what it did here, if this is one of its slots."""
    met: Mapping[int, MeetReport] = field(default_factory=dict)
    """Stateful node → what became of its shared keys, if they met here."""
    seconds: float | None = None
    """How long it took. Only a task whose report crosses no exchange may say so: it differs from try to try."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return _without_nothing(
            {
                "level": self.level,
                "task": self.task,
                "counters": dict(self.counters),
                "seen": self.seen.to_json(),
                "slot_latest_us": _by_number(self.slot_latest_us, list),
                "group_latest_us": _by_number(self.group_latest_us, lambda latest: _by_number(latest, int)),
                "staged": _by_number(self.staged, StagedFile.to_json),
                "exchanged_bytes": self.exchanged_bytes,
                "exchanges": _by_number(self.exchanges, ExchangeTally.to_json),
                "bad_files": dict(self.bad_files),
                "buffers": _by_number(self.buffers, BufferReport.to_json),
                "partition_keys": _by_number(self.partition_keys, KeysReport.to_json),
                "operators": _by_number(self.operators, SlotReport.to_json),
                "met": _by_number(self.met, MeetReport.to_json),
                "seconds": self.seconds,
            }
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskReport:
        """Read what ``to_json`` wrote."""
        return cls(
            level=data["level"],
            task=data["task"],
            counters=data.get("counters", {}),
            seen=SeenTimes.from_json(data.get("seen", {})),
            slot_latest_us=_read_numbers(data, "slot_latest_us", tuple),
            group_latest_us={
                int(node): {int(group): us for group, us in latest.items()}
                for node, latest in data.get("group_latest_us", {}).items()
            },
            staged=_read_numbers(data, "staged", StagedFile.from_json),
            exchanged_bytes=data["exchanged_bytes"],
            exchanges=_read_numbers(data, "exchanges", ExchangeTally.from_json),
            bad_files=data.get("bad_files", {}),
            buffers=_read_numbers(data, "buffers", BufferReport.from_json),
            partition_keys=_read_numbers(data, "partition_keys", KeysReport.from_json),
            operators=_read_numbers(data, "operators", SlotReport.from_json),
            met=_read_numbers(data, "met", MeetReport.from_json),
            seconds=data.get("seconds"),
        )

    def encode(self) -> bytes:
        """Return what crosses exchanges."""
        return write_report(self.to_json())

    @classmethod
    def decode(cls, payload: bytes) -> TaskReport:
        """Read what ``encode`` wrote; raise ``EngineError`` for another version."""
        return cls.from_json(read_report(payload))


def earliest_us(times_us: Iterable[int | None]) -> int | None:
    """Return the first of some times, if there is one."""
    return min((us for us in times_us if us is not None), default=None)


def latest_us(times_us: Iterable[int | None]) -> int | None:
    """Return the last of some times, if there is one."""
    return max((us for us in times_us if us is not None), default=None)


def _by_number(values: Mapping[int, T], write: Callable[[T], Any]) -> dict[str, Any]:
    return {str(number): write(value) for number, value in values.items()}


def _read_numbers(data: Mapping[str, Any], name: str, read: Callable[[Any], T]) -> dict[int, T]:
    return {int(number): read(value) for number, value in data.get(name, {}).items()}


def _read(data: Mapping[str, Any], name: str, read: Callable[[Any], T]) -> T | None:
    return read(data[name]) if name in data else None


def _without_nothing(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that say something; most reports are small, and there are many."""
    return {name: value for name, value in data.items() if value not in (None, {}, [])}

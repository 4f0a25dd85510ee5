"""Sources as splits, sinks as staged files: what connectors implement and the engine drives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import polars as pl

Split = dict[str, Any]
"""Plain JSON data that names what to read: a file range, an offset range. ``bytes``, an estimate, packs tasks.

``partition``, a text, says which part of its source it is of: parts that have their own time, such as the folder of one
region or one site's topic partition. A source that is one part leaves it out.
"""


@dataclass(frozen=True, slots=True)
class Admission:
    """How much one source may put into one batch; None means no limit of that kind."""

    max_rows: int | None = None
    max_bytes: int | None = None
    max_files: int | None = None

    def within(self, rows: int | None) -> Admission:
        """Return an admission that also lets in no more than so many rows."""
        limits = [limit for limit in (self.max_rows, rows) if limit is not None]
        return replace(self, max_rows=min(limits, default=None))


@dataclass(frozen=True, slots=True)
class PlannedSplits:
    """What the next batch reads from one source, and where the source stands afterwards.

    Examples:
        >>> from anabranch.model import PlannedSplits
        >>> PlannedSplits(({"file": "a.json"}, {"file": "b.json"}), position={"last": "b.json"}).splits
        ({'file': 'a.json'}, {'file': 'b.json'})
    """

    splits: tuple[Split, ...]
    position: dict[str, Any]
    problems: tuple[str, ...] = ()
    """Things a user should hear of: a file that grew after it was read, one that was skipped."""
    rows: int | None = None
    """About so many rows are in the splits; None if that is not known."""
    left_rows: int | None = None
    """About so many more could have been read; None if that is not known."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A source that is to bring nothing more for now, because it is ahead of others in event time."""

    source: int
    waits_for: tuple[int, ...]
    """The sources that are to catch up."""
    ahead_us: int
    until_us: int
    """By the wall clock: if nothing has changed by then, nobody waits any longer."""

    def to_json(self) -> list[Any]:
        """Return plain JSON data."""
        return [self.source, list(self.waits_for), self.ahead_us, self.until_us]

    @classmethod
    def from_json(cls, data: list[Any]) -> Hold:
        """Read what ``to_json`` wrote."""
        source, waits_for, ahead_us, until_us = data
        return cls(source, tuple(waits_for), ahead_us, until_us)


class SplitPlanner(Protocol):
    """The driver side of a source. It runs in a process of its own and sees no driver memory.

    Examples:
        >>> planner = ab.generate(None, total_rows=1_000, max_rows=600).planner()
        >>> planner.bound()
        >>> first = planner.plan(None, now_seconds=0.0)
        >>> first.splits, planner.more(first.position)
        (({'from': 0, 'to': 600, 'bytes': 14400},), True)
        >>> second = planner.plan(first.position, now_seconds=1.0)
        >>> second.splits, planner.more(second.position)
        (({'from': 600, 'to': 1000, 'bytes': 9600},), False)
    """

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> PlannedSplits:
        """Return the next splits after the position (None at the very start), within the source's admission.

        No splits means that there is nothing new. The position is plain JSON data and need not grow with history
        beyond what the source must remember.
        """
        ...

    def bound(self) -> None:
        """From now on, pretend that no new data arrives (available-now, once, backfill)."""
        ...

    def more(self, position: dict[str, Any] | None) -> bool:
        """Say whether data that ``bound`` promised is still unread after the position."""
        ...


@runtime_checkable
class LimitsRows(Protocol):
    """A planner whose batches can be made smaller: where a run has a target for its latency, it is told how small.

    Examples:
        >>> planner = ab.generate(None, total_rows=1_000, max_rows=600).planner()
        >>> planner.bound()
        >>> planner.limit_rows(250)
        >>> planned = planner.plan(None, now_seconds=0.0)
        >>> planned.rows, planned.left_rows
        (250, 750)
    """

    def limit_rows(self, rows: int | None) -> None:
        """Let ``plan`` give no more than so many rows from now on, beside the source's own limits; None lifts it."""
        ...


@dataclass(frozen=True, slots=True)
class ReadOutcome:
    """Some rows of a split, with the rows that could not be read.

    Examples:
        >>> from anabranch.model import ReadOutcome
        >>> ReadOutcome(frame.head(1), rejected=(("no number", "volts: x"),)).rejected
        (('no number', 'volts: x'),)
    """

    frame: pl.DataFrame
    rejected: tuple[tuple[str, str], ...] = ()
    """(reason, raw text) of every malformed row."""
    bad_file: tuple[str, str] | None = None
    """(path, reason) if the split's file cannot be used: the batch is then run anew without any of it."""


class Source(Protocol):
    """Where rows come from. Instances are pickled to tasks: keep them small and plain.

    Examples:
        >>> from anabranch.model import PlannedSplits, ReadOutcome
        >>> class Numbers:
        ...     label, schema = "numbers", {"n": pl.Int64()}
        ...
        ...     def check(self):
        ...         pass
        ...
        ...     def planner(self):
        ...         return self
        ...
        ...     def plan(self, position, now_seconds):
        ...         return PlannedSplits((), position) if position else PlannedSplits(({"to": 3},), {"read": 3})
        ...
        ...     def bound(self):
        ...         pass
        ...
        ...     def more(self, position):
        ...         return position is None
        ...
        ...     def read(self, split):
        ...         yield ReadOutcome(pl.DataFrame({"n": range(split["to"])}, schema=self.schema))
        >>> collect(flow.read(Numbers()))
        [(0,), (1,), (2,)]
    """

    @property
    def label(self) -> str:
        """What a person reads in ``explain``: ``files readings/ (json)``."""
        ...

    @property
    def schema(self) -> Mapping[str, pl.DataType]: ...

    def check(self) -> None:
        """Raise ``SourceError`` or ``FlowError`` if it cannot work (before the first batch)."""
        ...

    def planner(self) -> SplitPlanner: ...

    def read(self, split: Split) -> Iterator[ReadOutcome]:
        """Read a split, in one or several frames of the declared schema, always the same rows in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A result file that a task wrote; it exists for readers only once the manifest names it.

    Examples:
        >>> from anabranch.model import StagedFile
        >>> StagedFile("results/0/part.txt", rows=2, bytes=14, slot=0).rows
        2
    """

    file: str
    rows: int
    bytes: int
    slot: int
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"file": self.file, "rows": self.rows, "bytes": self.bytes, "slot": self.slot, "extra": self.extra}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StagedFile:
        """Read what ``to_json`` wrote."""
        return cls(data["file"], data["rows"], data["bytes"], data["slot"], data.get("extra", {}))


class Sink(Protocol):
    r"""Where results go: encoded in tasks, published by the driver after the manifest, idempotently by batch.

    Examples:
        >>> class Lines:
        ...     label, suffix = "lines", ".txt"
        ...
        ...     def check(self, schema):
        ...         pass
        ...
        ...     def encode(self, frame):
        ...         return "".join(f"{row}\n" for row in sorted(frame.rows())).encode()
        ...
        ...     def publish(self, batch, staged, context):
        ...         Path(f"batch-{batch}.txt").write_bytes(b"".join(Path(path).read_bytes() for _, path in staged))
        ...
        ...     def retract(self, after_batch):
        ...         raise ab.SinkError(f"remove the files of batches after {after_batch} by hand")
        >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(Lines())
        >>> _ = flow.run("state", trigger="available-now", slots=1)
        >>> Path("batch-0.txt").read_text().splitlines()
        ['(1, 3)', '(2, 1)']
    """

    @property
    def label(self) -> str: ...

    @property
    def suffix(self) -> str:
        """The staged file's ending, such as ``.parquet``."""
        ...

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if it cannot work (before the first batch)."""
        ...

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Turn a task's results into the bytes of a staged file, in a task."""
        ...

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Make a committed batch visible, on the driver. Called again after a crash with the same batch and files.

        ``staged`` pairs each file with the path or URL of its staged bytes (gone if this sink moved it before);
        ``context`` has ``epoch``, ``flow`` and, on Spark, ``spark``.
        """
        ...

    def retract(self, after_batch: int) -> None:
        """Take back what batches later than this one published (a rollback); say so if it cannot."""
        ...

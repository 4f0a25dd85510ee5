"""What becomes of a task that fails: which step it was, on which row, in which of the user's lines, and who is told.

What would fail again is told as a row, all else is left to Spark's retries.
"""

from __future__ import annotations

import re
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl

from anabranch import errors
from anabranch.engine.tasks.blocks import DRIVER, NO_OPERATOR, Block, BlockKind
from anabranch.engine.tasks.task_reports import read_report, write_report
from anabranch.errors import AnabranchError, FlowError
from anabranch.model.frame_texts import describe_row
from anabranch.operators.processors.processor_batch import FAILURES
from anabranch.state.store import StoreUnusable

SEARCH_SECONDS = 5.0
"""So long a failing step is tried on ever fewer rows, to find one that it fails on."""

_MOST_LINES = 6
_LONGEST_REASON = 2000
_LONGEST_TRACE = 20_000
_MARK = "task failure: "
_STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}/"


class StepFailed(Exception):
    """A step failed; its cause says why."""

    def __init__(self, step: str, row: str | None) -> None:
        super().__init__(step)
        self.step = step
        self.row = row


@contextmanager
def failing_step(
    step: str, frame: pl.DataFrame | None = None, again: Callable[[pl.DataFrame], object] | None = None
) -> Iterator[None]:
    """Say of whatever fails in the block that it is this step.

    With the frame it works on, the error shows a row; with ``again``, which must do the same for any part of the frame
    and leave nothing behind, it is one that the step fails on.
    """
    try:
        yield
    except StepFailed:
        raise
    except FAILURES as error:
        if isinstance(error, AnabranchError) and not isinstance(error, FlowError):
            # What is wrong with a place or a file says itself what it is about.
            raise
        if frame is not None and again is not None:
            frame = _find_failing(frame, again)
        raise StepFailed(step, _first_row(frame) if frame is not None else None) from error


def describe_failure(error: BaseException) -> str:
    """Return the reason first, then the step, a row that it failed on, and the user's own lines."""
    step, row = (error.step, error.row) if isinstance(error, StepFailed) else ("", None)
    cause = error.__cause__ if isinstance(error, StepFailed) and error.__cause__ is not None else error
    told = [_reason(cause)]
    if step:
        told.append(f"  in the step: {step}")
    if row is not None:
        told.append(f"  with the row: {row}")
    # An error of ours may explain one of the user's: both may have notes, and only the latter has the user's lines.
    chain = [cause] if cause.__cause__ is None else [cause, cause.__cause__]
    told += [f"  {note}" for link in chain for note in getattr(link, "__notes__", ())]
    if not isinstance(cause, AnabranchError) or isinstance(cause, FlowError):
        told += [f"  {line}" for link in chain if not isinstance(link, AnabranchError) for line in _own_lines(link)]
    return "\n".join(told)


def _first_row(frame: pl.DataFrame) -> str | None:
    shown = frame.select(name for name in frame.columns if not name.startswith("__")).head(1)
    try:
        return next((describe_row(row) for row in shown.iter_rows(named=True)), None)
    except FAILURES:
        # A time of no year that Python knows, say.
        return None


def _find_failing(frame: pl.DataFrame, again: Callable[[pl.DataFrame], object]) -> pl.DataFrame:
    """Return the part of a frame that a step fails on, halved as long as one half of it fails."""
    deadline = time.monotonic() + SEARCH_SECONDS
    while frame.height > 1 and time.monotonic() < deadline:
        middle = frame.height // 2
        for half in (frame[:middle], frame[middle:]):
            try:
                again(half)
            except FAILURES:
                frame = half
                break
        else:
            return frame
    return frame


def _reason(error: BaseException) -> str:
    text = str(error).strip()
    if not isinstance(error, AnabranchError):
        # Polars goes on about the expression, which the step shows.
        text = text.split("\n\nThis error occurred")[0].split("\n\nResolved plan")[0].strip()
    text = f"{text[:_LONGEST_REASON]}…" if len(text) > _LONGEST_REASON else text
    if isinstance(error, AnabranchError | pl.exceptions.PolarsError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _own_lines(error: BaseException) -> list[str]:
    """Return where in the user's code it was: what is neither ours nor of what we run on."""
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if not _is_engine(frame.filename)]
    lines = []
    for frame in frames[-_MOST_LINES:]:
        lines.append(f'File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        if frame.line:
            lines.append(f"  {frame.line}")
    return lines


def _is_engine(file: str) -> bool:
    return file.startswith(_engine_folders()) or (file.startswith(_STANDARD_LIBRARY) and "-packages/" not in file)


@cache
def _engine_folders() -> tuple[str, ...]:
    found = [find_spec(name) for name in ("anabranch", "polars", "pyspark")]
    return (*(f"{Path(spec.origin).parent}/" for spec in found if spec is not None and spec.origin), "<frozen ")


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a task failed, as the driver hears it."""

    kind: str
    """The error that the flow ends with."""
    is_final: bool
    """Whether it is for people to mend: then its job is not run again."""
    message: str
    trace: str
    """The whole traceback, for those who look into the engine."""

    @classmethod
    def of(cls, error: BaseException) -> TaskFailure:
        cause = error.__cause__ if isinstance(error, StepFailed) else error
        kind = type(cause).__name__ if isinstance(cause, AnabranchError) else FlowError.__name__
        is_final = isinstance(cause, AnabranchError) and not isinstance(cause, StoreUnusable)
        trace = "".join(traceback.format_exception(error))[-_LONGEST_TRACE:]
        return cls(kind, is_final, describe_failure(error), trace)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskFailure:
        """Read what ``to_json`` wrote."""
        return cls(**data)

    def encode(self) -> bytes:
        """Return what crosses exchanges."""
        return write_report(self.to_json())

    @classmethod
    def decode(cls, payload: bytes | str) -> TaskFailure:
        """Read what ``encode`` wrote; raise ``EngineError`` for another version."""
        return cls.from_json(read_report(payload))

    def to_error(self) -> AnabranchError:
        """Return the error to raise on the driver."""
        return _KINDS.get(self.kind, FlowError)(self.message)


class TaskTrace(Exception):
    """Where in a task an error arose; stands behind the error that the driver raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class TaskFailed(Exception):
    """A task failed, and might not fail elsewhere or later: Spark runs it again."""


def told_as_rows(blocks: Iterable[Block], level: int, origin: int, receivers: int) -> Iterator[Block]:
    """Yield blocks; where making them fails in a way that every try would, say so to all tasks that come next.

    Spark would try a failed task four times, and the driver its job three times, for nothing. What may come from the
    host (a disk, its memory, the network) is raised: Spark tries such a task again, on another host if it can.
    """
    try:
        yield from blocks
    except FAILURES as error:
        failure = TaskFailure.of(error)
        if _may_pass(error):
            # Spark hands on the text of an error and nothing else.
            raise TaskFailed(f"{_MARK}{failure.encode().decode()}") from error
        payload = failure.encode()
        for receiver in range(receivers):
            yield _failure_block(receiver, (level << 56) + (origin << 28), payload)


def pass_on(received: Iterable[Block], task: int, tasks: int, receivers: int) -> list[Block] | None:
    """Return what one of some tasks that all heard of a failure says to those that come next; None if none was."""
    failure = _first_failure(received)
    if failure is None:
        return None
    return [_failure_block(receiver, failure.seq, failure.payload) for receiver in range(task, receivers, tasks)]


def first_failure(blocks: Iterable[Block]) -> TaskFailure | None:
    """Return the failure that was first on the way of the rows, of a job's blocks."""
    told = _first_failure(blocks)
    return None if told is None else TaskFailure.decode(told.payload)


def find_task_failure(text: str) -> TaskFailure | None:
    """Return the failure of a task that Spark gave up, from what it says of it; None if the task did not say why."""
    found = re.search(rf"{_MARK}(\{{.*\}})\s*$", text, re.MULTILINE)
    if found is None:
        return None
    return TaskFailure.decode(found[1])


def find_our_error(text: str) -> AnabranchError | None:
    """Return the error that a process of the engine raised on purpose, from a text with its traceback."""
    for match in re.finditer(r"^(?:\w+\.)*(\w+): (.+)$", text, re.MULTILINE):
        kind = _KINDS.get(match[1])
        if kind is not None:
            return kind(match[2].strip())
    return None


def find_reason(text: str) -> str:
    """Return the line in a text of Spark's that says most: that of the Python error in it, or the first."""
    lines = text.splitlines()
    traces = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    for number in traces:
        for line in lines[number + 1 :]:
            if line and not line.startswith((" ", "\t")):
                return line.strip()[:500]
    return next((line.strip()[:500] for line in lines if line.strip()), "Spark gives no reason")


def _may_pass(error: BaseException) -> bool:
    """Say whether the host may be why: a disk, memory, the network."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError | MemoryError | StoreUnusable):
            return True
        link = link.__cause__ or link.__context__
    return False


def _all_below(kind: type[AnabranchError]) -> list[type[AnabranchError]]:
    return [kind, *(found for direct in kind.__subclasses__() for found in _all_below(direct))]


_KINDS: dict[str, type[AnabranchError]] = {
    # Errors that a room made for itself may take other arguments: their public base speaks for them.
    kind.__name__: getattr(errors, kind.__name__, kind.__mro__[1])
    for kind in _all_below(AnabranchError)
}


def _failure_block(receiver: int, seq: int, payload: bytes) -> Block:
    return Block(DRIVER, receiver, BlockKind.FAILURE, NO_OPERATOR, 0, seq, False, payload)


def _first_failure(blocks: Iterable[Block]) -> Block | None:
    failures = (block for block in blocks if block.kind is BlockKind.FAILURE)
    return min(failures, key=lambda block: block.seq, default=None)

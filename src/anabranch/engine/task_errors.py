"""What becomes of a task that fails: what would fail again is told as a row, all else is left to Spark's retries."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from anabranch import errors
from anabranch.engine.blocks import DRIVER, NO_OPERATOR, Block, BlockKind
from anabranch.engine.failing_steps import StepFailed, describe_failure
from anabranch.engine.task_reports import read_report, write_report
from anabranch.errors import AnabranchError, FlowError
from anabranch.operators.processors.processor_batch import FAILURES
from anabranch.state.store import StoreUnusable

_LONGEST_TRACE = 20_000
_MARK = "task failure: "


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

"""Which step of a flow failed, on which row, at which lines of the user's own code."""

from __future__ import annotations

import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from anabranch.errors import AnabranchError, FlowError
from anabranch.model.frame_texts import describe_row
from anabranch.operators.processors.processor_batch import FAILURES

SEARCH_SECONDS = 5.0
"""So long a failing step is tried on ever fewer rows, to find one that it fails on."""

_MOST_LINES = 6
_LONGEST_REASON = 2000
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

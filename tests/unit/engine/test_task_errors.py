"""Tasks that fail: what is said, to whom, and what is left to Spark's retries."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.engine.tasks.blocks import DRIVER, Block, BlockKind
from anabranch.engine.tasks.task_errors import (
    TaskFailed,
    TaskFailure,
    describe_failure,
    failing_step,
    find_our_error,
    find_reason,
    find_task_failure,
    first_failure,
    pass_on,
    told_as_rows,
)
from anabranch.errors import FlowError, SourceError, StateDamaged
from anabranch.state.store import StoreFull

NAMES = pl.DataFrame({"id": range(20), "name": [f"x{n}" if n in (7, 12) else str(n) for n in range(20)]})


def failing(error: BaseException) -> Iterator[Block]:
    yield Block(1, 0, BlockKind.ROWS, 0, 0, 0, False, b"done before")
    raise error


def told(error: BaseException, receivers: int = 3) -> list[Block]:
    return list(told_as_rows(failing(error), 0, 5, receivers))


def failure_in(blocks: list[Block]) -> TaskFailure:
    found = first_failure(blocks)
    assert found is not None
    return found


def fail_in_step(function: Callable[[pl.DataFrame], object], frame: pl.DataFrame = NAMES) -> BaseException:
    try:
        with failing_step("map_batches it", frame, function):
            function(frame)
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


def test_what_would_fail_again_is_told_to_every_task_that_comes_next_and_raises_nothing() -> None:
    blocks = told(ValueError("no number"))
    assert [(block.level, block.slot) for block in blocks[1:]] == [(DRIVER, 0), (DRIVER, 1), (DRIVER, 2)]
    assert failure_in(blocks).message.splitlines()[0] == "ValueError: no number"
    assert isinstance(failure_in(blocks).to_error(), FlowError)


@pytest.mark.parametrize("error", [OSError("the cable was pulled"), MemoryError(), TimeoutError("no answer")])
def test_what_may_come_from_the_host_is_left_to_sparks_retries(error: Exception) -> None:
    with pytest.raises(TaskFailed) as caught:
        told(error)
    said = "".join(traceback.format_exception(caught.value))
    found = find_task_failure(f"Job aborted due to stage failure:\n{said}\n SQLSTATE: 38000\n\tat org.apache.spark…")
    assert found is not None
    assert found.message.splitlines()[0] == f"{type(error).__name__}: {error}".removesuffix(": ")
    assert not found.is_final


def test_a_full_disk_is_tried_elsewhere_and_ends_as_our_own_error() -> None:
    full = StoreFull("no space left")
    full.__cause__ = OSError(28, "No space left on device")
    with pytest.raises(TaskFailed) as caught:
        told(full)
    found = find_task_failure("".join(traceback.format_exception(caught.value)))
    assert found is not None and found.is_final
    assert str(found.to_error()) == "no space left"


def test_our_own_errors_keep_their_kind_and_words() -> None:
    for error in (FlowError("sum of volts: too large"), SourceError("a file changed"), StateDamaged("run 7 is cut")):
        found = failure_in(told(error)).to_error()
        assert type(found) is type(error)
        assert str(found) == str(error)


def test_a_panic_of_polars_is_told_like_any_other_failure() -> None:
    assert "PanicException: out of years" in failure_in(told(pl.exceptions.PanicException("out of years"))).message


def test_interrupts_are_no_failures_of_a_task() -> None:
    with pytest.raises(KeyboardInterrupt):
        told(KeyboardInterrupt())


def test_the_reason_comes_first_then_step_and_the_row_that_fails() -> None:
    lines = describe_failure(fail_in_step(lambda frame: frame.select(pl.col("name").cast(pl.Int64)))).splitlines()
    assert lines[0] == (
        'conversion from `str` to `i64` failed in column \'name\' for 2 out of 20 values: ["x7", "x12"]'
    )
    assert lines[1:3] == ["  in the step: map_batches it", "  with the row: {'id': 7, 'name': 'x7'}"]


def test_only_the_lines_of_the_users_own_code_are_shown() -> None:
    def shout(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select(pl.col("name").cast(pl.Int64))

    text = describe_failure(fail_in_step(shout))
    line = shout.__code__.co_firstlineno + 1
    assert f'  File "{Path(__file__)}", line {line}, in shout\n    return frame.select' in text
    assert "polars/" not in text
    assert "failing_steps.py" not in text


@given(bad=st.sets(st.integers(0, 199), min_size=1), rows=st.just(200))
def test_the_row_shown_is_one_that_fails(bad: set[int], rows: int) -> None:
    def refuse(frame: pl.DataFrame) -> None:
        if bad & set(frame["n"].to_list()):
            raise ValueError("refused")

    text = describe_failure(fail_in_step(refuse, pl.DataFrame({"n": range(rows)})))
    assert f"with the row: {{'n': {min(bad)}}}" in text


def test_a_step_that_fails_only_on_many_rows_shows_the_first_of_them() -> None:
    def refuse(frame: pl.DataFrame) -> None:
        if frame.height > 10:
            raise ValueError("too many")

    assert "with the row: {'id': 0, 'name': '0'}" in describe_failure(fail_in_step(refuse))


def test_a_row_with_a_time_that_python_has_not_is_left_out() -> None:
    odd = pl.DataFrame({"ts": [10**18]}).with_columns(pl.col("ts").cast(pl.Datetime("us")))
    with pytest.raises((ValueError, OverflowError)):
        odd.rows()
    text = describe_failure(fail_in_step(lambda frame: 1 / 0, odd))
    assert text.startswith("ZeroDivisionError")
    assert "with the row" not in text


def test_columns_of_the_engine_are_not_shown() -> None:
    frame = pl.DataFrame({"key": [1], "__hash": [7], "ts": [datetime(2026, 1, 1)]})
    shown = describe_failure(fail_in_step(lambda frame: 1 / 0, frame)).splitlines()[2]
    assert shown == "  with the row: {'key': 1, 'ts': datetime.datetime(2026, 1, 1, 0, 0)}"


def test_who_hears_of_a_failure_passes_it_on_once_to_each_that_comes_next() -> None:
    received = told(ValueError("no number"), receivers=4)
    for slots in ([0], [0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6]):
        sent = [pass_on(received, task, 4, len(slots)) or [] for task in range(4)]
        assert sorted(block.slot for blocks in sent for block in blocks) == slots
    assert pass_on([block for block in received if block.kind is not BlockKind.FAILURE], 0, 4, 1) is None


def test_the_failure_that_was_first_on_the_way_is_the_one_that_counts() -> None:
    later = [block for block in told_as_rows(failing(ValueError("later")), 1, 0, 1) if block.kind is BlockKind.FAILURE]
    assert failure_in(later + told(ValueError("first"))).message.startswith("ValueError: first\n")


def test_a_failure_with_newlines_and_quotes_survives_sparks_text() -> None:
    failure = TaskFailure("FlowError", False, 'it said "no"\n  and\ttabs', "trace")
    said = f"anabranch.engine.tasks.task_errors.TaskFailed: task failure: {failure.encode().decode()}"
    text = f"org.apache.spark.SparkException: …\n{said}\n\n at …"
    assert find_task_failure(text) == failure


def test_of_sparks_own_words_the_python_error_is_the_reason() -> None:
    text = (
        "[STREAM_FAILED] Query failed: Traceback (most recent call last):\n"
        'Traceback (most recent call last):\n  File "worker.py", line 3, in main\n    process()\n'
        "ValueError: out of range\n\n\tat org.apache.spark.X\n"
    )
    assert find_reason(text) == "ValueError: out of range"
    assert find_reason("Python worker exited unexpectedly (crashed)\n\tat x") == (
        "Python worker exited unexpectedly (crashed)"
    )
    assert find_reason("") == "Spark gives no reason"


def test_an_error_of_ours_is_found_in_a_traceback_of_another_process() -> None:
    text = (
        "Traceback (most recent call last):\n  x\nanabranch.errors.SourceError: readings/ is gone; bring it back\n\n at"
    )
    found = find_our_error(text)
    assert isinstance(found, SourceError)
    assert str(found) == "readings/ is gone; bring it back"
    assert find_our_error("ValueError: x") is None

"""What readers hold back, as the driver sees it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.tasks.reader_buffers import (
    HeldRows,
    check_buffers,
    deal_buffers,
    load_buffers,
    merge_buffers,
    store_buffers,
)
from anabranch.engine.tasks.task_reports import BufferReport, TaskReport
from anabranch.errors import FlowError
from anabranch.model import RunRef
from anabranch.model.exchanges import ReaderBuffer
from anabranch.query.plan import make_plan
from anabranch.query.streams import Stream
from unit.engine.programs import SCHEMA, Build, make_program
from unit.state.builders import manifest

RUN = RunRef("state/1/buffers/3/x.arrow", 5, 100, "crc32:00000001", 7)
HELD = ReaderBuffer(3, (RUN,), rows=50, since_us=1_000)


def entry(buffer: ReaderBuffer, **more: Any) -> TaskReport:
    return TaskReport(0, buffer.reader, buffers={1: BufferReport(buffer, **more)})


def windowed(stream: Stream, **options: Any) -> Stream:
    return stream.key_by("key", **options).window("10s").agg(total=ab.sum("value"))


def test_reports_of_all_readers_come_to_one() -> None:
    told = [
        entry(HELD, next_due_us=20, wake_us=9),
        entry(ReaderBuffer(0, (RUN,)), next_due_us=10, problems=("damaged",)),
        entry(ReaderBuffer(1, ())),
        TaskReport(0, 2),
    ]
    report = merge_buffers(told, {})[1]
    assert [buffer.reader for buffer in report.held] == [0, 3]
    assert (report.next_due_us, report.wake_us, report.problems) == (10, 9, ("damaged",))


def test_a_batch_is_not_committed_without_a_reader_that_held_something() -> None:
    with pytest.raises(RuntimeError, match=r"tasks \[3\] did not report what they hold"):
        merge_buffers([entry(ReaderBuffer(0, ()))], {1: {3: HELD}})


def test_what_is_held_is_shared_out_among_the_readers_of_the_next_batch() -> None:
    other = ReaderBuffer(1, (replace(RUN, file="y"),), rows=7, since_us=500)
    held = {1: {1: other, 3: HELD, 4: HELD}, 2: {0: other}}
    assert deal_buffers({}, lambda _: 2) == {}
    assert deal_buffers(held, lambda _: 5) == {
        1: {1: other, 3: HELD, 4: replace(HELD, reader=4)},
        2: {0: replace(other, reader=0)},
    }
    dealt = deal_buffers(held, lambda _: 2)
    assert dealt[1][0] == replace(HELD, reader=0)
    assert dealt[1][1] == ReaderBuffer(1, (*other.runs, RUN), rows=57, since_us=500)
    assert deal_buffers(held, lambda _: 1)[1][0].rows == 107


def test_what_is_held_is_found_again_by_the_name_of_its_operator(tmp_path: Path) -> None:
    plan = make_program(lambda s: windowed(s, merge=ab.LocalMerge(at="window")), tmp_path).plan
    head = plan.stateful[0].id
    stored = store_buffers(plan, {head: HeldRows(held=(HELD,))})
    assert stored == {"agg": (HELD,)}
    assert store_buffers(plan, {head: HeldRows()}) == {}
    assert load_buffers(plan, None) == {}
    assert load_buffers(plan, manifest(1, reader_buffers=stored)) == {head: {3: HELD}}


@pytest.mark.parametrize(
    ("build", "local_merge", "parallelism", "reason"),
    [
        (
            lambda s: windowed(s, merge=ab.LocalMerge(at="window")),
            False,
            "operator-set",
            "local_merge=False merges none",
        ),
        (
            lambda s: windowed(s.filter("value > 0").filter("value < 9"), exchange="global").write(
                ab.global_store("x.sqlite", table="t")
            ),
            True,
            "operator",
            "use 'operator-set'",
        ),
    ],
)
def test_holding_back_where_it_cannot_be_is_refused_before_the_first_batch(
    build: Build, local_merge: bool, parallelism: Any, reason: str
) -> None:
    flow = ab.Flow("test")
    build(flow.read(ab.memory(pl.DataFrame(schema=SCHEMA))).watermark("ts", delay="1s"))
    with pytest.raises(FlowError, match=reason):
        check_buffers(make_plan(flow, 2, parallelism), local_merge)

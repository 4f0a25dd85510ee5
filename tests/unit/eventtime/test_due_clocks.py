"""When windows in their keys' own time need a batch that no data calls for."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.eventtime.flow.flow_time import store_time
from anabranch.eventtime.flow.operator_times import is_due
from anabranch.eventtime.watermarks import FlowTime
from anabranch.query.plan import Plan, make_plan
from anabranch.state import EngineState, Manifest

SECOND_US = 1_000_000


def plan_of(**clock: Any) -> Plan:
    flow = ab.Flow("clocks")
    rows = flow.read(ab.memory(pl.DataFrame(schema={"key": pl.Int64, "ts": pl.Datetime("us")})))
    rows.watermark("ts", **clock).key_by("key").window("10s").agg(rows=ab.count()).write(ab.to_memory())
    return make_plan(flow, 2)


def manifest_of(plan: Plan, next_due_s: int | None, median_s: int | None = None, **clocks: list[int]) -> Manifest:
    (watermark,) = plan.watermarks[plan.stateful[0].id]
    time = FlowTime(medians={watermark: median_s * SECOND_US} if median_s is not None else {})
    next_due_us = None if next_due_s is None else next_due_s * SECOND_US
    return Manifest(
        flow="clocks",
        flow_structure={},
        batch=0,
        epoch=1,
        query_id="",
        start_offset=None,
        end_offset=None,
        levels=(),
        watermarks=store_time(plan, time),
        engine=EngineState(slots=2, next_due_us={"agg": next_due_us}, clocks={"agg": clocks}),
    )


@pytest.mark.parametrize(("median_s", "due"), [(60, False), (69, False), (70, True), (90, True)])
def test_a_floor_that_rose_over_an_open_window_needs_a_batch(median_s: int, due: bool) -> None:
    plan = plan_of(per="key", behind="40s")
    assert is_due(plan, manifest_of(plan, 30, median_s)) is due
    assert not is_due(plan, manifest_of(plan, None, median_s))


def test_a_group_whose_watermark_rose_needs_a_batch_while_windows_are_open() -> None:
    plan = plan_of(per="group", groups=2)
    risen = {"closed_us": [5, 9], "fired_us": [5, 5]}
    assert is_due(plan, manifest_of(plan, 30, **risen))
    assert not is_due(plan, manifest_of(plan, None, **risen))
    assert not is_due(plan, manifest_of(plan, 30, closed_us=[5, 9], fired_us=[5, 9]))

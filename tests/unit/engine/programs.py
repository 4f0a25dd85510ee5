"""Flows as programs, without a session: what the driver and the tasks are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.query.plan import make_plan
from anabranch.query.streams import Stream

SCHEMA = {"key": pl.Int64(), "name": pl.String(), "ts": pl.Datetime("us"), "value": pl.Int64()}

Build = Callable[[Stream], Any]


def make_program(build: Build, checkpoint: Path | str, slots: int = 2) -> FlowProgram:
    """Return the program of a flow whose stateful operators ``build`` writes."""
    flow = ab.Flow("test")
    source = ab.memory(pl.DataFrame(schema=SCHEMA))
    build(flow.read(source).watermark("ts", delay="1s"))
    return FlowProgram(
        plan=make_plan(flow, slots, "operator-set"),
        sources=dict(enumerate(flow.sources)),
        sinks={},
        checkpoint=str(checkpoint),
        local_merge=True,
    )

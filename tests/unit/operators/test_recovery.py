"""State that is read with what the checkpoint says of an operator reads as with the operator itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pytest

from anabranch.model import (
    BEGINNING_OF_TIME,
    HASH,
    TIME,
    Aggregate,
    AggregateSpec,
    Clock,
    Column,
    CountWindowSpec,
    DistinctSpec,
    OperatorSpec,
    OperatorTime,
    OrderSpec,
    ProcessSpec,
    TopKSpec,
    WindowSpec,
)
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates import sketches
from anabranch.operators.aggregates.registry import registry
from anabranch.operators.kernels import make_kernel
from anabranch.operators.recovery import recover_kernel
from unit.operators.memory_state import MemoryState
from unit.operators.processors_under_test import OUTPUT, Scripted
from unit.operators.streams import SCHEMA, SECOND_US, Row, to_frame

EVERY_AGGREGATE: dict[str, Aggregate] = {
    "rows": ab.count(),
    "present": ab.count("whole"),
    "total": ab.sum("whole"),
    "lowest": ab.min("real"),
    "highest": ab.max("real"),
    "average": ab.mean("whole"),
    "spread": ab.variance("real", ddof=0),
    "deviation": ab.stddev("real"),
    "opening": ab.first("real"),
    "closing": ab.last("whole"),
    "different": sketches.approx_distinct("whole", lg_k=10),
    "middle": sketches.median("real"),
    "tail": sketches.quantile("real", 0.99),
    "both": sketches.quantiles("real", 0.25, 0.75),
}
TUMBLING = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US, 2 * SECOND_US)
SLIDING = WindowSpec("sliding", 10 * SECOND_US, 5 * SECOND_US)
SESSION = WindowSpec("session", 5 * SECOND_US, 5 * SECOND_US)

BY_KEY = Clock("key", 60 * SECOND_US, idle_us=SECOND_US)
UPDATED: dict[str, Any] = {"late": "update", "lateness_us": SECOND_US}
EARLY = replace(SLIDING, early_us=SECOND_US)

SPECS: dict[str, OperatorSpec] = {
    "tumbling": AggregateSpec(("key",), EVERY_AGGREGATE, TUMBLING, "ts"),
    "sliding": AggregateSpec(("key", "name"), EVERY_AGGREGATE, SLIDING, "ts"),
    "session": AggregateSpec(("key",), EVERY_AGGREGATE, SESSION, "ts"),
    "running": AggregateSpec(("key",), EVERY_AGGREGATE),
    "running with ttl": AggregateSpec(("key",), EVERY_AGGREGATE, None, "ts", 60 * SECOND_US),
    "top k": TopKSpec(("key",), "real", 2, True, ("whole", "name")),
    "smallest in windows": TopKSpec(("key",), "real", 1, False, (), TUMBLING, "ts"),
    "distinct": DistinctSpec(("key",), "ts", 60 * SECOND_US),
    "windows by key": AggregateSpec(("key",), EVERY_AGGREGATE, SLIDING, "ts", clock=BY_KEY),
    "windows updated": AggregateSpec(("key",), EVERY_AGGREGATE, replace(TUMBLING, **UPDATED), "ts"),
    "early windows by group": AggregateSpec(("key",), EVERY_AGGREGATE, EARLY, "ts", clock=Clock("group", groups=4)),
    "best of windows by key": TopKSpec(("key",), "real", 1, False, (), TUMBLING, "ts", clock=BY_KEY),
    "sessions by key": AggregateSpec(("key",), EVERY_AGGREGATE, SESSION, "ts", clock=BY_KEY),
    "early sessions": AggregateSpec(("key",), EVERY_AGGREGATE, replace(SESSION, early_us=SECOND_US), "ts"),
    "sessions updated": AggregateSpec(("key",), EVERY_AGGREGATE, replace(SESSION, **UPDATED), "ts"),
    "sessions, late rows aside": AggregateSpec(("key",), EVERY_AGGREGATE, replace(SESSION, late="side"), "ts"),
    "count windows": AggregateSpec(("key",), EVERY_AGGREGATE, count_window=CountWindowSpec(4, 2)),
    "count windows of keys that may be forgotten": AggregateSpec(
        ("key",), EVERY_AGGREGATE, count_window=CountWindowSpec(4, 2, SECOND_US)
    ),
    "best of count windows": TopKSpec(("key",), "real", 2, count_window=CountWindowSpec(5, 5)),
}


def fill(spec: OperatorSpec) -> MemoryState:
    """Return the state after two batches: every key has rows in two runs."""
    kernel, state = make_kernel(spec), MemoryState()
    for batch in range(2):
        rows = [Row(number % 3, 3 * batch + number, number, number / 4) for number in range(7)]
        time = OperatorTime(batch, BEGINNING_OF_TIME, BEGINNING_OF_TIME, 0, BEGINNING_OF_TIME)
        prepared = kernel.prepare(to_frame(list(enumerate(rows))), time).frame
        sent = kernel.combine(prepared) if kernel.mergeable else prepared
        sent = sent.with_columns(pl.col("key").cast(pl.UInt64).alias(HASH))
        kernel.advance([sent], kernel.mergeable, state, time)
    return state


def describe(spec: OperatorSpec) -> dict[str, Any]:
    """Return the structure as a checkpoint gives it back."""
    structure = make_kernel(spec).structure({**SCHEMA, TIME: pl.Datetime("us")})
    found: dict[str, Any] = json.loads(json.dumps(structure, sort_keys=True))
    return found


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_recovered_kernel_reads_the_same_values(spec: OperatorSpec) -> None:
    runs = fill(spec).live()
    kernel, recovered = make_kernel(spec), recover_kernel(describe(spec))
    assert recovered is not None
    expected = kernel.values(kernel.stored(runs, BEGINNING_OF_TIME))
    got = recovered.values(recovered.stored(runs, BEGINNING_OF_TIME))
    # A checkpoint keeps no order of aggregates.
    assert sorted(got.columns) == sorted(expected.columns)
    order = [name for name in ("key", "window_start", "window", "rank") if name in expected.columns]
    assert got.select(expected.columns).sort(order).equals(expected.sort(order))
    assert expected.height > 0


def test_fields_of_a_processor_are_read_as_they_are_stored() -> None:
    spec = ProcessSpec(("key",), Scripted(), SCHEMA, OUTPUT, "ts", BY_KEY, ordered=False)
    older, newer = fill(spec).live()
    kernel, recovered = make_kernel(spec), recover_kernel(describe(spec))
    assert recovered is not None
    expected = kernel.values(kernel.stored([older, newer], BEGINNING_OF_TIME)).sort("key")
    got = recovered.values(recovered.stored([older.drop("seen"), newer], BEGINNING_OF_TIME)).sort("key")
    assert sorted(got.columns) == sorted(expected.columns)
    # Which value a null stands for, only the processor knows.
    assert got["rows"].fill_null(0).equals(expected["rows"])
    for name in ("key", "last", "event_timers", "processing_timers"):
        assert got[name].equals(expected[name])


def test_rows_that_wait_for_their_order_are_read_as_they_came() -> None:
    spec = OrderSpec(("key",), "ts", BY_KEY)
    runs = fill(spec).live()
    kernel, recovered = make_kernel(spec), recover_kernel(describe(spec))
    assert recovered is not None
    expected = kernel.values(kernel.stored(runs, BEGINNING_OF_TIME))
    assert recovered.values(recovered.unite([recovered.stored(runs, BEGINNING_OF_TIME)])).equals(expected)
    assert expected.height == 14


def test_every_aggregate_that_flow_files_can_name_can_be_recovered() -> None:
    kinds = {aggregate.kind.split("(")[0] for aggregate in EVERY_AGGREGATE.values()}
    assert kinds == set(registry) - {"median"}


@dataclass(frozen=True)
class OwnAggregate:
    """The sum of squares under a name that may be one of ours."""

    kind: str

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {"x": pl.col("real")}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"squares": (col("x") ** 2).sum()}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"squares": col("squares").sum()}

    def finish(self, col: Column) -> pl.Expr:
        return col("squares")


@pytest.mark.parametrize("kind", ["squares(2)", "sum", "quantile(0.5)", "quantile(low)", "not a name"])
def test_aggregates_of_the_user_cannot_be_recovered(kind: str) -> None:
    spec = AggregateSpec(("key",), {"rows": ab.count(), "own": OwnAggregate(kind)}, TUMBLING, "ts")
    assert recover_kernel(describe(spec)) is None


def test_operator_of_an_unknown_kind_cannot_be_recovered() -> None:
    assert recover_kernel({"keys": {"key": "Int64"}}) is None
    assert recover_kernel({"kind": "guess", "keys": {"key": "Int64"}}) is None

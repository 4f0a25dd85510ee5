"""What single aggregates promise, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from anabranch.errors import FlowError
from anabranch.model import HASH, ORDER, Aggregate, AggregateSpec, Column, OperatorTime, WindowSpec
from anabranch.operators import aggregates as ab
from anabranch.operators import sketches as sk
from anabranch.operators.kernels import make_kernel
from anabranch.operators.registry import make_aggregate, registry
from unit.operators.memory_state import MemoryState


def aggregate_values(values: pl.Series, cuts: int = 2, **aggregates: Aggregate) -> dict[str, Any]:
    """Aggregate one key's values, cut into parts that meet after the exchange."""
    kernel = make_kernel(AggregateSpec(("key",), aggregates))
    frame = pl.DataFrame({"key": [1] * len(values), "x": values}).with_row_index(ORDER)
    frame = frame.with_columns(pl.col(ORDER).cast(pl.Int64))
    size = -(-len(values) // cuts)
    parts = [frame.slice(start, size) for start in range(0, len(values), size)]
    time = OperatorTime(batch=0)
    received = [
        kernel.combine(kernel.prepare(part, time).frame).with_columns(pl.lit(7, dtype=pl.UInt64).alias(HASH))
        for part in parts
    ]
    (row,) = kernel.advance(received, True, MemoryState(), time).frame.drop("key").to_dicts()
    return row


def test_narrow_whole_numbers_are_added_in_64_bits() -> None:
    assert aggregate_values(pl.Series([2**31 - 1] * 4, dtype=pl.Int32), total=ab.sum("x")) == {"total": 4 * (2**31 - 1)}
    assert aggregate_values(pl.Series([255] * 4, dtype=pl.UInt8), total=ab.sum("x")) == {"total": 1020}


def test_whole_numbers_beyond_float_precision_are_added_exactly() -> None:
    values = pl.Series([2**53, 1, 1, 1], dtype=pl.Int64)
    assert aggregate_values(values, total=ab.sum("x")) == {"total": 2**53 + 3}


def test_decimals_are_added_exactly() -> None:
    values = pl.Series([Decimal("0.10"), Decimal("0.20"), Decimal("99999999999999.30")], dtype=pl.Decimal(20, 2))
    assert aggregate_values(values, total=ab.sum("x")) == {"total": Decimal("99999999999999.60")}


def test_flags_are_counted_when_added() -> None:
    assert aggregate_values(pl.Series([True, False, True]), total=ab.sum("x")) == {"total": 2}


def test_aggregates_of_no_values_are_null_and_counts_are_zero() -> None:
    row = aggregate_values(
        pl.Series([None, None], dtype=pl.Float64),
        rows=ab.count(),
        present=ab.count("x"),
        total=ab.sum("x"),
        lowest=ab.min("x"),
        average=ab.mean("x"),
        spread=ab.variance("x"),
        opening=ab.first("x"),
        different=sk.approx_distinct("x"),
        middle=sk.median("x"),
        ends=sk.quantiles("x", 0.0, 1.0),
    )
    assert row.pop("rows") == 2
    assert row.pop("present") == 0
    assert row.pop("different") == 0
    assert set(row.values()) == {None}


def test_variance_of_values_far_from_zero_keeps_its_digits() -> None:
    values = pl.Series([1e9 + x for x in (4.0, 7.0, 13.0, 16.0)])
    row = aggregate_values(values, cuts=4, spread=ab.variance("x"), deviation=ab.stddev("x", ddof=0))
    assert row["spread"] == pytest.approx(30.0, rel=1e-9)
    assert row["deviation"] == pytest.approx(22.5**0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("values", "ddof"), [([], 0), ([], 1), ([4.0], 0), ([4.0], 1), ([4.0, 6.0], 2), ([4.0, 6.0], 1)]
)
def test_a_variance_of_no_more_values_than_ddof_is_null_as_in_polars(values: list[float], ddof: int) -> None:
    column = pl.Series("x", [*values, None], dtype=pl.Float64)
    row = aggregate_values(column, cuts=2, spread=ab.variance("x", ddof), deviation=ab.stddev("x", ddof))
    assert row["spread"] == column.var(ddof=ddof)
    assert row["deviation"] == column.std(ddof=ddof)
    assert (row["spread"] is None) == (len(values) <= ddof)


def test_min_and_max_keep_the_type_of_text_and_dates() -> None:
    row = aggregate_values(pl.Series(["b", "a", None]), lowest=ab.min("x"), highest=ab.max("x"))
    assert row == {"lowest": "a", "highest": "b"}
    days = pl.Series([date(2024, 2, 29), date(2023, 1, 1)])
    assert aggregate_values(days, lowest=ab.min("x")) == {"lowest": date(2023, 1, 1)}


def test_expressions_are_arguments_like_columns() -> None:
    row = aggregate_values(pl.Series([1, 2, 3]), squares=ab.sum(pl.col("x") ** 2), odd=ab.sum(pl.col("x") % 2 == 1))
    assert row == {"squares": 14, "odd": 2}


def test_aggregates_survive_pickling() -> None:
    aggregates = {"total": ab.sum(pl.col("x") + 1), "different": sk.approx_distinct("x"), "middle": sk.median("x")}
    copies: dict[str, Aggregate] = pickle.loads(pickle.dumps(aggregates))
    assert aggregate_values(pl.Series([1, 2, 2]), **copies) == {"total": 8, "different": 2, "middle": 2.0}


@dataclass(frozen=True)
class SumOfSquares:
    """A user's own aggregate."""

    column: str
    kind: str = "sum_of_squares"

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {"x": pl.col(self.column).cast(pl.Float64)}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"squares": (col("x") ** 2).sum()}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"squares": col("squares").sum()}

    def finish(self, col: Column) -> pl.Expr:
        return col("squares")


def test_users_own_aggregate_works_beside_the_others() -> None:
    row = aggregate_values(pl.Series([1, 2, 3]), squares=SumOfSquares("x"), rows=ab.count())
    assert row == {"squares": 14.0, "rows": 3}


@dataclass(frozen=True)
class ForgetfulSum(SumOfSquares):
    kind: str = "forgetful"

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"sum": col("squares").sum()}


@dataclass(frozen=True)
class NarrowingSum(SumOfSquares):
    kind: str = "narrowing"

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"squares": col("squares").sum().cast(pl.Float32)}


def test_merge_that_makes_other_columns_than_partial_is_refused() -> None:
    with pytest.raises(FlowError, match="partial makes squares, but merge makes sum"):
        make_kernel(AggregateSpec(("key",), {"s": ForgetfulSum("x")}))


def test_merge_that_makes_other_types_than_partial_is_refused() -> None:
    kernel = make_kernel(AggregateSpec(("key",), {"s": NarrowingSum("x")}))
    with pytest.raises(FlowError, match=r"Float64.*Float32"):
        kernel.output_schema({"key": pl.Int64(), "x": pl.Int64()})


SCHEMA: dict[str, pl.DataType] = {
    "key": pl.Int64(),
    "ts": pl.Datetime("us"),
    "volts": pl.Float64(),
    "name": pl.String(),
    "tags": pl.List(pl.String),
}
WINDOW_OF_TEN = WindowSpec("tumbling", 10, 10)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (AggregateSpec(("sensor",), {"n": ab.count()}), "'sensor' is no column; there are key, ts, volts, name"),
        (AggregateSpec(("key",), {"n": ab.sum("vlots")}), "no column 'vlots'; there are key, ts, volts, name"),
        (AggregateSpec(("key",), {"n": ab.sum("name")}), "n=sum needs numbers, but name is String"),
        (AggregateSpec(("key",), {"n": sk.median("name")}), "needs numbers, but name is String"),
        (AggregateSpec(("key",), {"n": ab.max("tags")}), "needs values with an order, but tags is List"),
        (AggregateSpec(("key",), {"n": sk.approx_distinct("tags")}), "needs plain values, but tags is List"),
        (AggregateSpec(("key",), {"n": ab.min(pl.col("name") - 1)}), "n=min: "),
        (AggregateSpec(("key",), {"key": ab.count()}), "'key' has the name of another result column"),
        (AggregateSpec(("key",), {"window_end": ab.count()}, WINDOW_OF_TEN, "ts"), "'window_end' has the name of"),
        (AggregateSpec(("key",), {"n": ab.count()}, WINDOW_OF_TEN, "name"), "'name' has type String; cast it"),
        (AggregateSpec(("key",), {"n": ab.count()}, WINDOW_OF_TEN, "time"), "'time' is missing; there are key"),
    ],
)
def test_flow_that_cannot_work_is_refused_before_the_first_row(spec: AggregateSpec, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        make_kernel(spec).output_schema(SCHEMA)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (AggregateSpec((), {"n": ab.count()}), "needs keys"),
        (AggregateSpec(("key",), {}), "at least one aggregate"),
        (AggregateSpec(("key",), {"n": ab.count()}, WINDOW_OF_TEN), "windows need event time"),
        (AggregateSpec(("key",), {"n": ab.count()}, WINDOW_OF_TEN, "ts", 5), "windows end by themselves"),
        (AggregateSpec(("key",), {"n": ab.count()}, WindowSpec("sliding", 5, 10), "ts"), "must not leave gaps"),
        (AggregateSpec(("key",), {"n": ab.count()}, None, "ts", 0), "time-to-live is 0"),
    ],
)
def test_description_that_contradicts_itself_is_refused(spec: AggregateSpec, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        make_kernel(spec)


def test_unknown_aggregate_names_the_known_ones_and_the_likely_one() -> None:
    with pytest.raises(FlowError, match=r"unknown aggregate 'avg'; there are approx_distinct, count.*'mean'"):
        make_aggregate("avg", "x")
    with pytest.raises(FlowError, match="did you mean 'variance'"):
        make_aggregate("varience", "x")


def test_every_registered_aggregate_is_made_by_name() -> None:
    for name in registry:
        arguments = {"quantile": ("x", 0.5), "quantiles": ("x", 0.5, 0.9)}.get(name, ("x",))
        assert make_aggregate(name, *arguments).kind.startswith(name.replace("median", "quantile"))


def test_wrong_number_of_arguments_is_a_flow_error() -> None:
    with pytest.raises(FlowError, match="aggregate 'sum'"):
        make_aggregate("sum")


def test_structure_names_what_a_checkpoint_depends_on() -> None:
    kernel = make_kernel(AggregateSpec(("key",), {"low": ab.min("volts")}, WindowSpec("tumbling", 10, 10), "ts"))
    assert kernel.structure(SCHEMA) == {
        "kind": "windowed aggregate",
        "window": {"kind": "tumbling", "size_us": 10, "slide_us": 10, "offset_us": 0},
        "keys": {"key": "Int64"},
        "aggregates": {"low": {"kind": "min", "columns": ["volts"], "partials": {"value": "Float64"}}},
    }


def test_times_in_a_zone_are_windowed_as_instants() -> None:
    kernel = make_kernel(
        AggregateSpec(("key",), {"n": ab.count()}, WindowSpec("tumbling", 10_000_000, 10_000_000), "ts")
    )
    berlin = pl.Series([datetime(2024, 6, 1, 12, 0, 3)]).dt.replace_time_zone("Europe/Berlin")
    frame = pl.DataFrame({"key": [1], "ts": berlin, ORDER: [0]})
    prepared = kernel.prepare(frame, OperatorTime(0)).frame.with_columns(pl.lit(0, dtype=pl.UInt64).alias(HASH))
    fired = kernel.advance([prepared], False, MemoryState(), OperatorTime(0, fire_us=2**62))
    assert fired.frame["window_start"].to_list() == [datetime(2024, 6, 1, 10, 0, 0)]


LARGEST = 2**63 - 1


@pytest.mark.parametrize("cuts", [1, 2, 4])
def test_sum_beyond_int64_is_refused_by_name_with_a_way_out(cuts: int) -> None:
    values = pl.Series([LARGEST, 1, 1, 1])
    with pytest.raises(
        FlowError, match=rf"total=sum: for key=1 .* {LARGEST + 3 if cuts == 1 else '.*'}.*Decimal\(38\)"
    ):
        aggregate_values(values, cuts, total=ab.sum("x"))
    with pytest.raises(FlowError, match="average=mean: for key=1"):
        aggregate_values(values, cuts, rows=ab.count(), average=ab.mean("x"))
    with pytest.raises(FlowError, match="beyond the range of Int64"):
        aggregate_values(-values - 1, cuts, total=ab.sum("x"))


def test_sums_at_the_edge_of_int64_are_exact() -> None:
    for values in ([LARGEST - 3, 1, 1, 1], [-LARGEST, -1, 0, 0], [LARGEST, -LARGEST, LARGEST, -1], [LARGEST, None]):
        row = aggregate_values(pl.Series(values), 2, total=ab.sum("x"), average=ab.mean("x"), rows=ab.count("x"))
        total = sum(value for value in values if value is not None)
        assert row["total"] == total
        assert row["average"] == float(total) / row["rows"]


def test_sums_that_are_safe_and_risky_stand_side_by_side() -> None:
    values = pl.Series([LARGEST // 2, LARGEST // 2, 1, None])
    row = aggregate_values(values, 2, large=ab.sum("x"), small=ab.sum(pl.col("x") % 10), same=ab.sum("x"))
    assert row == {"large": LARGEST, "small": 2 * (LARGEST // 2 % 10) + 1, "same": LARGEST}


def test_sum_of_larger_numbers_in_a_decimal_or_float_goes_on() -> None:
    values = pl.Series([LARGEST, LARGEST, LARGEST])
    row = aggregate_values(
        values,
        exact=ab.sum(pl.col("x").cast(pl.Decimal(38))),
        rough=ab.sum(pl.col("x").cast(pl.Float64)),
        wide=ab.sum(pl.col("x").cast(pl.Int128)),
    )
    assert row["exact"] == row["wide"] == 3 * LARGEST
    assert row["rough"] == pytest.approx(3 * LARGEST)


@pytest.mark.parametrize("window", [WindowSpec("session", 10**6, 10**6), WindowSpec("tumbling", 10**6, 10**6)])
def test_windows_refuse_sums_beyond_int64_too(window: WindowSpec) -> None:
    kernel = make_kernel(AggregateSpec(("key",), {"total": ab.sum("x")}, window, "ts"))
    times = pl.Series([datetime(1970, 1, 1)] * 2)
    frame = pl.DataFrame({"key": [7, 7], "ts": times, "x": [LARGEST, 1], ORDER: [0, 1]})
    hashed = pl.lit(7, dtype=pl.UInt64).alias(HASH)
    received = [
        kernel.combine(kernel.prepare(part, OperatorTime(0)).frame).with_columns(hashed)
        for part in (frame[:1], frame[1:])
    ]
    with pytest.raises(FlowError, match="total=sum: for key=7"):
        kernel.advance(received, True, MemoryState(), OperatorTime(0))

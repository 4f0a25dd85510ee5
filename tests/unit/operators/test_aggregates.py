"""What single aggregates promise, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import FlowError
from anabranch.model import (
    END_OF_TIME,
    HASH,
    ORDER,
    Aggregate,
    AggregateSpec,
    Clock,
    Column,
    CountWindowSpec,
    OperatorTime,
    WindowSpec,
)
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates import sketches as sk
from anabranch.operators.aggregates.registry import make_aggregate, registry
from anabranch.operators.kernels import make_kernel
from property_tests import tries
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


LARGEST_DECIMAL, LARGEST_INT128 = 10**38 - 1, 2**127 - 1


def decimals(wholes: list[int], precision: int = 38, scale: int = 0) -> pl.Series:
    exact = Context(prec=60)
    return pl.Series([Decimal(whole).scaleb(-scale, exact) for whole in wholes], dtype=pl.Decimal(precision, scale))


@pytest.mark.parametrize("cuts", [1, 2, 6])
@pytest.mark.parametrize("scale", [0, 2, 38])
def test_decimals_beyond_38_digits_are_refused_by_name(cuts: int, scale: int) -> None:
    values = decimals([9 * 10**37] * 6, scale=scale)
    for signed in (values, -values):
        with pytest.raises(
            FlowError, match=r"total=sum: for key=1 numbers add up to .*beyond the 38 digits of Decimal"
        ):
            aggregate_values(signed, cuts, total=ab.sum("x"))
        with pytest.raises(FlowError, match=r"average=mean: for key=1 .*cast .* to pl\.Float64, which rounds"):
            aggregate_values(signed, cuts, rows=ab.count(), average=ab.mean("x"))


def test_the_error_says_the_whole_total_where_it_is_known() -> None:
    with pytest.raises(FlowError, match=r"add up to 5400000000000000000000000000000000000\.00, beyond"):
        aggregate_values(decimals([9 * 10**37] * 6, scale=2), 1, total=ab.sum("x"))
    with pytest.raises(FlowError, match=f"add up to {6 * LARGEST_INT128}, beyond the range of Int128"):
        aggregate_values(pl.Series([LARGEST_INT128] * 6, dtype=pl.Int128), 1, total=ab.sum("x"))


@pytest.mark.parametrize("cuts", [1, 2, 6])
def test_whole_numbers_beyond_int128_are_refused_by_name(cuts: int) -> None:
    for wholes in ([LARGEST_INT128, *[1] * 5], [-LARGEST_INT128 - 1, *[-1] * 5]):
        signed = pl.Series(wholes, dtype=pl.Int128)
        with pytest.raises(FlowError, match=r"total=sum: for key=1 whole numbers .* range of Int128; cast .*Float64"):
            aggregate_values(signed, cuts, total=ab.sum("x"))


@pytest.mark.parametrize("dtype", [pl.UInt64(), pl.UInt128()])
def test_an_unsigned_number_beyond_int64_is_refused_by_name(dtype: pl.DataType) -> None:
    values = pl.Series([1, 2**64 - 1], dtype=dtype)
    with pytest.raises(FlowError, match=rf"total=sum: for key=1 .* {2**64 - 1}, beyond the range of Int64; cast"):
        aggregate_values(values, total=ab.sum("x"))
    assert aggregate_values(values[:1], total=ab.sum("x")) == {"total": 1}


@pytest.mark.parametrize("cuts", [1, 2, 4])
def test_sums_at_the_edge_of_decimals_and_int128_are_exact(cuts: int) -> None:
    for wholes in ([LARGEST_DECIMAL - 3, 1, 1, 1], [-LARGEST_DECIMAL, 0, 0, 0], [LARGEST_DECIMAL, -1, 1, 0]):
        assert aggregate_values(decimals(wholes), cuts, total=ab.sum("x")) == {"total": sum(wholes)}
    for wholes in ([LARGEST_INT128 - 3, 1, 1, 1], [-LARGEST_INT128, -1, 0, 0], [LARGEST_INT128, -1, 0, 1]):
        assert aggregate_values(pl.Series(wholes, dtype=pl.Int128), cuts, total=ab.sum("x")) == {"total": sum(wholes)}


_SECOND = 10**6
_OPERATORS: dict[str, Mapping[str, Any]] = {
    "running": {},
    "tumbling": {"window": WindowSpec("tumbling", _SECOND, _SECOND), "time_column": "ts"},
    "sliding": {"window": WindowSpec("sliding", 2 * _SECOND, _SECOND), "time_column": "ts"},
    "session": {"window": WindowSpec("session", _SECOND, _SECOND), "time_column": "ts"},
    "own time": {"window": WindowSpec("tumbling", _SECOND, _SECOND), "time_column": "ts", "clock": Clock("key")},
    "sessions in own time": {
        "window": WindowSpec("session", _SECOND, _SECOND),
        "time_column": "ts",
        "clock": Clock("key"),
    },
    "by count": {"count_window": CountWindowSpec(9, 9)},
}


@pytest.mark.parametrize("operator", _OPERATORS)
@pytest.mark.parametrize(
    ("dtype", "largest"), [(pl.Int64(), LARGEST), (pl.Int128(), LARGEST_INT128), (pl.Decimal(38, 0), LARGEST_DECIMAL)]
)
@pytest.mark.parametrize("batches", [1, 2])
def test_every_operator_refuses_a_sum_beyond_its_type(
    operator: str, dtype: pl.DataType, largest: int, batches: int
) -> None:
    kernel = make_kernel(AggregateSpec(("key",), {"total": ab.sum("x")}, **_OPERATORS[operator]))
    times = pl.Series([datetime(1970, 1, 1)] * 3)
    values = pl.Series([largest, largest - 1, 1], dtype=dtype)
    frame = pl.DataFrame({"key": [6, 7, 7], "ts": times, "x": values, ORDER: [0, 1, 2]})
    state, hashed = MemoryState(), pl.lit(7, dtype=pl.UInt64).alias(HASH)

    def advance(part: pl.DataFrame, batch: int) -> None:
        prepared = kernel.prepare(part, OperatorTime(batch)).frame
        sent = kernel.combine(prepared) if kernel.mergeable else prepared
        kernel.advance([sent.with_columns(hashed)], kernel.mergeable, state, OperatorTime(batch))

    advance(frame, 0)
    more = frame[1:].with_columns(pl.lit(1).cast(dtype).alias("x"))
    with pytest.raises(FlowError, match="total=sum: for key=7"):
        for batch in range(batches):
            advance(more[batch : batch + 1] if batches == 2 else more[:1], batch + 1)
        # Windows whose runs meet only when they fire.
        kernel.advance([], False, state, OperatorTime(9, fire_us=END_OF_TIME))


@pytest.mark.parametrize("window", [None, WindowSpec("tumbling", _SECOND, _SECOND)])
@pytest.mark.parametrize(("dtype", "largest"), [(pl.Int64(), LARGEST), (pl.Decimal(38, 0), LARGEST_DECIMAL)])
def test_parts_of_a_key_that_meet_refuse_a_sum_beyond_its_type(
    window: WindowSpec | None, dtype: pl.DataType, largest: int
) -> None:
    """Where slots share a key, in a global store, and where the state of several slots is read."""
    kernel = make_kernel(AggregateSpec(("key",), {"total": ab.sum("x")}, window, "ts" if window else None))
    frame = pl.DataFrame({"key": [7], "ts": [datetime(1970, 1, 1)], "x": pl.Series([largest], dtype=dtype), ORDER: [0]})
    part = kernel.combine(kernel.prepare(frame, OperatorTime(0)).frame)
    part = part.with_columns(pl.lit(7, dtype=pl.UInt64).alias(HASH))
    assert kernel.unite([part]).height == 1
    for meet in (kernel.unite, kernel.meet):
        with pytest.raises(FlowError, match="total=sum: for key=7"):
            meet([part.with_columns(pl.lit(True).alias("__touched"))] * 2)


def test_the_way_out_of_a_sum_beyond_int64_says_how_far_it_goes() -> None:
    with pytest.raises(
        FlowError, match=r"pl\.Decimal\(38\), which is exact up to 38 digits, or pl\.Float64, which rounds"
    ):
        aggregate_values(pl.Series([LARGEST, 1]), total=ab.sum("x"))


_SUMMED = {
    "int64": (pl.Int64(), 0, -(2**63), LARGEST),
    "int128": (pl.Int128(), 0, -(2**127), LARGEST_INT128),
    "uint64": (pl.UInt64(), 0, 0, LARGEST),
    "decimal(38, 0)": (pl.Decimal(38, 0), 0, -LARGEST_DECIMAL, LARGEST_DECIMAL),
    "decimal(38, 20)": (pl.Decimal(38, 20), 20, -LARGEST_DECIMAL, LARGEST_DECIMAL),
    "decimal(18, 2)": (pl.Decimal(18, 2), 2, -(10**18) + 1, 10**18 - 1),
}


@pytest.mark.parametrize("kind", _SUMMED)
@tries(40)
@given(data=st.data())
def test_a_sum_is_exact_or_refused_wherever_its_parts_meet(kind: str, data: st.DataObject) -> None:
    dtype, scale, smallest, largest = _SUMMED[kind]
    edges = st.sampled_from([smallest, largest, smallest // 2, largest // 2, largest // 3, 0])
    rows = data.draw(
        st.lists(
            st.tuples(st.integers(1, 2), st.none() | edges | st.integers(smallest, largest)), min_size=1, max_size=9
        )
    )
    kernel = make_kernel(AggregateSpec(("key",), {"total": ab.sum("x"), "rows": ab.count()}))
    state, exact = MemoryState(), Context(prec=60)
    largest_total = LARGEST if dtype.is_integer() and dtype != pl.Int128 else largest
    if dtype.is_decimal():
        largest_total = LARGEST_DECIMAL
    totals: dict[int, int] = {}
    while rows:
        size = data.draw(st.integers(1, len(rows)))
        batch, rows = rows[:size], rows[size:]
        values = [
            None if x is None else (Decimal(x).scaleb(-scale, exact) if dtype.is_decimal() else x) for _, x in batch
        ]
        frame = pl.DataFrame(
            {"key": [key for key, _ in batch], "x": pl.Series(values, dtype=dtype), ORDER: range(size)},
            schema_overrides={"key": pl.Int64(), ORDER: pl.Int64()},
        )
        added: dict[int, int] = {}
        for key, x in batch:
            added[key] = added.get(key, 0) + (x or 0)
            totals[key] = totals.get(key, 0) + (x or 0)
        combined = data.draw(st.booleans())
        time = OperatorTime(0)
        try:
            prepared = kernel.prepare(frame, time).frame
            sent = kernel.combine(prepared) if combined else prepared
            hashed = sent.with_columns(pl.col("key").cast(pl.UInt64).alias(HASH))
            fired = kernel.advance([hashed], combined, state, time).frame
        except FlowError as error:
            assert "total=sum: for key=" in str(error)
            # Of the rows of this batch, or of all so far.
            assert any(abs(total) > largest_total for total in (*added.values(), *totals.values()))
            return
        for row in fired.to_dicts():
            found = 0 if row["total"] is None else int(Decimal(row["total"]).scaleb(scale, exact))
            assert found == totals[row["key"]]
            assert -largest_total - 1 <= found <= largest_total

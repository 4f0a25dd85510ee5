"""The steps of a stream in a flow file, one form each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any, ClassVar, Literal

import polars as pl
from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from anabranch.model import LatePolicy
from anabranch.model.balance import OversizedChoice, ProtocolChoice, SampleRate
from anabranch.model.exchanges import ExchangeChoice
from anabranch.model.joins import ClosedEnds, JoinKind
from anabranch.model.lookups import MissingPolicy
from anabranch.model.times import ClockLevel
from anabranch.model.windows import UnfilledPolicy
from anabranch.query.asof_joining import AsofKind, AsofStrategy
from anabranch.query.files.sections import (
    Call,
    Columns,
    Duration,
    Names,
    Schema,
    Section,
    describe_found,
    one_or_many,
    read_none,
    read_schema,
)


class FunctionArguments(Section):
    """A Python function, and the columns that it returns."""

    shorthand: ClassVar[str | None] = "function"
    function: str
    columns: Schema | None = Field(default=None, alias="schema")


class WatermarkArguments(Section):
    """The column of event time; what is not said has the default of ``Stream.watermark``."""

    shorthand: ClassVar[str | None] = "column"
    renamed: ClassVar[Mapping[str, str]] = {"ahead": "future"}
    column: str
    delay: Duration | None = None
    per: ClockLevel | None = None
    groups: int | None = None
    idle: Duration | None = None
    behind: Duration | None = None
    forget: Duration | None = None
    earliest: datetime | date | str | None = None
    future: Duration | Literal["none"] | None = None


class WindowArguments(Section):
    """A tumbling or, with ``every``, sliding window; what is not said has the default of ``Stream.window``."""

    shorthand: ClassVar[str | None] = "size"
    size: Duration
    every: Duration | None = None
    offset: Duration | None = None
    late: LatePolicy | None = None
    lateness: Duration | None = None
    early: Duration | None = None


class SessionArguments(Section):
    """The silence that ends a session; what is not said has the default of ``Stream.session``."""

    shorthand: ClassVar[str | None] = "gap"
    gap: Duration
    late: LatePolicy | None = None
    lateness: Duration | None = None
    early: Duration | None = None


class CountWindowArguments(Section):
    """How many rows a window has, and how many lie between the beginnings of two."""

    shorthand: ClassVar[str | None] = "rows"
    rows: int
    every: int | None = None
    idle: Duration | None = None
    unfilled: UnfilledPolicy | None = None


class TopKArguments(Section):
    """How many rows to keep, and by what."""

    k: int
    by: str
    columns: Names | None = None
    descending: bool = True


class OrderedArguments(Section):
    """The time that rows are ordered by; what is not said has the default of ``Stream.ordered``."""

    shorthand: ClassVar[str | None] = "by"
    by: str
    idle: Duration | None = None
    late: LatePolicy | None = None


class ProcessArguments(Section):
    """A processor, ``module:Class``, if need be with arguments, and the columns that it emits."""

    processor: Call
    columns: Schema = Field(alias="schema")


def _read_looked_up(value: Any) -> Any:
    """Read the columns of a table: their names, or their names with types."""
    if isinstance(value, Mapping):
        return read_schema(value)
    columns = one_or_many(value)
    if not columns or not all(isinstance(column, str) for column in columns):
        msg = f"is {describe_found(value)}; give names of columns, or names with their types"
        raise ValueError(msg)
    return columns


def read_on(value: Any) -> Any:
    """Take ``on:`` for what YAML makes of it: true."""
    if not isinstance(value, Mapping):
        return value
    return {("on" if key is True else key): given for key, given in value.items()}


class LookupArguments(Section):
    """A table, and how rows are looked up in it; what is not said has the default of ``Stream.lookup``."""

    table: Call
    on: Names
    columns: Annotated[dict[str, pl.DataType] | list[str], BeforeValidator(_read_looked_up)] | None = None
    missing: MissingPolicy | None = None
    cache: int | None = None
    expires: Annotated[Duration | None, BeforeValidator(read_none)] = None

    @model_validator(mode="before")
    @classmethod
    def _read_on(cls, value: Any) -> Any:
        return read_on(value)


def _read_within(value: Any) -> Any:
    """Read a length of time, or two: before and after."""
    return tuple(value) if isinstance(value, list) else value


class JoinArguments(Section):
    """Another stream, and how rows of both meet; what is not said has the default of ``Stream.join``."""

    other: str = Field(alias="with")
    on: Names | None = None
    left_on: Names | None = None
    right_on: Names | None = None
    how: JoinKind | None = None
    within: Annotated[Duration | tuple[Duration, ...], BeforeValidator(_read_within)] | None = None
    closed: ClosedEnds | None = None
    window: Duration | None = None
    every: Duration | None = None
    ttl: Duration | None = None
    suffix: str | None = None
    align: Duration | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_on(cls, value: Any) -> Any:
        return read_on(value)


class JoinWhereArguments(Section):
    """Another stream, and which pairs come out; what is not said has the default of ``Stream.join_where``."""

    other: str = Field(alias="with")
    predicate: str | None = None
    within: Annotated[Duration | tuple[Duration, ...], BeforeValidator(_read_within)] | None = None
    closed: ClosedEnds | None = None
    window: Duration | None = None
    every: Duration | None = None
    ttl: Duration | None = None
    suffix: str | None = None
    align: Duration | None = None


class JoinAsofArguments(Section):
    """A stream of versions, and which is valid when; what is not said has the default of ``Stream.join_asof``."""

    other: str = Field(alias="with")
    on: str | None = None
    left_on: str | None = None
    right_on: str | None = None
    by: Names | None = None
    by_left: Names | None = None
    by_right: Names | None = None
    strategy: AsofStrategy | None = None
    tolerance: Duration | None = None
    how: AsofKind | None = None
    allow_exact_matches: bool | None = None
    suffix: str | None = None
    align: Duration | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_on(cls, value: Any) -> Any:
        return read_on(value)


class FilterStep(Section):
    filter: str


class SelectStep(Section):
    select: Columns


class WithColumnsStep(Section):
    with_columns: Columns


class MapBatchesStep(Section):
    map_batches: FunctionArguments


class FlatMapStep(Section):
    flat_map: FunctionArguments


class LookupStep(Section):
    lookup: LookupArguments


class TriggerArguments(Section):
    """What of a ``BalanceTrigger`` is said; what is not has its default."""

    every_seconds: float | None = None
    every_rows: int | None = None
    imbalance_above: Annotated[float | None, BeforeValidator(read_none)] = None
    balance_below: float | None = None
    smallest_improvement: float | None = None
    cool_down_seconds: float | None = None
    cool_down_batches: int | None = None


class BalanceArguments(Section):
    """What of a ``Balance`` is said; what is not has its default."""

    tolerance: float | None = None
    planner: str | None = None
    protocol: ProtocolChoice | None = None
    sample_rate: SampleRate | None = None
    oversized: OversizedChoice | None = None
    fewest_rows_a_slot: int | None = None
    trigger: TriggerArguments | None = None


def _read_balance(value: Any) -> Any:
    """Take ``balance: off`` for what YAML makes of it: false."""
    return None if value in (False, "off", "false") else value


class MergeArguments(Section):
    """What of a ``LocalMerge`` is said."""

    renamed: ClassVar[Mapping[str, str]] = {"slot": "slice"}
    slice: str | None = None
    delay: str | None = None
    count: int | None = None
    at: str | None = None


class KeyByStep(Section):
    key_by: Names
    routing: Call | None = None
    exchange: ExchangeChoice = "auto"
    merge: MergeArguments | None = None
    balance: Annotated[BalanceArguments | None, BeforeValidator(_read_balance)] = BalanceArguments()


class _JoiningStep(Section):
    routing: Call | None = None
    balance: Annotated[BalanceArguments | None, BeforeValidator(_read_balance)] = BalanceArguments()
    name: str | None = None


class JoinStep(_JoiningStep):
    join: JoinArguments


class JoinWhereStep(_JoiningStep):
    join_where: JoinWhereArguments


class JoinAsofStep(_JoiningStep):
    join_asof: JoinAsofArguments


def _read_distinct(value: Any) -> Any:
    return [] if value is None or value == "" else one_or_many(value)


class WatermarkStep(Section):
    watermark: WatermarkArguments


class WindowStep(Section):
    window: WindowArguments


class SessionStep(Section):
    session: SessionArguments


class CountWindowStep(Section):
    count_window: CountWindowArguments


class _StatefulStep(Section):
    ttl: Duration | None = None
    name: str | None = None


class _LateStep(Section):
    late_rows: str | None = None
    """The name under which other streams take the rows that came too late for this step."""


class AggStep(_StatefulStep, _LateStep):
    agg: dict[str, Call] = Field(min_length=1)

    @field_validator("agg")
    @classmethod
    def _refuse_options(cls, results: dict[str, Call]) -> dict[str, Call]:
        for name in ("ttl", "name"):
            if name in results:
                msg = f"a result cannot be called {name!r}, as that is an option of the step, which stands beside agg"
                raise ValueError(msg)
        return results


class TopKStep(_StatefulStep, _LateStep):
    top_k: TopKArguments


class DistinctStep(_StatefulStep):
    distinct: Annotated[list[str], BeforeValidator(_read_distinct)]
    """No columns: the keys."""


class OrderedStep(_LateStep):
    ordered: OrderedArguments
    name: str | None = None


class ProcessStep(Section):
    process: ProcessArguments
    name: str | None = None


STEPS: tuple[str, ...] = (
    "filter",
    "select",
    "with_columns",
    "map_batches",
    "flat_map",
    "lookup",
    "join",
    "join_where",
    "join_asof",
    "key_by",
    "watermark",
    "window",
    "session",
    "count_window",
    "agg",
    "top_k",
    "distinct",
    "ordered",
    "process",
)


def _step_verb(value: Any) -> str | None:
    fields = value if isinstance(value, Mapping) else getattr(type(value), "model_fields", ())
    return next((verb for verb in STEPS if verb in fields), None)


Step = Annotated[
    Annotated[FilterStep, Tag("filter")]
    | Annotated[SelectStep, Tag("select")]
    | Annotated[WithColumnsStep, Tag("with_columns")]
    | Annotated[MapBatchesStep, Tag("map_batches")]
    | Annotated[FlatMapStep, Tag("flat_map")]
    | Annotated[LookupStep, Tag("lookup")]
    | Annotated[JoinStep, Tag("join")]
    | Annotated[JoinWhereStep, Tag("join_where")]
    | Annotated[JoinAsofStep, Tag("join_asof")]
    | Annotated[KeyByStep, Tag("key_by")]
    | Annotated[WatermarkStep, Tag("watermark")]
    | Annotated[WindowStep, Tag("window")]
    | Annotated[SessionStep, Tag("session")]
    | Annotated[CountWindowStep, Tag("count_window")]
    | Annotated[AggStep, Tag("agg")]
    | Annotated[TopKStep, Tag("top_k")]
    | Annotated[DistinctStep, Tag("distinct")]
    | Annotated[OrderedStep, Tag("ordered")]
    | Annotated[ProcessStep, Tag("process")],
    Discriminator(_step_verb),
]

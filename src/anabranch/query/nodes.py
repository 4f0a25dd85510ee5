"""The nodes of a flow: sources, processors and outputs, and what the stateless ones do to a frame."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl

from anabranch.errors import FlowError, name_alternatives
from anabranch.model import FLOW_CLOCK, Clock, OperatorSpec, Sink
from anabranch.model.balance import Routing
from anabranch.model.times import USUAL_LIMITS, TimeLimits
from anabranch.query.labels import describe_columns
from anabranch.query.lookups import Lookup

Expression = pl.Expr | str
"""A Polars expression, or SQL in Polars' dialect."""


class Readable(Protocol):
    """The part of a source that a flow looks at; the engine knows how to read it."""

    @property
    def label(self) -> str: ...

    @property
    def schema(self) -> Mapping[str, pl.DataType]: ...

    def check(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FlowSource:
    """A source of a flow, by its place among the flow's sources, or its number in a checkpoint."""

    source: Readable
    index: int
    name: str | None = None
    formerly: str | None = None
    """What a checkpoint calls it, if it is the same under another name or in another place."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows for which the predicate is true."""

    predicate: Expression

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        if isinstance(self.predicate, str):
            return frame.sql(f"SELECT * FROM self WHERE {self.predicate}")
        return frame.filter(self.predicate)


@dataclass(frozen=True, slots=True)
class Select:
    """Keep and compute columns; nothing else remains."""

    positional: tuple[Expression, ...]
    named: Mapping[str, Expression]

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        return _compute(frame, self.positional, self.named)


@dataclass(frozen=True, slots=True)
class WithColumns:
    """Add or replace columns."""

    positional: tuple[Expression, ...]
    named: Mapping[str, Expression]

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        if not any(isinstance(item, str) for item in (*self.positional, *self.named.values())):
            return frame.with_columns(*self.positional, **self.named)
        return frame.with_columns(_compute(frame, self.positional, self.named).get_columns())


@dataclass(frozen=True, slots=True)
class MapBatches:
    """Hand whole frames to a function; it must treat rows the same however they are cut into frames."""

    function: Callable[[pl.DataFrame], pl.DataFrame]
    declared: Mapping[str, pl.DataType] | None = None

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        result: object = self.function(frame)
        if not isinstance(result, pl.DataFrame):
            msg = f"map_batches: {_name(self.function)} returned {type(result).__name__}; return a Polars DataFrame"
            raise FlowError(msg)
        return result if self.declared is None else _conform(result, self.declared, _name(self.function))


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Turn each row, a dict, into any number of rows."""

    function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]]
    declared: Mapping[str, pl.DataType]

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        rows = [dict(out) for row in frame.iter_rows(named=True) for out in self.function(row)]
        return pl.DataFrame(rows, schema=dict(self.declared), orient="row", strict=True)


@dataclass(frozen=True, slots=True)
class Union:
    """Let the rows of several streams through, as they come."""

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame


@dataclass(frozen=True, slots=True)
class Watermark:
    """Follow event time: a watermark is the largest time seen, less the delay, of whatever the clock is kept per."""

    column: str
    clock: Clock = FLOW_CLOCK
    limits: TimeLimits = USUAL_LIMITS

    @property
    def delay_us(self) -> int:
        return self.clock.delay_us

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame


@dataclass(frozen=True, slots=True)
class LateRows:
    """Let the rows through that came too late for the stateful operator before it."""

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame


@dataclass(frozen=True, slots=True)
class Stateful:
    """A stateful operator; rows reach it through an exchange."""

    spec: OperatorSpec
    name: str
    routing: Routing = field(default_factory=Routing)
    """Where its keys go; a checkpoint does not depend on it."""
    align_us: int | None = None
    """How far ahead of its other inputs one may be before its sources are held back; a checkpoint does not depend on
    it. None: as far as they like."""


@dataclass(frozen=True, slots=True)
class Output:
    """A sink, by its place among the flow's sinks, or its number in a checkpoint."""

    sink: Sink
    index: int
    name: str | None = None
    formerly: str | None = None
    """What a checkpoint calls it, if it is the same under another name or in another place."""


Stateless = Filter | Select | WithColumns | MapBatches | FlatMap | Union | Watermark | LateRows
Operation = FlowSource | Stateless | Lookup | Stateful | Output


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where a stream's event time is, and which watermarks it follows."""

    column: str
    from_windows: bool = False
    """True behind a window: the time of a result is the last instant of its window."""
    clock: Clock = FLOW_CLOCK


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the flow's graph, with the columns that leave it."""

    id: int
    operation: Operation
    inputs: tuple[int, ...]
    schema: Mapping[str, pl.DataType]
    label: str
    time: EventTime | None = None

    @property
    def stateful(self) -> bool:
        return isinstance(self.operation, Stateful)


def describe(expression: Expression) -> str:
    """Return an expression as a person would read it, in one line."""
    text = " ".join((expression if isinstance(expression, str) else _plain(str(expression))).split())
    return text if len(text) <= 60 else text[:57] + "..."


def describe_all(columns: tuple[Expression, ...], named: Mapping[str, Expression]) -> str:
    """Return expressions, and named ones, as a person would read them."""
    return ", ".join([*(describe(one) for one in columns), *(f"{name}={describe(one)}" for name, one in named.items())])


def _plain(text: str) -> str:
    """Take Polars' own marks out of a printed expression: ``[(col("volts")) > (dyn int: 0)]`` becomes ``volts > 0``."""
    text = re.sub(r'col\("([^"]*)"\)', r"\1", re.sub(r"dyn \w+: ", "", text))
    text = re.sub(r"(?<!\w)\(([\w.]+)\)", r"\1", text)
    return text[1:-1] if re.fullmatch(r"\[[^\[\]]*\]", text) else text


def dry_run(operation: Stateless, schema: Mapping[str, pl.DataType], where: str) -> dict[str, pl.DataType]:
    """Return the columns that leave a stateless operation, or raise ``FlowError`` with the columns that exist."""
    try:
        result = operation.apply(pl.DataFrame(schema=dict(schema)))
    except FlowError:
        raise
    except pl.exceptions.ColumnNotFoundError as error:
        quoted = re.search(r'"([^"]*)"', str(error))
        missing = quoted[1] if quoted else str(error).splitlines()[0]
        msg = f"{where}: no column {missing!r}; {name_alternatives(missing, schema)}"
        raise FlowError(msg) from error
    except Exception as error:
        hint = ""
        if isinstance(operation, MapBatches | FlatMap):
            hint = (
                "; functions are tried on an empty frame first: let yours handle one, or declare its columns by schema="
            )
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
        msg = f"{where}: {reason}; columns are {describe_columns(schema)}{hint}"
        raise FlowError(msg) from error
    return dict(result.schema)


def _compute(frame: pl.DataFrame, positional: tuple[Expression, ...], named: Mapping[str, Expression]) -> pl.DataFrame:
    columns: list[pl.Series] = []
    for item in positional:
        if not isinstance(item, str):
            columns += frame.select(item).get_columns()
        elif item in frame.columns:
            columns.append(frame.get_column(item))
        else:
            columns += frame.sql(f"SELECT {item} FROM self").get_columns()
    for name, item in named.items():
        column = frame.sql(f"SELECT {item} FROM self") if isinstance(item, str) else frame.select(item)
        columns.append(column.to_series().rename(name))
    # A literal has one value: let it fill the column, also where there are no rows, as Polars does in one select.
    height = frame.height
    return pl.DataFrame([c.new_from_index(0, height) if len(c) == 1 and height != 1 else c for c in columns])


def _conform(frame: pl.DataFrame, declared: Mapping[str, pl.DataType], name: str) -> pl.DataFrame:
    missing = [column for column in declared if column not in frame.columns]
    if missing:
        msg = f"{name} promised columns {', '.join(missing)}; it returned {', '.join(frame.columns)}"
        raise FlowError(msg)
    return frame.select(pl.col(column).cast(dtype) for column, dtype in declared.items())


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))

"""What a flow file may say, whether it is written in YAML or in XML.

::

    flow: low-voltage
    python: readings.py          # optional: files beside this one, or importable modules, that hold functions
    sources:
      readings: {files: {path: readings/, format: json, schema: {sensor: Int64, ts: Datetime(ms), volts: Float64}}}
    streams:
      alerts:
        from: readings           # a source or another stream; a list of them is their union
        steps:
          - filter: volts > 0
          - map_batches: readings:clean
          - key_by: sensor
          - watermark: {column: ts, delay: 2s}
          - window: 10s          # or {size: 10s, every: 5s}; or session: 30s
          - agg: {readings: count, lowest: {min: volts}}
          - filter: lowest < 207
        to: {parquet: alerts/}
    dead_letter: {json_lines: rejected/}
    run: {trigger: available-now, drain: true, slots: 8}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from anabranch.errors import FlowError
from anabranch.eventtime import parse_duration
from anabranch.model.balance import AUTO, ProtocolChoice
from anabranch.query.labels import name_alternatives
from anabranch.query.plan import Strategy

MOST_PROBLEMS_SHOWN = 8


class _Section(BaseModel):
    """A mapping with known fields; ``shorthand`` names the one that a bare value stands for."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    shorthand: ClassVar[str | None] = None

    @model_validator(mode="before")
    @classmethod
    def _name_strangers(cls, value: Any) -> Any:
        fields = [field.alias or name for name, field in cls.model_fields.items()]
        if not isinstance(value, Mapping):
            if cls.shorthand is None:
                msg = f"is {_found(value)}; give a mapping with {', '.join(fields)}"
                raise ValueError(msg)
            return {cls.shorthand: value}
        for key in value:
            if key not in fields:
                msg = f"unknown field {key!r}; {name_alternatives(str(key), fields, 'allowed are')}"
                raise ValueError(msg)
        return value


def _one_or_many(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _check_duration(value: Any) -> Any:
    try:
        parse_duration(value)
    except FlowError as error:
        raise ValueError(str(error)) from error
    return value


def _check_trigger(value: Any) -> Any:
    named = ("available-now", "once", "continuous")
    if value in named:
        return value
    try:
        parse_duration(value)
    except FlowError as error:
        msg = f"is {_found(value)}; triggers are {', '.join(named)}, or an interval such as 5s"
        raise ValueError(msg) from error
    return value


Names = Annotated[list[str], BeforeValidator(_one_or_many), Field(min_length=1)]
Duration = Annotated[str, BeforeValidator(_check_duration)]


class Call(BaseModel):
    """A constructor with its arguments: ``count``, ``{parquet: alerts/}``, ``{files: {path: readings/}}``.

    A name with a colon, ``module:name``, is Python code of the flow's own.
    """

    model_config = ConfigDict(frozen=True)
    name: str
    positional: list[Any] = []
    named: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, Mapping) or len(value) != 1:
            msg = f"is {_found(value)}; give a name, or a mapping of one name to its arguments, such as {{min: volts}}"
            raise ValueError(msg)
        ((name, arguments),) = value.items()
        if arguments is None:
            return {"name": name}
        if isinstance(arguments, Mapping):
            return {"name": name, "named": dict(arguments)}
        return {"name": name, "positional": _one_or_many(arguments)}


class Columns(BaseModel):
    """Columns to keep or compute: names or SQL, and new names with the SQL that makes them."""

    model_config = ConfigDict(frozen=True)
    positional: list[str] = []
    named: dict[str, str] = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        positional: list[Any] = []
        named: dict[Any, Any] = {}
        for item in _one_or_many(value):
            if isinstance(item, Mapping):
                named.update(item)
            elif isinstance(item, str):
                positional.append(item)
            else:
                msg = f"holds {_found(item)}; give columns as text, or as a mapping of new names to SQL"
                raise ValueError(msg)
        return {"positional": positional, "named": named}


class FunctionArguments(_Section):
    """A Python function, and the columns that it returns."""

    shorthand: ClassVar[str | None] = "function"
    function: str
    columns: dict[str, str] | None = Field(default=None, alias="schema")


class WatermarkArguments(_Section):
    """The column of event time."""

    shorthand: ClassVar[str | None] = "column"
    column: str
    delay: Duration = "0s"


class WindowArguments(_Section):
    """A tumbling or, with ``every``, sliding window."""

    shorthand: ClassVar[str | None] = "size"
    size: Duration
    every: Duration | None = None
    offset: Duration = "0s"


class TopKArguments(_Section):
    """How many rows to keep, and by what."""

    k: int
    by: str
    columns: Names | None = None
    descending: bool = True


class FilterStep(_Section):
    filter: str


class SelectStep(_Section):
    select: Columns


class WithColumnsStep(_Section):
    with_columns: Columns


class MapBatchesStep(_Section):
    map_batches: FunctionArguments


class FlatMapStep(_Section):
    flat_map: FunctionArguments


class TriggerArguments(_Section):
    """What of a ``Trigger`` is said; what is not has its default."""

    every_seconds: float | None = None
    every_rows: int | None = None
    imbalance_above: float | None = None
    balance_below: float | None = None
    smallest_improvement: float | None = None
    cool_down_seconds: float | None = None
    cool_down_batches: int | None = None


class BalanceArguments(_Section):
    """What of a ``Balance`` is said; what is not has its default."""

    tolerance: float | None = None
    planner: str | None = None
    protocol: ProtocolChoice | None = None
    sample_rate: float | None = None
    fewest_rows_a_slot: int | None = None
    trigger: TriggerArguments | None = None


def _read_balance(value: Any) -> Any:
    """Take ``balance: off`` for what YAML makes of it: false."""
    return None if value in (False, "off", "false") else value


class KeyByStep(_Section):
    key_by: Names
    routing: str = AUTO
    balance: Annotated[BalanceArguments | None, BeforeValidator(_read_balance)] = BalanceArguments()


class WatermarkStep(_Section):
    watermark: WatermarkArguments


class WindowStep(_Section):
    window: WindowArguments


class SessionStep(_Section):
    session: Duration


class _StatefulStep(_Section):
    ttl: Duration | None = None
    name: str | None = None


class AggStep(_StatefulStep):
    agg: dict[str, Call] = Field(min_length=1)


class TopKStep(_StatefulStep):
    top_k: TopKArguments


class DistinctStep(_StatefulStep):
    distinct: Names


_STEPS: tuple[str, ...] = (
    "filter",
    "select",
    "with_columns",
    "map_batches",
    "flat_map",
    "key_by",
    "watermark",
    "window",
    "session",
    "agg",
    "top_k",
    "distinct",
)


def _step_verb(value: Any) -> str | None:
    fields = value if isinstance(value, Mapping) else getattr(type(value), "model_fields", ())
    return next((verb for verb in _STEPS if verb in fields), None)


Step = Annotated[
    Annotated[FilterStep, Tag("filter")]
    | Annotated[SelectStep, Tag("select")]
    | Annotated[WithColumnsStep, Tag("with_columns")]
    | Annotated[MapBatchesStep, Tag("map_batches")]
    | Annotated[FlatMapStep, Tag("flat_map")]
    | Annotated[KeyByStep, Tag("key_by")]
    | Annotated[WatermarkStep, Tag("watermark")]
    | Annotated[WindowStep, Tag("window")]
    | Annotated[SessionStep, Tag("session")]
    | Annotated[AggStep, Tag("agg")]
    | Annotated[TopKStep, Tag("top_k")]
    | Annotated[DistinctStep, Tag("distinct")],
    Discriminator(_step_verb),
]


class StreamDocument(_Section):
    """One stream: where it comes from, what is done to it, where it goes."""

    sources: Names = Field(alias="from")
    steps: list[Step] = []
    to: Annotated[list[Call], BeforeValidator(_one_or_many)] = []


class RunDefaults(_Section):
    """How to run the flow when nobody says otherwise."""

    checkpoint: str | None = None
    trigger: Annotated[str, BeforeValidator(_check_trigger)] | None = None
    drain: bool | None = None
    slots: int | None = Field(default=None, ge=1)
    buckets: int | None = Field(default=None, ge=1)
    strategy: Strategy | None = None
    control: str | None = None


class FlowDocument(_Section):
    """A whole flow file."""

    flow: str
    python: Annotated[list[str], BeforeValidator(_one_or_many)] = []
    sources: dict[str, Call] = Field(min_length=1)
    streams: dict[str, StreamDocument] = Field(min_length=1)
    dead_letter: Call | None = None
    run: RunDefaults = RunDefaults()


def read_document(plain: object, where: str) -> FlowDocument:
    """Check plain data against the format; raise ``FlowError`` with the place of each problem and what is allowed."""
    try:
        return FlowDocument.model_validate(plain)
    except ValidationError as error:
        problems = [_explain_problem(dict(detail)) for detail in error.errors()]
        hidden = len(problems) - MOST_PROBLEMS_SHOWN
        shown = [*problems[:MOST_PROBLEMS_SHOWN], *([f"and {hidden} more"] if hidden > 0 else [])]
        raise FlowError("\n".join(f"{where}: {problem}" for problem in shown)) from None


def _explain_problem(detail: dict[str, Any]) -> str:
    place = _place(detail["loc"])
    found = detail.get("input")
    match detail["type"]:
        case "missing":
            *above, field = detail["loc"]
            return f"{_place(tuple(above))}the field {field!r} is missing"
        case "value_error":
            return place + str(detail["ctx"]["error"])
        case "union_tag_not_found" | "union_tag_invalid":
            verb = str(next(iter(found), "")) if isinstance(found, Mapping) else str(found)
            return f"{place}unknown step {verb!r}; {name_alternatives(verb, _STEPS, 'steps are')}"
        case "literal_error":
            return f"{place}is {_found(found)}; allowed are {detail['ctx']['expected']}"
        case _:
            return f"{place}is {_found(found)}; {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _place(location: tuple[int | str, ...]) -> str:
    """Return a place in the document as a person would write it: ``streams.alerts.steps[2].key_by: ``."""
    text = ""
    for position, part in enumerate(location):
        if isinstance(part, int):
            text += f"[{part}]"
        elif position and part == location[position - 1]:
            continue  # a step's verb is both the tag of its form and its field
        else:
            text += f".{part}" if text else part
    return f"{text}: " if text else ""


def _found(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(str(key) for key in value) or 'nothing'}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "empty" if value is None else repr(value)

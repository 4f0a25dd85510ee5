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
          - window: 10s          # or {size: 10s, every: 5s}; or session: 30s; or count_window: 100
          - agg: {readings: count, lowest: {min: volts}}
          - filter: lowest < 207
        to: {parquet: alerts/}
    dead_letter: {json_lines: rejected/}
    run: {trigger: available-now, drain: true, slots: 8}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from anabranch.errors import FlowError, name_alternatives
from anabranch.eventtime import parse_duration
from anabranch.model.elasticity import Elasticity
from anabranch.model.energy import Energy
from anabranch.model.loads import LoadError
from anabranch.model.replicas import Replicas
from anabranch.query.files.sections import Call, Names, Section, describe_found, one_or_many
from anabranch.query.files.steps import STEPS, Step
from anabranch.query.plan import Parallelism

MOST_PROBLEMS_SHOWN = 8
_WANTED = {
    "dict_type": "give a mapping of names",
    "list_type": "give a list",
    "string_type": "give a text",
    "too_short": "give at least one",
}
"""What stands in place of the validator's own words."""


def _check_trigger(value: Any) -> Any:
    named = ("available-now", "once", "continuous")
    if value in named:
        return value
    try:
        parse_duration(value)
    except FlowError as error:
        msg = f"is {describe_found(value)}; triggers are {', '.join(named)}, or an interval such as 5s"
        raise ValueError(msg) from error
    return value


def _check_latency(value: Any) -> Any:
    try:
        parse_duration(value)
    except FlowError as error:
        msg = f"is {describe_found(value)}; it is a length of time such as 2s"
        raise ValueError(msg) from error
    return value


def _check_named(kind: type[Elasticity] | type[Replicas] | type[Energy]) -> Callable[[Any], Any]:
    """Return what checks settings that are given by name, or as Python files have them."""

    def check(value: Any) -> Any:
        if isinstance(value, kind):
            return asdict(value)
        if isinstance(value, Mapping):
            try:
                kind.from_names(value)
            except LoadError as error:
                raise ValueError(str(error)) from error
        return value

    return check


class StreamDocument(Section):
    """One stream: where it comes from, what is done to it, where it goes."""

    sources: Names = Field(alias="from")
    steps: list[Step] = Field(default_factory=list)
    to: Annotated[list[Call], BeforeValidator(one_or_many)] = Field(default_factory=list)


class RunDefaults(Section):
    """How to run the flow when nobody says otherwise."""

    renamed: ClassVar[Mapping[str, str]] = {"strategy": "parallelism"}
    checkpoint: str | None = None
    trigger: Annotated[str, BeforeValidator(_check_trigger)] | None = None
    latency: Annotated[str, BeforeValidator(_check_latency)] | None = None
    drain: bool | None = None
    slots: int | None = Field(default=None, ge=1)
    buckets: int | None = Field(default=None, ge=1)
    parallelism: Parallelism | None = None
    local_merge: bool | None = None
    read_tasks: int | None = Field(default=None, ge=1)
    job_attempts: int | None = Field(default=None, ge=1)
    kept_batches: int | None = Field(default=None, ge=2)
    kept_records: int | None = Field(default=None, ge=1)
    kept_summary_bytes: int | None = Field(default=None, ge=0)
    elasticity: Annotated[dict[str, Any], BeforeValidator(_check_named(Elasticity))] | None = None
    replicas: Annotated[dict[str, Any], BeforeValidator(_check_named(Replicas))] | None = None
    energy: Annotated[dict[str, Any], BeforeValidator(_check_named(Energy))] | None = None
    hot_copies: bool | None = None
    anchors: bool | None = None
    control: str | None = None
    history_to: str | None = None


class FlowDocument(Section):
    """A whole flow file."""

    flow: str
    python: Annotated[list[str], BeforeValidator(one_or_many)] = Field(default_factory=list)
    sources: dict[str, Call] = Field(min_length=1)
    streams: dict[str, StreamDocument] = Field(min_length=1)
    dead_letter: Call | None = None
    run: RunDefaults = RunDefaults()


SectionT = TypeVar("SectionT", bound=Section)


def read_document(plain: object, where: str) -> FlowDocument:
    """Check plain data against the format; raise ``FlowError`` with the place of each problem and what is allowed."""
    return _read_section(FlowDocument, plain, where)


def read_run_defaults(plain: object, where: str) -> RunDefaults:
    """Do the same with what a file says about running its flow."""
    return _read_section(RunDefaults, plain, where)


def _read_section(kind: type[SectionT], plain: object, where: str) -> SectionT:
    try:
        return kind.model_validate(plain)
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
            if not isinstance(found, Mapping):
                return (
                    f"{place}is {describe_found(found)}; a step is a mapping of its name, such as {{filter: volts > 0}}"
                )
            verb = str(next(iter(found), ""))
            return f"{place}unknown step {verb!r}; {name_alternatives(verb, STEPS, 'steps are')}"
        case "literal_error":
            return f"{place}is {describe_found(found)}; allowed are {detail['ctx']['expected']}"
        case "dict_type" | "list_type" | "string_type" | "too_short" as kind:
            return f"{place}is {describe_found(found)}; {_WANTED[kind]}"
        case _:
            return f"{place}is {describe_found(found)}; {detail['msg'][0].lower()}{detail['msg'][1:]}"


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

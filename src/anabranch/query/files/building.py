"""From what a flow file says to the flow itself."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from anabranch.errors import AnabranchError, FlowError, name_alternatives
from anabranch.model import Aggregate, Sink
from anabranch.model.balance import CONDITIONS, Balance, BalanceTrigger, NamedStrategy
from anabranch.model.lookups import LookupTable
from anabranch.operators.aggregates.registry import make_aggregate, registry
from anabranch.query.files.column_types import parse_schema
from anabranch.query.files.documents import FlowDocument, RunDefaults, StreamDocument
from anabranch.query.files.sections import Call, Columns, Section, one_or_many
from anabranch.query.files.steps import (
    AggStep,
    BalanceArguments,
    CountWindowStep,
    DistinctStep,
    FilterStep,
    FlatMapStep,
    FunctionArguments,
    JoinAsofStep,
    JoinStep,
    JoinWhereStep,
    KeyByStep,
    LookupStep,
    MapBatchesStep,
    OrderedStep,
    ProcessStep,
    SelectStep,
    SessionStep,
    Step,
    TopKStep,
    WatermarkStep,
    WindowStep,
    WithColumnsStep,
)
from anabranch.query.graph import FlowGraph
from anabranch.query.merging import LocalMerge
from anabranch.query.nodes import Readable
from anabranch.query.streams import Stream

FlowT = TypeVar("FlowT", bound=FlowGraph)

_PATH_PARAMETERS = ("path", "directory", "checkpoint")
_CODE_PARAMETERS = ("function", "callback")
_SCHEMA_FILE = re.compile(r"(?P<path>[\w./~ -]+\.(?:avsc|json|desc))(?P<rest>:[\w.]+)?")
"""How ``value_schema`` names a file: ``event.avsc``, ``events.desc:shop.Event``."""


@dataclass(frozen=True, slots=True)
class Constructors:
    """The sources and sinks that flow files may name, and what may stand in their arguments.

    Arguments called ``path`` or ``directory``, a ``url`` without a scheme and files in ``value_schema`` are relative to
    the flow file, ``schema`` maps columns to types, ``function`` and ``callback`` name Python code as ``module:name``.
    """

    sources: Mapping[str, Callable[..., Readable]] = field(default_factory=dict)
    sinks: Mapping[str, Callable[..., Sink]] = field(default_factory=dict)
    tables: Mapping[str, Callable[..., LookupTable]] = field(default_factory=dict)
    """For ``lookup``."""
    values: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """For arguments such as ``keys: {zipf: {n: 1000}}``."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a flow file can reach: constructors, Python code by ``module:name``, and files by relative path."""

    constructors: Constructors
    find_code: Callable[[str], Any]
    locate: Callable[[str], str]


def build_flow(document: FlowDocument, flow_class: type[FlowT], around: Surroundings) -> FlowT:
    """Return the flow that a document describes; errors name the place in the document."""
    with _at("flow"):
        flow = flow_class(document.flow)
    streams: dict[str, Stream] = {}
    """Sources, streams, and the late rows of their steps, by name."""
    for name in _in_order(document):
        described = document.streams[name]
        for source in _needed(described):
            if source not in streams:
                with _at(f"sources.{source}"):
                    call, naming = _take_naming(document.sources[source], ("formerly",))
                    streams[source] = flow.read(_make_source(call, around), name=source, **naming)
        with _at(f"streams.{name}.from"):
            first, *others = (streams[source] for source in described.sources)
            stream = first.union(*others) if others else first
        streams[name] = _build_stream(stream, name, described, around, streams)
    if document.dead_letter is not None:
        with _at("dead_letter"):
            flow.dead_letter(_make_sink(document.dead_letter, around))
    return flow


def run_defaults(run: RunDefaults, locate: Callable[[str], str]) -> dict[str, Any]:
    """Return what a file says about running its flow, without what it leaves open."""
    defaults: dict[str, Any] = run.model_dump(exclude_none=True)
    if "checkpoint" in defaults:
        defaults["checkpoint"] = locate(defaults["checkpoint"])
    return defaults


def _in_order(document: FlowDocument) -> list[str]:
    """Return the streams, each behind those it comes from, else as the file has them."""
    late = _name_late_rows(document)
    known = [*document.sources, *document.streams, *late]
    for name in document.streams:
        if name in document.sources:
            msg = f"streams.{name}: a source has this name, too; rename one of them"
            raise FlowError(msg)
        for source in _needed(document.streams[name]):
            if source not in known:
                described = document.streams[name]
                place = "from" if source in described.sources else f"steps: {_joined(described)[source]} with"
                msg = f"streams.{name}.{place}: unknown {source!r}; {name_alternatives(source, known)}"
                raise FlowError(msg)
    used = {source for described in document.streams.values() for source in _needed(described)}
    for source in document.sources:
        if source not in used:
            msg = f"sources.{source}: no stream reads it; name it in a stream's 'from', or take it out"
            raise FlowError(msg)
    for name, described in document.streams.items():
        if not described.to and name not in used and not any(late[n] == name and n in used for n in late):
            msg = f"streams.{name}: goes nowhere; give it a sink in 'to', or name it in another stream's 'from'"
            raise FlowError(msg)
    for name, owner in late.items():
        if name not in used:
            msg = f"streams.{owner}: its late rows {name!r} go nowhere; name them in another stream's 'from'"
            raise FlowError(msg)
    ordered: list[str] = []
    waiting = list(document.streams)
    while waiting:
        ready = [n for n in waiting if not {late.get(s, s) for s in _needed(document.streams[n])} & set(waiting)]
        if not ready:
            msg = f"streams {', '.join(waiting)} come from one another in a circle; one must come from a source"
            raise FlowError(msg)
        ordered.append(ready[0])
        waiting.remove(ready[0])
    return ordered


def _needed(described: StreamDocument) -> list[str]:
    """Return the names that a stream comes from, or joins."""
    return list(dict.fromkeys([*described.sources, *_joined(described)]))


def _joined(described: StreamDocument) -> dict[str, str]:
    """Return the names that a stream joins, each with the step that does."""
    joined: dict[str, str] = {}
    for step in described.steps:
        match step:
            case JoinStep(join=given):
                joined.setdefault(given.other, "join")
            case JoinWhereStep(join_where=given):
                joined.setdefault(given.other, "join_where")
            case JoinAsofStep(join_asof=given):
                joined.setdefault(given.other, "join_asof")
    return joined


def _name_late_rows(document: FlowDocument) -> dict[str, str]:
    """Return the names that steps give to their late rows, each with the stream that it belongs to."""
    late: dict[str, str] = {}
    for owner, described in document.streams.items():
        for number, step in enumerate(described.steps):
            name = getattr(step, "late_rows", None)
            if name is None:
                continue
            if name in (*document.sources, *document.streams, *late):
                msg = f"streams.{owner}.steps[{number}].late_rows: {name!r} is the name of another; rename one of them"
                raise FlowError(msg)
            late[name] = owner
    return late


def _build_stream(
    stream: Stream, name: str, described: StreamDocument, around: Surroundings, streams: dict[str, Stream]
) -> Stream:
    for number, step in enumerate(described.steps):
        with _at(f"streams.{name}.steps[{number}]"):
            stream = _take_step(stream, step, around, streams)
            late_rows = getattr(step, "late_rows", None)
            if late_rows is not None:
                streams[late_rows] = stream.late_rows()
    for number, call in enumerate(described.to):
        with _at(f"streams.{name}.to[{number}]"):
            made, naming = _take_naming(call, ("name", "formerly"))
            stream.write(_make_sink(made, around), **naming)
    return stream


def _take_step(stream: Stream, step: Step, around: Surroundings, streams: Mapping[str, Stream]) -> Stream:
    match step:
        case FilterStep():
            return stream.filter(step.filter)
        case SelectStep(select=Columns(positional=columns, named=named)):
            return stream.select(*columns, **named)
        case WithColumnsStep(with_columns=Columns(positional=columns, named=named)):
            return stream.with_columns(*columns, **named)
        case MapBatchesStep(map_batches=function):
            return stream.map_batches(_find_function(function, around), schema=function.columns)
        case FlatMapStep(flat_map=function):
            if not function.columns:
                msg = "flat_map: say which columns the function returns, by {function: module:name, schema: {…}}"
                raise FlowError(msg)
            return stream.flat_map(_find_function(function, around), schema=function.columns)
        case LookupStep(lookup=given):
            return stream.lookup(**_said(given) | {"table": _make_table(given.table, around)})
        case KeyByStep() | WatermarkStep() | WindowStep() | SessionStep() | CountWindowStep():
            return _take_framing_step(stream, step)
        case _:
            return _take_stateful_step(stream, step, around, streams)


def _take_framing_step(
    stream: Stream, step: KeyByStep | WatermarkStep | WindowStep | SessionStep | CountWindowStep
) -> Stream:
    """Say what belongs together: keys, event time, windows."""
    match step:
        case KeyByStep():
            merge = None if step.merge is None else LocalMerge(**step.merge.model_dump())
            balance = _make_balance(step.balance)
            return stream.key_by(
                *step.key_by, routing=_name_strategy(step.routing), balance=balance, exchange=step.exchange, merge=merge
            )
        case WatermarkStep(watermark=watermark):
            return stream.watermark(**_said(watermark))
        case WindowStep(window=window):
            return stream.window(**_said(window))
        case SessionStep(session=session):
            return stream.session(**_said(session))
        case CountWindowStep(count_window=window):
            return stream.count_window(**_said(window))


def _said(arguments: Section) -> dict[str, Any]:
    """Return the arguments that a file gives, and no defaults: those are said in one place."""
    return arguments.model_dump(exclude_unset=True)


def _name_strategy(call: Call | None) -> NamedStrategy:
    if call is None:
        return NamedStrategy()
    if call.positional:
        msg = f"routing: the options of {call.name} have names; write {{{call.name}: {{option: value}}}}"
        raise FlowError(msg)
    # XML has no list of one: an element alone is what it holds.
    options = {
        name: one_or_many(value) if name in ("weights", "powers") else value for name, value in call.named.items()
    }
    return NamedStrategy(call.name, **options)


def _make_balance(given: BalanceArguments | None) -> Balance | None:
    if given is None:
        return None
    said = _said(given)
    if said.get("trigger") is not None:
        said["trigger"] = _make_trigger(said["trigger"])
    return Balance(**said)


def _make_trigger(said: Mapping[str, Any]) -> BalanceTrigger:
    lifted = "imbalance_above" in said and said["imbalance_above"] is None
    if lifted and not any(said.get(condition) for condition in CONDITIONS):
        # Whoever takes away the only condition, and gives no other, wants no plans, but the look at loads.
        return BalanceTrigger(**{**said, "imbalance_above": math.inf})
    return BalanceTrigger(**said)


def _take_stateful_step(
    stream: Stream,
    step: AggStep | TopKStep | DistinctStep | OrderedStep | ProcessStep | JoinStep | JoinWhereStep | JoinAsofStep,
    around: Surroundings,
    streams: Mapping[str, Stream],
) -> Stream:
    match step:
        case AggStep():
            aggregates = {name: _make_aggregate(call, around) for name, call in step.agg.items()}
            return stream.agg(ttl=step.ttl, name=step.name, **aggregates)
        case TopKStep(top_k=top):
            return stream.top_k(
                top.k, top.by, columns=top.columns, descending=top.descending, ttl=step.ttl, name=step.name
            )
        case DistinctStep():
            return stream.distinct(*step.distinct, ttl=step.ttl, name=step.name)
        case OrderedStep():
            return stream.ordered(**_said(step.ordered), name=step.name)
        case ProcessStep(process=given):
            processor = _make(given.processor, {}, "processor", around)
            return stream.process(processor, schema=given.columns, name=step.name)
        case JoinStep() | JoinWhereStep() | JoinAsofStep():
            return _take_joining_step(stream, step, streams)


def _take_joining_step(
    stream: Stream, step: JoinStep | JoinWhereStep | JoinAsofStep, streams: Mapping[str, Stream]
) -> Stream:
    placing: dict[str, Any] = {"routing": _name_strategy(step.routing), "balance": _make_balance(step.balance)}
    given: Section
    join: Callable[..., Stream]
    match step:
        case JoinStep():
            given, join = step.join, stream.join
        case JoinWhereStep():
            given, join = step.join_where, stream.join_where
        case JoinAsofStep():
            given, join = step.join_asof, stream.join_asof
    said = _said(given)
    return join(streams[said.pop("other")], **said, **placing, name=step.name)


def _take_naming(call: Call, parts: Collection[str]) -> tuple[Call, dict[str, Any]]:
    """Divide what a checkpoint calls a source or sink from the arguments of its constructor."""
    if ":" in call.name:
        return call, {}  # Code of the flow's own may have arguments of these names.
    naming = {part: value for part, value in call.named.items() if part in parts}
    rest = {name: value for name, value in call.named.items() if name not in naming}
    return call.model_copy(update={"named": rest}), naming


def _make_source(call: Call, around: Surroundings) -> Readable:
    source: Readable = _make(call, around.constructors.sources, "source", around)
    return source


def _make_sink(call: Call, around: Surroundings) -> Sink:
    sink: Sink = _make(call, around.constructors.sinks, "sink", around)
    return sink


def _make_table(call: Call, around: Surroundings) -> LookupTable:
    table: LookupTable = _make(call, around.constructors.tables, "table", around)
    return table


def _make_aggregate(call: Call, around: Surroundings) -> Aggregate:
    if ":" not in call.name and call.name not in registry:
        return make_aggregate(call.name)  # raises: it knows what other systems call its aggregates
    aggregate: Aggregate = _make(call, registry, "aggregate", around)
    return aggregate


def _make(call: Call, known: Mapping[str, Callable[..., Any]], role: str, around: Surroundings) -> Any:
    """Call a constructor, or the flow's own code, which may also be the object itself."""
    if ":" in call.name:
        found = around.find_code(call.name)
        bare = not (call.positional or call.named)
        if bare and not (inspect.isroutine(found) or inspect.isclass(found)):
            return found
        constructor = found
    elif call.name in known:
        constructor = known[call.name]
    else:
        own = "a name with a colon, module:name, is Python code of your own"
        msg = f"unknown {role} {call.name!r}; {name_alternatives(call.name, known)}; {own}"
        raise FlowError(msg)
    if not callable(constructor):
        msg = f"{call.name} is a {type(constructor).__name__} and takes no arguments"
        raise FlowError(msg)
    return _call(constructor, call, around)


def _call(constructor: Callable[..., Any], call: Call, around: Surroundings) -> Any:
    signature = inspect.signature(constructor)
    parameters = [n for n, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for name in call.named:
        if name not in parameters and not open_ended:
            msg = f"{call.name} has no argument {name!r}; {name_alternatives(name, parameters)}"
            raise FlowError(msg)
    try:
        positional, named = _place_arguments(signature, call)
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        msg = f"{call.name}: {error}; its arguments are {', '.join(parameters) or 'none'}"
        raise FlowError(msg) from error
    for name, value in bound.arguments.items():
        bound.arguments[name] = _read_argument(name, value, around)
    try:
        return constructor(*bound.args, **bound.kwargs)
    except AnabranchError:
        raise
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        msg = f"{call.name}: {error}; its arguments are {', '.join(parameters)}"
        raise FlowError(msg) from error


def _place_arguments(signature: inspect.Signature, call: Call) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as Python takes them: what has a name here may stand for any number of nameless ones."""
    many = next((n for n, p in signature.parameters.items() if p.kind is p.VAR_POSITIONAL), None)
    if many is None or many not in call.named:
        return call.positional, call.named
    before = list(signature.parameters)[: list(signature.parameters).index(many)]
    named = {name: value for name, value in call.named.items() if name not in (*before, many)}
    return [*(call.named[name] for name in before if name in call.named), *one_or_many(call.named[many])], named


def _read_argument(name: str, value: Any, around: Surroundings) -> Any:
    if name in _PATH_PARAMETERS and isinstance(value, str | int):
        return around.locate(str(value))
    if name == "url" and isinstance(value, str) and "${" not in value:  # a variable may hold the scheme
        return around.locate(value)
    if name == "value_schema" and isinstance(value, str) and (file := _SCHEMA_FILE.fullmatch(value)):
        return around.locate(file["path"]) + (file["rest"] or "")
    if name in _CODE_PARAMETERS and isinstance(value, str):
        return around.find_code(value)
    if name == "schema" and isinstance(value, Mapping):
        return parse_schema(value)
    if isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in around.constructors.values:
        return _make(Call.model_validate(value), around.constructors.values, "value", around)
    if isinstance(value, tuple):
        return tuple(_read_argument(name, item, around) for item in value)
    return value


def _find_function(function: FunctionArguments, around: Surroundings) -> Callable[..., Any]:
    found = around.find_code(function.function)
    if not callable(found):
        msg = f"{function.function} is a {type(found).__name__}, not a function"
        raise FlowError(msg)
    return found  # type: ignore[no-any-return]


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Name the place in the document in every error that the block raises."""
    try:
        yield
    except AnabranchError as error:
        raise type(error)(f"{place}: {error}") from error

"""Whether what a flow is given is a source, a sink or an aggregate, and what to give instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.errors import FlowError
from anabranch.operators.aggregates.registry import registry

_SOURCE_MEMBERS = ("label", "schema", "check")
_SINK_MEMBERS = ("label", "suffix", "check", "encode", "publish")
_TABLE_MEMBERS = ("label", "known_columns", "check", "fetch")
_AGGREGATE_MEMBERS = ("kind", "inputs", "partial", "merge", "finish")


def check_source(found: object) -> None:
    """Raise ``FlowError`` unless a flow can read from it."""
    if _has(found, _SOURCE_MEMBERS):
        return
    advice = 'ab.files("readings/", format="json", schema=…), ab.kafka(…) or ab.generate(…)'
    package = type(found).__module__.partition(".")[0]
    if isinstance(found, str):
        advice = f"ab.files({found!r}, …)"
    elif package == "pyspark":
        advice = "ab.from_spark(dataframe)"
    elif package in ("polars", "pandas"):
        advice = "ab.memory(frame)"
    msg = f"read takes a source, found {describe_given(found)}; give {advice}"
    raise FlowError(msg)


def check_sink(found: object) -> None:
    """Raise ``FlowError`` unless a stream can be written to it."""
    if _has(found, _SINK_MEMBERS):
        return
    advice = "ab.parquet(…), ab.json_lines(…), ab.console() or ab.foreach(callback)"
    if isinstance(found, str):
        advice = f"ab.parquet({found!r}) or ab.json_lines({found!r})"
    elif callable(found):
        advice = "ab.foreach(callback) for a function, or call it if it makes a sink: ab.console()"
    msg = f"write takes a sink, found {describe_given(found)}; give {advice}"
    raise FlowError(msg)


def check_endpoint_name(step: str, name: object, taken: Iterable[str | None]) -> None:
    """Raise ``FlowError`` unless a source or sink may be called so: commands and files name it."""
    if name is None:
        return
    if not isinstance(name, str) or not name or name != name.strip():
        msg = f"{step}: a name is a text without blanks around it, found {name!r}"
        raise FlowError(msg)
    if name in taken:
        msg = f"{step}: the name {name!r} is taken; give each its own"
        raise FlowError(msg)


def check_table(found: object) -> None:
    """Raise ``FlowError`` unless rows can be looked up in it."""
    if _has(found, _TABLE_MEMBERS):
        return
    advice = "ab.frame_table(frame), ab.parquet_table(path), ab.sql_table(…) or ab.redis_table(…)"
    package = type(found).__module__.partition(".")[0]
    if package in ("polars", "pandas"):
        advice = "ab.frame_table(frame)"
    elif package == "pyspark":
        advice = "ab.frame_table(pl.from_arrow(dataframe.toArrow())), or write it as Parquet for ab.parquet_table(path)"
    elif isinstance(found, str):
        advice = f"ab.parquet_table({found!r})"
    elif isinstance(found, Mapping):
        advice = "ab.frame_table(pl.DataFrame(…)) with a row for each key"
    msg = f"lookup takes a table, found {describe_given(found)}; give {advice}"
    raise FlowError(msg)


def check_function(where: str, found: object) -> None:
    """Raise ``FlowError`` unless it can be called."""
    if not callable(found):
        msg = f"{where} takes a function, found {describe_given(found)}; give its name, or a lambda"
        raise FlowError(msg)


def check_aggregates(unnamed: tuple[object, ...], named: Mapping[str, object]) -> None:
    """Raise ``FlowError`` unless every value is an aggregate with a name for its column."""
    if unnamed:
        msg = f"agg: {describe_given(unnamed[0])} has no name for its column; write agg(rows=ab.count())"
        raise FlowError(msg)
    if not named:
        msg = "agg needs at least one aggregate, such as agg(rows=ab.count())"
        raise FlowError(msg)
    for name, found in named.items():
        if _has(found, _AGGREGATE_MEMBERS) and not isinstance(found, type):
            continue
        called = getattr(found, "__name__", "") if callable(found) else found
        if isinstance(called, str) and called in registry:
            advice = f"write ab.{called}(…)"
        else:
            known = ", ".join(sorted(registry))
            advice = f'there are {known}, as in ab.sum("volts"), or an object with {", ".join(_AGGREGATE_MEMBERS)}'
        msg = f"agg: {name} is {describe_given(found)}, which is no aggregate; {advice}"
        raise FlowError(msg)


def _has(found: object, members: tuple[str, ...]) -> bool:
    # Of classes, the members are there before there is an object to ask.
    return not isinstance(found, type) and all(hasattr(found, member) for member in members)


def describe_given(found: object) -> str:
    """Return what somebody gave, in the words of an error."""
    if isinstance(found, str):
        return f"the text {found!r}"
    if callable(found) and hasattr(found, "__name__"):
        return f"the {'class' if isinstance(found, type) else 'function'} {found.__name__}"
    return f"a {type(found).__module__.partition('.')[0]} {type(found).__name__}".replace("a builtins ", "a ")

"""``lookup()``: a stream's rows beside those of a table, checked as it is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from anabranch.errors import FlowError, name_alternatives
from anabranch.eventtime import parse_duration
from anabranch.eventtime.durations import describe_duration
from anabranch.model.lookups import MISSING_POLICIES, LookupTable, MissingPolicy
from anabranch.query.column_checks import ColumnTypes, find_column, read_schema
from anabranch.query.endpoint_checks import check_table

if TYPE_CHECKING:
    from anabranch.query.event_times import Duration
    from anabranch.query.streams import Stream


@dataclass(frozen=True, slots=True)
class Lookup:
    """Give each row the columns of the table's row with the same key; the engine fetches and caches."""

    table: LookupTable
    keys: Mapping[str, pl.DataType]
    columns: Mapping[str, pl.DataType]
    missing: MissingPolicy
    cache_rows: int
    expires_us: int | None


def lookup_stream(
    stream: Stream,
    table: LookupTable,
    on: str | Iterable[str],
    columns: ColumnTypes | Iterable[str] | None,
    missing: MissingPolicy,
    cache: int,
    expires: Duration | None,
) -> Stream:
    """Return the stream with the table's columns behind its own."""
    check_table(table)
    names = (on,) if isinstance(on, str) else tuple(on)
    if not names:
        msg = f"lookup: say by which columns, such as on={next(iter(stream.schema))!r}"
        raise FlowError(msg)
    keys = {name: find_column("lookup", name, stream.schema) for name in names}
    for name, dtype in keys.items():
        if dtype.is_float() or dtype.is_nested():
            msg = f"lookup: {name!r} is {dtype}, which is no key; cast it to an integer or a string first"
            raise FlowError(msg)
    wanted = _find_columns(table, columns, keys)
    for name in wanted:
        if name in stream.schema:
            msg = f"lookup: the stream has a column {name!r} already; rename it by select() before, or leave it out"
            raise FlowError(msg)
    if missing not in MISSING_POLICIES:
        msg = f"lookup: missing={missing!r} is impossible; rows without a match can be {', '.join(MISSING_POLICIES)}"
        raise FlowError(msg)
    if cache < 1:
        msg = f"lookup: cache is {cache}; it is the number of keys that each worker keeps, at least 1"
        raise FlowError(msg)
    expires_us = None if expires is None else parse_duration(expires, "expires")
    operation = Lookup(table, keys, wanted, missing, cache, expires_us)
    aged = "" if expires_us is None else f", at most {describe_duration(expires_us)} old"
    label = f"lookup {', '.join(wanted)} by {', '.join(names)} in {table.label}{aged}"
    return stream._add(operation, label, {**stream.schema, **wanted})


def _find_columns(
    table: LookupTable, columns: ColumnTypes | Iterable[str] | None, keys: Mapping[str, pl.DataType]
) -> dict[str, pl.DataType]:
    if isinstance(columns, Mapping):
        wanted = read_schema("lookup", columns)
    else:
        known = table.known_columns()
        if known is None:
            msg = f"lookup: {table.label} does not know its types; say columns={{'campaign': pl.String}}"
            raise FlowError(msg)
        wanted = {}
        for name in known if columns is None else columns:
            if name not in known:
                msg = f"lookup: {table.label} has no column {name!r}; {name_alternatives(name, known)}"
                raise FlowError(msg)
            if columns is not None or name not in keys:
                wanted[name] = known[name]
    if not wanted:
        msg = f"lookup: say which columns of {table.label} to add"
        raise FlowError(msg)
    return wanted

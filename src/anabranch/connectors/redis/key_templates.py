"""Texts made of a row's columns, such as ``campaign:{campaign}:{window_start:ms}``."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

import polars as pl

from anabranch.connectors.databases.staged_rows import check_columns, is_nested, json_texts
from anabranch.errors import SinkError

TimeForm = Literal["iso", "s", "ms", "us"]
"""How a time is written: as text, or as a number since 1970 (UTC)."""
_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True)
class KeyPattern:
    """A text with columns in braces; a time may say its form behind a colon."""

    text: str
    parts: tuple[tuple[str, str | None, TimeForm | None], ...]
    """(literal text, the column behind it, its form of time)."""

    @classmethod
    def read(cls, text: str) -> KeyPattern:
        """Take a pattern apart; raise ``SinkError`` for one that names no column or is none."""
        parts: list[tuple[str, str | None, TimeForm | None]] = []
        try:
            for literal, column, form, conversion in string.Formatter().parse(text):
                if conversion:
                    raise ValueError(f"!{conversion} is not understood")
                parts.append((literal, column, check_time_form(form) if form else None))
        except ValueError as error:
            msg = f"{text!r} is no pattern of a key: {error}; write it as 'campaign:{{campaign}}:{{window_start:ms}}'"
            raise SinkError(msg) from error
        if not any(column for _, column, _ in parts):
            msg = f"{text!r} names no column, so that all rows would have one key; write 'campaign:{{campaign}}'"
            raise SinkError(msg)
        return cls(text, tuple(parts))

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if a column is not there, or has a form of time and is none."""
        check_columns(schema, [column for _, column, _ in self.parts if column], f"the pattern {self.text!r}")
        for _, column, form in self.parts:
            if column and form and not isinstance(schema[column], pl.Datetime | pl.Date):
                found = schema[column]
                msg = f"{{{column}:{form}}} in {self.text!r}: the column is {found}, not a time; leave ':{form}' out"
                raise SinkError(msg)

    def fill(self, schema: Mapping[str, pl.DataType], times: TimeForm) -> pl.Expr:
        """Return an expression for the text of each row; a null in it is written as nothing."""
        texts: list[pl.Expr] = []
        for literal, column, form in self.parts:
            if literal:
                texts.append(pl.lit(literal))
            if column:
                texts.append(as_text(column, schema[column], form or times).fill_null(""))
        return pl.concat_str(texts)


def check_time_form(form: str) -> TimeForm:
    """Return the form if it is one; raise ``SinkError`` with those that are."""
    if form not in get_args(TimeForm):
        msg = f"a time is written as one of {', '.join(get_args(TimeForm))}, found {form!r}"
        raise SinkError(msg)
    return cast(TimeForm, form)


def as_text(column: str, kind: pl.DataType, times: TimeForm) -> pl.Expr:
    """Return an expression for a column's values as text; nulls stay nulls."""
    value = pl.col(column)
    if isinstance(kind, pl.Datetime | pl.Date):
        if times != "iso":
            return (value.cast(pl.Datetime("us")).dt.timestamp("us") // _PER_UNIT[times]).cast(pl.String)
        if isinstance(kind, pl.Date):
            return value.cast(pl.String)
        if kind.time_zone is None:
            return value.dt.strftime("%Y-%m-%dT%H:%M:%S%.f")
        return value.dt.convert_time_zone("UTC").dt.strftime("%Y-%m-%dT%H:%M:%S%.f+00:00")
    if isinstance(kind, pl.Duration):
        return value.dt.total_microseconds().cast(pl.String)
    if isinstance(kind, pl.Binary):
        return value.bin.encode("base64")
    if is_nested(kind):
        return json_texts(column)
    if isinstance(kind, pl.Object):
        msg = f"column {column!r} is {kind}, which has no form as text; cast it before the sink"
        raise SinkError(msg)
    return value.cast(pl.String)

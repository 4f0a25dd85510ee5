"""The parts that flow files are made of: sections with known fields, names with arguments, columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import polars as pl
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from anabranch.errors import FlowError, name_alternatives
from anabranch.eventtime import parse_duration
from anabranch.model.renamed import take_renamed
from anabranch.model.schema_forms import declared_columns
from anabranch.query.event_times import NO_LIMIT
from anabranch.query.files.column_types import parse_schema


class Section(BaseModel):
    """A mapping with known fields; ``shorthand`` names the one that a bare value stands for."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)
    shorthand: ClassVar[str | None] = None
    renamed: ClassVar[Mapping[str, str]] = {}
    """Fields by their names of before, which are taken for a version."""

    @model_validator(mode="before")
    @classmethod
    def _name_strangers(cls, value: Any) -> Any:
        fields = [field.alias or name for name, field in cls.model_fields.items()]
        if not isinstance(value, Mapping):
            if cls.shorthand is None:
                msg = f"is {describe_found(value)}; give a mapping with {', '.join(fields)}"
                raise ValueError(msg)
            return {cls.shorthand: value}
        if cls.renamed:
            value = take_renamed(cls.__name__.removesuffix("Arguments").lower(), value, cls.renamed)
        for key in value:
            if key not in fields:
                msg = f"unknown field {key!r}; {name_alternatives(str(key), fields, 'allowed are')}"
                raise ValueError(msg)
        return value


def one_or_many(value: Any) -> Any:
    """Return a list as it is, and anything else as a list of one."""
    return value if isinstance(value, list) else [value]


def _check_duration(value: Any) -> Any:
    try:
        parse_duration(value)
    except FlowError as error:
        raise ValueError(str(error)) from error
    return value


def read_schema(value: Any) -> dict[str, pl.DataType]:
    """Return columns with their types, or raise ``ValueError`` for what are none."""
    if not isinstance(value, Mapping | str) or not value:
        msg = f"is {describe_found(value)}; give columns with their types, such as {{sensor: Int64}}"
        raise ValueError(msg)
    try:
        return dict(declared_columns(value)) if isinstance(value, str) else parse_schema(value)
    except FlowError as error:
        raise ValueError(str(error)) from error


def read_none(value: Any) -> Any:
    """Take ``none`` for None, where that is something one may say."""
    return None if value == NO_LIMIT else value


Names = Annotated[list[str], BeforeValidator(one_or_many), Field(min_length=1)]
Duration = Annotated[str, BeforeValidator(_check_duration)]
Schema = Annotated[dict[str, pl.DataType], BeforeValidator(read_schema)]


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
            example = "give a name, or a mapping of one name to its arguments, such as {min: volts}"
            msg = f"is {describe_found(value)}; {example}"
            raise ValueError(msg)
        ((name, arguments),) = value.items()
        if arguments is None:
            return {"name": name}
        if isinstance(arguments, Mapping):
            return {"name": name, "named": dict(arguments)}
        return {"name": name, "positional": one_or_many(arguments)}


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
        for item in one_or_many(value):
            if isinstance(item, Mapping):
                named.update(item)
            elif isinstance(item, str):
                positional.append(item)
            else:
                msg = f"holds {describe_found(item)}; give columns as text, or as a mapping of new names to SQL"
                raise ValueError(msg)
        return {"positional": positional, "named": named}


def describe_found(value: Any) -> str:
    """Return what stands in a file, as an error says it."""
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(str(key) for key in value) or 'nothing'}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "empty" if value is None else repr(value)

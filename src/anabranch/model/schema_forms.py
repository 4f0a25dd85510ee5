"""Schemas as people have them: columns with types, Spark's DDL such as ``id bigint, ts date``, a ``StructType``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import polars as pl

from anabranch.errors import FlowError
from anabranch.model.type_names import parse_type


@runtime_checkable
class SparkStruct(Protocol):
    """What is used of PySpark's ``StructType``."""

    def jsonValue(self) -> Any: ...


SchemaLike = Mapping[str, Any] | str | SparkStruct

_SPARK_TYPES: dict[str, pl.DataType] = {
    "boolean": pl.Boolean(),
    "tinyint": pl.Int8(),
    "byte": pl.Int8(),
    "smallint": pl.Int16(),
    "short": pl.Int16(),
    "int": pl.Int32(),
    "integer": pl.Int32(),
    "bigint": pl.Int64(),
    "long": pl.Int64(),
    "float": pl.Float32(),
    "real": pl.Float32(),
    "double": pl.Float64(),
    "string": pl.String(),
    "binary": pl.Binary(),
    "date": pl.Date(),
    "time": pl.Time(),
    "timestamp": pl.Datetime("us", "UTC"),
    "timestamp_ltz": pl.Datetime("us", "UTC"),
    "timestamp_ntz": pl.Datetime("us"),
    "decimal": pl.Decimal(10, 0),
    "dec": pl.Decimal(10, 0),
    "numeric": pl.Decimal(10, 0),
}
"""What Spark's types are in Polars, as they are for rows of a Spark DataFrame."""

_SIZED = re.compile(r"(\w+)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_TOKEN = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s<>(),:`'\"]+|\S")
_EXAMPLE = "id bigint, ts timestamp, tags array<string>, place struct<lat: double, lon: double>"


def declared_columns(schema: SchemaLike) -> Mapping[str, Any]:
    """Return column → type, as it was given or as Spark means it; raise ``FlowError`` for what is no schema."""
    if isinstance(schema, str):
        return _Ddl(schema).read()
    if isinstance(schema, Mapping):
        return schema
    if isinstance(schema, SparkStruct) and not isinstance(schema, type):
        described = schema.jsonValue()
        if isinstance(described, Mapping) and described.get("type") == "struct":
            return {field["name"]: _read_json(field["type"], field["name"]) for field in described["fields"]}
    msg = (
        f"a schema is columns with their types, such as {{'sensor': pl.Int64}}, Spark's DDL, such as 'sensor bigint', "
        f"or a StructType; found {schema!r}"
    )
    raise FlowError(msg)


def _read_json(kind: Any, place: str) -> pl.DataType:
    """Return a type that ``StructType.jsonValue`` describes."""
    if isinstance(kind, str):
        found = _read_name(kind)
        if found is not None:
            return found
    elif kind.get("type") == "array":
        return pl.List(_read_json(kind["elementType"], f"{place}[]"))
    elif kind.get("type") == "struct":
        return pl.Struct(
            {field["name"]: _read_json(field["type"], f"{place}.{field['name']}") for field in kind["fields"]}
        )
    name = kind if isinstance(kind, str) else kind.get("type")
    raise _unknown(place, str(name))


def _read_name(text: str) -> pl.DataType | None:
    """Return the type that Spark has under a name, with sizes if it has any."""
    plain = _SPARK_TYPES.get(text.strip().lower())
    if plain is not None:
        return plain
    sized = _SIZED.fullmatch(text.strip().lower())
    if sized is None:
        return None
    if sized[1] in ("char", "varchar"):
        return pl.String()
    if sized[1] == "time":
        return pl.Time()
    if sized[1] in ("decimal", "dec", "numeric"):
        return parse_type(f"Decimal({sized[2]}, {sized[3] or 0})")
    return None


def _unknown(place: str, name: str) -> FlowError:
    advice = (
        "read it as a list of structs with key and value" if name.lower() == "map" else f"types are as in {_EXAMPLE}"
    )
    return FlowError(f"column {place!r} has the type {name!r}, which no column of a flow can have; {advice}")


class _Ddl:
    """Reads Spark's DDL without Spark; types that are named as in Polars are understood, too."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(match.group(), match.start()) for match in _TOKEN.finditer(text)]
        self._next = 0

    def read(self) -> dict[str, pl.DataType]:
        """Return all columns."""
        columns = self._read_columns("")
        if self._next < len(self._tokens):
            raise self._stuck("a comma")
        return columns

    def _read_columns(self, place: str) -> dict[str, pl.DataType]:
        columns: dict[str, pl.DataType] = {}
        while True:
            name = self._take("the name of a column")
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if name in columns:
                msg = f"the schema {self._text!r} has the column {name!r} twice; rename one of them"
                raise FlowError(msg)
            self._skip(":")
            columns[name] = self._read_type(f"{place}{name}")
            self._skip_remarks()
            if not self._skip(","):
                return columns

    def _read_type(self, place: str) -> pl.DataType:
        start = self._next
        name = self._take(f"the type of {place!r}")
        match name.lower():
            case "array":
                self._expect("<")
                inner = self._read_type(f"{place}[]")
                self._expect(">")
                return pl.List(inner)
            case "struct" if self._skip("<"):
                fields = self._read_columns(f"{place}.")
                self._expect(">")
                return pl.Struct(fields)
        if self._skip("("):
            depth = 1
            while depth:
                token = self._take("a closing bracket", any_token=True)
                depth += (token == "(") - (token == ")")
        last, at = self._tokens[self._next - 1]
        text = self._text[self._tokens[start][1] : at + len(last)]
        found = _read_name(text)
        if found is not None:
            return found
        try:
            return parse_type(text)
        except FlowError:
            raise _unknown(place, text) from None

    def _skip_remarks(self) -> None:
        """Pass over what a flow has no use for: nulls may be anywhere, and comments are for people."""
        if self._peek().lower() == "not":
            self._next += 2
        if self._peek().lower() == "comment":
            self._next += 2

    def _peek(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _skip(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._next += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise self._stuck(repr(token))

    def _take(self, what: str, *, any_token: bool = False) -> str:
        token = self._peek()
        if not token or (not any_token and token in "<>(),:"):
            raise self._stuck(what)
        self._next += 1
        return token

    def _stuck(self, expected: str) -> FlowError:
        found = f"{self._text[self._tokens[self._next][1] :]!r}" if self._next < len(self._tokens) else "its end"
        return FlowError(
            f"the schema {self._text!r} cannot be read: expected {expected}, found {found}; write it as in {_EXAMPLE!r}"
        )

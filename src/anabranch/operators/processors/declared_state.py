"""What a processor keeps of every key: declared as fields of its class, stored as columns of the state."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Protocol

import polars as pl

from anabranch.errors import FlowError
from anabranch.operators.processors.checked_values import Check, make_check
from anabranch.operators.processors.state_collections import HeldList, HeldMap, Note, Part, make_part

DType = pl.DataType | type[pl.DataType]


class _Missing(Enum):
    """Tells a default that was not given from one that is None."""

    DEFAULT = "no default"


class StateField(Protocol):
    """One declared field: what it holds, and how it is laid into a column.

    A field that holds its default, nothing or no entries is stored as null: a key with nothing but nulls is forgotten.
    """

    @property
    def kind(self) -> str:
        """Its kind, as checkpoints know it."""
        ...

    @property
    def stored_type(self) -> pl.DataType:
        """The type of its column."""
        ...

    @property
    def has_default(self) -> bool:
        """Whether keys that were stored before the field was added have a value for it."""
        ...

    @property
    def filler(self) -> pl.Expr:
        """What a frame has in place of null."""
        ...

    def load(self, stored: Any, note: Note) -> Any:
        """Return what users see of a stored value."""
        ...

    def accept(self, given: Any, name: str, changed: set[str]) -> Any:
        """Return what users see once they assigned a value; raise ``TypeError`` if it does not fit.

        ``name`` is the field's; ``changed`` is where it is noted that it was changed in place later.
        """
        ...

    def store(self, held: Any) -> Any:
        """Return what is stored of what users see."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what a checkpoint depends on, as plain JSON data."""
        ...


def _describe(field: StateField) -> dict[str, Any]:
    """Return what a checkpoint depends on in fields of any kind."""
    return {"kind": field.kind, "type": str(field.stored_type), "has_default": field.has_default}


@dataclass(frozen=True)
class ValueField:
    """One value; None stands for the default."""

    kind: ClassVar[str] = "value"
    dtype: pl.DataType
    default: Any = _Missing.DEFAULT

    @property
    def stored_type(self) -> pl.DataType:
        return self.dtype

    @property
    def has_default(self) -> bool:
        return self.default is not _Missing.DEFAULT

    @property
    def filler(self) -> pl.Expr:
        return pl.lit(self._default, dtype=self.dtype)

    @cached_property
    def _default(self) -> Any:
        return self.default if self.has_default else None

    @cached_property
    def _part(self) -> Part:
        return make_part(self.dtype, make_check(self.dtype))

    def load(self, stored: Any, note: Note) -> Any:
        if stored is None:
            stored = deepcopy(self._default) if self._part.view is not None else self._default
        return self._part.see(stored, note)

    def accept(self, given: Any, name: str, changed: set[str]) -> Any:
        part = self._part
        if given is None or part.view is not None:
            note = Note(name, changed)
            return self.load(None if given is None else note.check(part.check, given), note)
        try:
            return part.check(given)
        except TypeError as error:
            raise Note(name, changed).complain(error) from error

    def store(self, held: Any) -> Any:
        if held is None or (held == self._default and self._reads_as_default(held)):
            return None
        return held if self._part.view is None else held.plain

    def _reads_as_default(self, held: Any) -> bool:
        # 0.0 and -0.0 are equal, and yet not the same.
        return bool(held and self._part.view is None) or repr(held) == repr(self._default)

    def describe(self) -> dict[str, Any]:
        return _describe(self) | {"default": repr(self._default)}


@dataclass(frozen=True)
class ListField:
    """Values in the order in which they were added."""

    kind: ClassVar[str] = "list"
    has_default: ClassVar[bool] = True
    item: pl.DataType

    @cached_property
    def stored_type(self) -> pl.DataType:
        return pl.List(self.item)

    @property
    def filler(self) -> pl.Expr:
        return pl.lit([], dtype=self.stored_type)

    @cached_property
    def _part(self) -> Part:
        return make_part(self.item, make_check(self.item))

    def load(self, stored: Any, note: Note) -> Any:
        return HeldList(self._part, [] if stored is None else stored, note)

    def accept(self, given: Any, name: str, changed: set[str]) -> Any:
        held = HeldList(self._part, [], Note(name, changed))
        held.extend(() if given is None else given)
        return held

    def store(self, held: Any) -> Any:
        return held.plain or None

    def describe(self) -> dict[str, Any]:
        return _describe(self)


@dataclass(frozen=True)
class MapField:
    """Values by key, in the order in which keys were added."""

    kind: ClassVar[str] = "map"
    has_default: ClassVar[bool] = True
    key: pl.DataType
    value: pl.DataType

    @cached_property
    def stored_type(self) -> pl.DataType:
        return pl.List(pl.Struct({"key": self.key, "value": self.value}))

    @property
    def filler(self) -> pl.Expr:
        return pl.lit([], dtype=self.stored_type)

    @cached_property
    def _check_key(self) -> Check:
        return make_check(self.key)

    @cached_property
    def _part(self) -> Part:
        return make_part(self.value, make_check(self.value))

    def load(self, stored: Any, note: Note) -> Any:
        entries = {} if stored is None else {entry["key"]: entry["value"] for entry in stored}
        return HeldMap(self._check_key, self._part, entries, note)

    def accept(self, given: Any, name: str, changed: set[str]) -> Any:
        held = HeldMap(self._check_key, self._part, {}, Note(name, changed))
        held.update({} if given is None else given)
        return held

    def store(self, held: Any) -> Any:
        return [{"key": key, "value": value} for key, value in held.plain.items()] or None

    def describe(self) -> dict[str, Any]:
        return _describe(self)


def value(dtype: DType, default: Any = _Missing.DEFAULT) -> ValueField:
    """Declare one value per key: ``last = ab.value(pl.Float64(), default=0.0)``; None puts the default back.

    Only a field that says its default, be it None, can be added to a processor that has a checkpoint already.

    Examples:
        >>> class Counter(ab.Processor):
        ...     rows = ab.value(pl.Int64(), default=0)
        ...
        ...     def on_time(self, row, state, timers):
        ...         state.rows += 1
        ...         yield {"rows": state.rows}
        >>> keyed = readings.watermark("ts").key_by("sensor")
        >>> collect(keyed.process(Counter(), schema={"sensor": pl.Int64, "rows": pl.Int64}))
        [(1, 1), (1, 2), (1, 3), (2, 1)]
    """
    made = _instance(dtype, "value")
    if isinstance(made, pl.List):
        msg = f"value({made}): several values are declared by ab.listed({made.inner})"
        raise FlowError(msg)
    if default is not _Missing.DEFAULT and default is not None:
        try:
            default = make_check(made)(default)
        except TypeError as error:
            msg = f"value({made}): the default {error}"
            raise FlowError(msg) from error
    return ValueField(made, default)


def listed(dtype: DType) -> ListField:
    """Declare a list per key, empty at first: ``seen = ab.listed(pl.Int64())``.

    Examples:
        >>> class Seen(ab.Processor):
        ...     seconds = ab.listed(pl.Int64())
        ...
        ...     def on_time(self, row, state, timers):
        ...         state.seconds.append(row["ts"].second)
        ...         yield {"seconds": len(state.seconds)}
        >>> keyed = readings.watermark("ts").key_by("sensor")
        >>> collect(keyed.process(Seen(), schema={"sensor": pl.Int64, "seconds": pl.Int64}))
        [(1, 1), (1, 2), (1, 3), (2, 1)]
    """
    return ListField(_instance(dtype, "listed"))


def mapped(key: DType, value: DType) -> MapField:
    """Declare a map per key, empty at first: ``totals = ab.mapped(pl.String(), pl.Int64())``.

    Examples:
        >>> class ByHalfMinute(ab.Processor):
        ...     totals = ab.mapped(pl.Int64(), pl.Float64())
        ...
        ...     def on_time(self, row, state, timers):
        ...         half = row["ts"].second // 30
        ...         state.totals[half] = state.totals.get(half, 0.0) + row["volts"]
        ...         yield {"volts": state.totals[half]}
        >>> keyed = readings.filter("sensor = 2").watermark("ts").key_by("sensor")
        >>> collect(keyed.process(ByHalfMinute(), schema={"sensor": pl.Int64, "volts": pl.Float64}))
        [(2, 229.5)]
    """
    made = _instance(key, "mapped")
    if made.is_nested() or made.is_float():
        msg = f"mapped: keys of a map are {made}; use plain values that are equal or not, such as integers or strings"
        raise FlowError(msg)
    return MapField(made, _instance(value, "mapped"))


class StoredFields(Protocol):
    """The stored fields of one key."""

    def __getitem__(self, name: str, /) -> Any:
        """Return what is stored of a field; None where that is nothing."""
        ...


class KeyState:
    """What a processor keeps of one key: ``state.last``, ``state.seen.append(…)``, ``state.totals["a"]``.

    Examples:
        >>> class Last(ab.Processor):
        ...     last = ab.value(pl.Float64())
        ...     seen = ab.listed(pl.Float64())
        ...
        ...     def on_time(self, row, state: ab.KeyState, timers):
        ...         state.seen.append(row["volts"])
        ...         state.last = row["volts"]
        ...         if len(state.seen) == 3:
        ...             yield {"seen": len(state.seen), "last": state.last}
        ...             state.clear()
        >>> keyed = readings.watermark("ts").key_by("sensor")
        >>> collect(keyed.process(Last(), schema={"sensor": pl.Int64, "seen": pl.Int64, "last": pl.Float64}))
        [(1, 3, 231.0)]
    """

    def __init__(self, fields: Mapping[str, StateField], stored: StoredFields) -> None:
        # Past our own __setattr__. What users see of a field is in __dict__ once they have looked at it.
        vars(self).update(_fields=fields, _stored=stored, _changed=set())

    def __getattr__(self, name: str) -> Any:
        held = self._field(name).load(self._stored[name], Note(name, self._changed))
        vars(self)[name] = held
        return held

    def __setattr__(self, name: str, given: Any) -> None:
        held = self.__dict__
        field = held["_fields"].get(name) or self._field(name)
        changed = held["_changed"]
        # What ``state.seen += […]`` assigns is what was there, and has been checked.
        if given is None or given is not held.get(name):
            held[name] = field.accept(given, name, changed)
        changed.add(name)

    def __delattr__(self, name: str) -> None:
        setattr(self, name, None)

    def clear(self) -> None:
        """Put every field back to its default."""
        for name in self._fields:
            setattr(self, name, None)

    def _field(self, name: str) -> StateField:
        field: StateField | None = vars(self)["_fields"].get(name)
        if field is None:
            declared = ", ".join(vars(self)["_fields"]) or "none"
            msg = f"state.{name} is not declared; declared are {declared}: add {name} = ab.value(…) to the class"
            raise AttributeError(msg)
        return field


def changes_of(state: KeyState) -> dict[str, Any]:
    """Return what must be stored anew, by field."""
    seen = vars(state)
    return {name: field.store(seen[name]) for name, field in seen["_fields"].items() if name in seen["_changed"]}


_RESERVED = ("clear", "state_fields", "event_timers", "processing_timers", "waiting_rows")
"""Names that a state has for itself, or that reading it adds."""


def collect_fields(processor: type) -> dict[str, StateField]:
    """Return the fields that a class and those above it declare, the topmost first."""
    fields: dict[str, StateField] = {}
    for declaring in reversed(processor.__mro__):
        for name, declared in vars(declaring).items():
            if isinstance(declared, ValueField | ListField | MapField):
                if name.startswith("_") or name in _RESERVED:
                    msg = f"{processor.__name__}.{name}: a field cannot be called that; choose another name"
                    raise FlowError(msg)
                fields[name] = declared
            else:
                fields.pop(name, None)
    return fields


def _instance(dtype: DType, where: str) -> pl.DataType:
    made = dtype() if isinstance(dtype, type) else dtype
    if not isinstance(made, pl.DataType) or not _can_be_stored(made):
        msg = f"{where}: {dtype!r} cannot be stored; give a type of Polars, such as pl.Int64() or pl.String()"
        raise FlowError(msg)
    return made


def _can_be_stored(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return all(_can_be_stored(field.dtype) for field in dtype.fields)
    if isinstance(dtype, pl.List | pl.Array):
        return _can_be_stored(dtype.inner)
    return dtype not in (pl.Object, pl.Null, pl.Unknown)

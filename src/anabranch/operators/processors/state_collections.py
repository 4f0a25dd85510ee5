"""Lists, maps and structs that a processor keeps of a key: what goes in is checked, and every change is noted.

They are views of plain values. What lies inside one is handed out as a view, too, so that a change at any depth is
checked like one at the top, and noted for the field as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.operators.processors.checked_values import Check, make_check, or_null


@dataclass(slots=True)
class Note:
    """Where a change of a field in place is written down."""

    field: str
    changed: set[str]
    """The fields that must be stored anew."""

    def __call__(self) -> None:
        self.changed.add(self.field)

    def check(self, check: Check, given: Any) -> Any:
        """Return a value as it will be read again; what is raised says for which field."""
        try:
            return check(given)
        except TypeError as error:
            raise self.complain(error) from error

    def complain(self, text: object) -> TypeError:
        """Return the error that says which field something does not fit."""
        return TypeError(f"state.{self.field}: {text}")


View = Callable[[Any, Note], Any]
"""Returns what users see of a plain value."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a place in a list, map or struct takes, and how it is seen; plain values have no view."""

    check: Check
    view: View | None

    def see(self, value: Any, note: Note) -> Any:
        """Return what users see of a value."""
        return value if self.view is None or value is None else self.view(value, note)


def make_part(dtype: pl.DataType, check: Check | None = None) -> Part:
    """Return what a place of this type takes: null, too, unless another check is given."""
    return Part(check or or_null(make_check(dtype)), make_view(dtype))


def make_view(dtype: pl.DataType) -> View | None:
    """Return how values of a type are seen; None if they are what they are."""
    if isinstance(dtype, pl.Struct):
        parts = {field.name: make_part(_instance(field.dtype)) for field in dtype.fields}
        return lambda fields, note: HeldStruct(parts, fields, note)
    if isinstance(dtype, pl.Array):
        part = make_part(_instance(dtype.inner))
        return lambda items, note: HeldArray(part, items, note)
    if isinstance(dtype, pl.List):
        part = make_part(_instance(dtype.inner))
        return lambda items, note: HeldList(part, items, note)
    return None


class HeldList(MutableSequence[Any]):
    """A list; every value is checked as it is put in, and kept as a copy."""

    __slots__ = ("_items", "_note", "_part")

    def __init__(self, part: Part, items: list[Any], note: Note) -> None:
        self._part = part
        self._items = items
        self._note = note

    @property
    def plain(self) -> list[Any]:
        """What is seen through this."""
        return self._items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        view, note = self._part.view, self._note
        if view is None:
            return iter(self._items)
        return (None if item is None else view(item, note) for item in self._items)

    def __getitem__(self, index: Any) -> Any:
        found = self._items[index]
        if self._part.view is None:
            return found
        if isinstance(index, slice):
            return [self._part.see(item, self._note) for item in found]
        return self._part.see(found, self._note)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._items[index] = self._check_all(value) if isinstance(index, slice) else self._check(value)
        self._note()

    def __delitem__(self, index: Any) -> None:
        del self._items[index]
        self._note()

    def insert(self, index: int, value: Any) -> None:
        """Put a value before the one at this place."""
        self._items.insert(index, self._check(value))
        self._note()

    def append(self, value: Any) -> None:
        """Put a value at the end."""
        # In as few calls as can be: this is what most processors do most.
        note = self._note
        try:
            self._items.append(self._part.check(value))
        except TypeError as error:
            raise note.complain(error) from error
        note.changed.add(note.field)

    def extend(self, values: Iterable[Any]) -> None:
        """Put values at the end: all of them, or none if one does not fit."""
        self._items.extend(self._check_all(values))
        self._note()

    def clear(self) -> None:
        """Take everything out."""
        del self[:]

    def reverse(self) -> None:
        """Turn the order around."""
        self._items.reverse()
        self._note()

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        """Put the values in order."""
        part, note = self._part, self._note
        if key is None or part.view is None:
            self._items.sort(key=key, reverse=reverse)
        else:
            self._items.sort(key=lambda item: key(part.see(item, note)), reverse=reverse)
        self._note()

    def copy(self) -> list[Any]:
        """Return a list of the same values."""
        return list(self)

    def __contains__(self, value: object) -> bool:
        return value in self._items

    def __add__(self, others: Any) -> list[Any]:
        return [*self, *others]

    def __radd__(self, others: Any) -> list[Any]:
        return [*others, *self]

    def __mul__(self, times: int) -> list[Any]:
        return list(self) * times

    __rmul__ = __mul__

    def __imul__(self, times: int) -> HeldList:
        self[:] = self._items * times
        return self

    def __eq__(self, other: object) -> bool:
        return bool(self._items == _plain_of(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self._items < _plain_of(other))

    def __le__(self, other: Any) -> bool:
        return bool(self._items <= _plain_of(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self._items > _plain_of(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self._items >= _plain_of(other))

    __hash__ = None  # type: ignore[assignment]  # as that of a list

    def __repr__(self) -> str:
        return repr(self._items)

    def __copy__(self) -> list[Any]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return deepcopy(self._items, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self._items,)

    def _check(self, value: Any) -> Any:
        return self._note.check(self._part.check, value)

    def _check_all(self, values: Iterable[Any]) -> list[Any]:
        check, note = self._part.check, self._note
        return [note.check(check, value) for value in values]


class HeldArray(HeldList):
    """A list that has always as many values."""

    __slots__ = ()

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            value = list(value)
            if len(value) != len(self._items[index]):
                raise self._refuse()
        super().__setitem__(index, value)

    def __delitem__(self, index: Any) -> None:
        raise self._refuse()

    def insert(self, index: int, value: Any) -> None:
        """Refuse: there is no room."""
        raise self._refuse()

    def append(self, value: Any) -> None:
        """Refuse: there is no room."""
        raise self._refuse()

    def extend(self, values: Iterable[Any]) -> None:
        """Refuse: there is no room."""
        raise self._refuse()

    def _refuse(self) -> TypeError:
        return self._note.complain(
            f"an array has {len(self._items)} values, no more and no fewer; declare a pl.List for what grows or shrinks"
        )


class _HeldEntries(MutableMapping[Any, Any]):
    """What maps and structs share."""

    __slots__ = ("_entries", "_note")

    def __init__(self, entries: dict[Any, Any], note: Note) -> None:
        self._entries = entries
        self._note = note

    @property
    def plain(self) -> dict[Any, Any]:
        """What is seen through this."""
        return self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key; put the default there first if there is none."""
        if key not in self:
            self[key] = default
        # Not the default itself: what was put in is a copy of it.
        return self[key]

    def copy(self) -> dict[Any, Any]:
        """Return a dict of the same entries."""
        return dict(self)

    def __or__(self, others: Any) -> dict[Any, Any]:
        return {**self, **others}

    def __ror__(self, others: Any) -> dict[Any, Any]:
        return {**others, **self}

    def __ior__(self, others: Any) -> _HeldEntries:
        self.update(others)
        return self

    def __eq__(self, other: object) -> bool:
        return bool(self._entries == _plain_of(other))

    __hash__ = None  # type: ignore[assignment]  # as that of a dict

    def __repr__(self) -> str:
        return repr(self._entries)

    def __copy__(self) -> dict[Any, Any]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return deepcopy(self._entries, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._entries,)


class HeldMap(_HeldEntries):
    """A declared map of one key; every entry is checked as it is put in, and kept as a copy."""

    __slots__ = ("_check_key", "_part")

    def __init__(self, check_key: Check, part: Part, entries: dict[Any, Any], note: Note) -> None:
        super().__init__(entries, note)
        self._check_key = check_key
        self._part = part

    def __getitem__(self, key: Any) -> Any:
        try:
            found = self._entries[key]
        except KeyError:
            found = self._entries[self._find(key)]
        view = self._part.view
        return found if view is None or found is None else view(found, self._note)

    def __contains__(self, key: object) -> bool:
        return key in self._entries or self._find(key) in self._entries

    def __setitem__(self, key: Any, value: Any) -> None:
        note = self._note
        try:
            self._entries[self._check_key(key)] = self._part.check(value)
        except TypeError as error:
            raise note.complain(error) from error
        note.changed.add(note.field)

    def __delitem__(self, key: Any) -> None:
        del self._entries[key if key in self._entries else self._find(key)]
        self._note()

    def clear(self) -> None:
        """Take everything out."""
        self._entries.clear()
        self._note()

    def _find(self, key: Any) -> Any:
        """Return a key as it would have been put in, such as a moment in UTC; as it is if it could not have been."""
        try:
            return self._check_key(key)
        except TypeError:
            return key


class HeldStruct(_HeldEntries):
    """A struct: it has all its fields at all times, and what is taken out of one leaves null."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Mapping[str, Part], fields: dict[str, Any], note: Note) -> None:
        super().__init__(fields, note)
        self._parts = parts

    def __getitem__(self, name: Any) -> Any:
        part = self._parts.get(name)
        if part is None:
            raise KeyError(name)
        found = self._entries[name]
        return found if part.view is None or found is None else part.view(found, self._note)

    def __setitem__(self, name: Any, value: Any) -> None:
        part = self._parts.get(name)
        if part is None:
            raise self._note.complain(f"{name!r} is no field of the struct; it has {', '.join(self._parts)}")
        self._entries[name] = self._note.check(part.check, value)
        self._note()

    def __delitem__(self, name: Any) -> None:
        self[name] = None

    def popitem(self) -> tuple[Any, Any]:
        """Refuse: fields stay."""
        raise self._note.complain("a struct keeps its fields; use pop with the name of one")

    def clear(self) -> None:
        """Set every field to null."""
        for name in self._parts:
            self[name] = None


def _plain_of(value: Any) -> Any:
    return value.plain if isinstance(value, HeldList | _HeldEntries) else value


def _instance(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made

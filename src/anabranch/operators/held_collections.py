"""Lists and maps that a processor keeps of a key: what goes in is checked, and it is noted that they changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence
from typing import Any

from anabranch.operators.checked_values import Check


class HeldList(MutableSequence[Any]):
    """A declared list of one key; every value is checked as it is put in."""

    __slots__ = ("_check", "_items", "changed")

    def __init__(self, check: Check, items: Iterable[Any]) -> None:
        self._check = check
        self._items = list(items)
        self.changed = False

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._items[index] = [self._check(item) for item in value] if isinstance(index, slice) else self._check(value)
        self.changed = True

    def __delitem__(self, index: Any) -> None:
        del self._items[index]
        self.changed = True

    def insert(self, index: int, value: Any) -> None:
        """Put a value before the one at this place."""
        self._items.insert(index, self._check(value))
        self.changed = True

    def append(self, value: Any) -> None:
        """Put a value at the end."""
        self._items.append(self._check(value))
        self.changed = True

    def clear(self) -> None:
        """Take everything out."""
        del self[:]

    def __eq__(self, other: object) -> bool:
        return self._items == (other._items if isinstance(other, HeldList) else other)

    __hash__ = None  # type: ignore[assignment]  # as that of a list

    def __repr__(self) -> str:
        return repr(self._items)


class HeldMap(MutableMapping[Any, Any]):
    """A declared map of one key; every entry is checked as it is put in."""

    __slots__ = ("_check_key", "_check_value", "_entries", "changed")

    def __init__(self, check_key: Check, check_value: Check, entries: dict[Any, Any]) -> None:
        self._check_key = check_key
        self._check_value = check_value
        self._entries = entries
        self.changed = False

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __getitem__(self, key: Any) -> Any:
        return self._entries[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._entries[self._check_key(key)] = self._check_value(value)
        self.changed = True

    def __delitem__(self, key: Any) -> None:
        del self._entries[key]
        self.changed = True

    def __repr__(self) -> str:
        return repr(self._entries)

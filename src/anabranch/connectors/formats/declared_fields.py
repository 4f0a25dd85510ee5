"""A schema as the tree that ``json_walker`` walks along: which names to look for, and what to make of their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled import json_walk_layout as layout
from anabranch.connectors.formats.schemas import whole_type
from anabranch.connectors.formats.text_values import FRACTION_DIGITS, WORDS, integer_range
from anabranch.eventtime.time_range import time_bounds

Ints = NDArray[np.int64]

_LARGEST_FLOATS: dict[type[pl.DataType], float] = {pl.Float32: 3.4028234663852886e38, pl.Float16: 65504.0}
_LARGEST_INTEGER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Node:
    """A column, a field of a struct or the items of a list."""

    name: str
    type: pl.DataType
    kind: int
    parent: int
    """The struct or list that it is in, -1 for the row itself."""
    end: int
    """The first node that is no longer in this one."""
    list_node: int
    """The innermost list that it is in, -1 if there is one value a row."""


@dataclass(frozen=True, slots=True)
class DeclaredFields:
    """The nodes, each before what is in it, and the same in the form that compiled code reads."""

    nodes: tuple[Node, ...]
    table: Ints
    """A row a node, with the addresses of ``names`` and ``hashed`` in it."""
    names: tuple[NDArray[np.uint8], ...]
    hashed: tuple[Ints, ...]

    def children(self, node: int) -> list[int]:
        """Return the fields of a struct, or the items of a list."""
        return [number for number, other in enumerate(self.nodes) if other.parent == node]


def plan_fields(schema: Mapping[str, pl.DataType]) -> DeclaredFields | None:
    """Return the tree of a schema; None if it has a type that is left to others."""
    return _plan(tuple((name, whole_type(kind)) for name, kind in schema.items()))


@lru_cache(maxsize=64)
def _plan(columns: tuple[tuple[str, pl.DataType], ...]) -> DeclaredFields | None:
    nodes: list[Node] = []
    if not _add_node(nodes, "", pl.Struct(dict(columns)), -1, -1):
        return None
    return _lay_out(nodes)


def _add_node(nodes: list[Node], name: str, kind: pl.DataType, parent: int, list_node: int) -> bool:
    """Put a node, and all in it, behind the others; say whether all of it is read here."""
    number = len(nodes)
    if isinstance(kind, pl.Struct):
        fields = {field.name: whole_type(field.dtype) for field in kind.fields}
        nodes.append(Node(name, kind, layout.STRUCT, parent, 0, list_node))
        if not fields or len(fields) != len(kind.fields):
            return False
        if not all(_add_node(nodes, field, inner, number, list_node) for field, inner in fields.items()):
            return False
    elif isinstance(kind, pl.List):
        nodes.append(Node(name, kind, layout.LIST, parent, 0, list_node))
        if not _add_node(nodes, "", whole_type(kind.inner), number, number):
            return False
    else:
        leaf = _find_kind(kind)
        if leaf is None:
            return False
        nodes.append(Node(name, kind, leaf, parent, 0, list_node))
    held = nodes[number]
    nodes[number] = Node(held.name, held.type, held.kind, parent, len(nodes), list_node)
    return True


def _find_kind(kind: pl.DataType) -> int | None:
    """Return how values of a type are read; None if that is left to others."""
    match kind:
        case pl.Boolean():
            return layout.TRUTH
        case pl.Datetime():
            # Where clocks are set, a whole column is asked about at once.
            return layout.MOMENT if kind.time_zone in (None, "UTC") else layout.WRITTEN
        case pl.Date():
            return layout.DAY
        case pl.Time():
            return layout.QUOTED
        case pl.Decimal():
            return layout.WRITTEN
    if isinstance(kind, WORDS):
        return layout.TEXT
    if kind.is_float():
        return layout.FLOAT
    return layout.INTEGER if kind.is_integer() else None


def _lay_out(nodes: list[Node]) -> DeclaredFields:
    table = np.zeros((len(nodes), layout.NODE_SIZE), np.int64)
    # Eight bytes of a name are looked at, however short it is.
    names = tuple(np.frombuffer(node.name.encode() + bytes(8), np.uint8) for node in nodes)
    hashed = []
    for number, node in enumerate(nodes):
        size_bytes = len(names[number]) - 8
        lowest, highest = _bounds(node.type)
        row = table[number]
        row[layout.KIND], row[layout.END] = node.kind, node.end
        row[layout.IS_HELD] = node.list_node >= 0
        row[layout.NAME], row[layout.NAME_SIZE] = names[number].ctypes.data, size_bytes
        row[layout.NAME_WORD] = names[number][:8].view(np.int64)[0] if size_bytes else 0
        row[layout.LOWEST], row[layout.HIGHEST] = lowest, highest
        row[layout.LARGEST] = np.float64(_LARGEST_FLOATS.get(type(node.type), np.inf)).view(np.int64)
        if isinstance(node.type, pl.Datetime):
            row[layout.FRACTION_DIGITS] = FRACTION_DIGITS[node.type.time_unit]
        siblings = [other for other in range(len(nodes)) if nodes[other].parent == node.parent]
        row[layout.SIBLING] = next((other for other in siblings if other > number), -1)
        if node.kind == layout.STRUCT:
            fields = [other for other in range(len(nodes)) if nodes[other].parent == number]
            bits = (4 * len(fields)).bit_length()
            hashed.append(_hash_names(fields, [nodes[field].name.encode() for field in fields], bits))
            row[layout.TABLE], row[layout.TABLE_BITS] = hashed[-1].ctypes.data, bits
    return DeclaredFields(tuple(nodes), table, names, tuple(hashed))


def _hash_names(fields: list[int], names: list[bytes], bits: int) -> Ints:
    """Return a table with every field in the first free place from that of its name on."""
    table = np.full(2**bits, -1, np.int64)
    for field, name in zip(fields, names, strict=True):
        mixed = (int.from_bytes(name[:8], "little") + len(name)) * layout.NAME_HASH_FACTOR
        slot = (mixed & (2**64 - 1)) >> (64 - bits)
        while table[slot] >= 0:
            slot = (slot + 1) % 2**bits
        table[slot] = field
    return table


def _bounds(kind: pl.DataType) -> tuple[int, int]:
    """Return the least and the largest number of a type, as far as 64 bits hold them."""
    if isinstance(kind, pl.Datetime | pl.Date):
        return time_bounds(kind)
    if kind.is_integer():
        lowest, highest = integer_range(kind)
        return max(lowest, -_LARGEST_INTEGER), min(highest, _LARGEST_INTEGER)
    return 0, 0

"""How ``json_walker`` is told what to look for and where to put it: whole numbers in rows, addresses among them."""

from __future__ import annotations

STRUCT, LIST, TEXT, WRITTEN, QUOTED, INTEGER, FLOAT, TRUTH, MOMENT, DAY = range(10)
"""What a node holds. Of texts: any value as it is written, one that is a string or a number, one that is a string."""

NODE_SIZE = 20
(
    KIND,
    END,  # The first node that is no longer in this one.
    SIBLING,  # The next field of the same struct, -1 behind the last.
    IS_HELD,  # In a list: there may be another number of values than there are rows.
    NAME,
    NAME_SIZE,
    NAME_WORD,  # Its first eight bytes.
    TABLE,  # The fields of a struct, hashed by their names.
    TABLE_BITS,
    LOWEST,
    HIGHEST,
    LARGEST,  # A float.
    FRACTION_DIGITS,
    VALUES,
    VALID,
    ROOM,
    COUNT,
    SAVED_COUNT,
    NULLS,  # Not less than there are; none if there is none.
) = range(NODE_SIZE - 1)
"""A node is a row of whole numbers; names, tables, values are given by their addresses."""

JOB_SIZE = 21
(
    TEXT_AT,
    TEXT_END,
    BUFFER,  # The number of the text among the buffers of a column.
    LINE_STARTS,
    LINE_ENDS,
    LINES,  # How many lines are placed; none if they follow each other.
    DEEPEST,
    NODES,
    NODE_COUNT,
    ROW_STARTS,
    STACK,
    SIDE,
    SIDE_BYTES,
    DOUBTS,
    DOUBT_ROOM,
    DOUBT_COUNT,
    LONG_FLOATS,
    LONG_FLOAT_ROOM,
    LONG_FLOAT_COUNT,
    HIGH_BITS,
    AT,  # Where in the text the walk is, or at which of the placed lines.
) = range(JOB_SIZE)
"""What is walked over, where everything goes, and how far it has come."""

DOUBT_SIZE, LONG_FLOAT_SIZE = 3, 4
DONE, NO_ROOM_FOR_NOTES, NO_ROOM_FOR_VALUES = -2, -1, 0
"""How a walk ends; where there is no room for values, it ends with the number of the node."""
SIDE_BUFFER = 0
"""The number of the buffer that texts lie in which were written with escapes."""
NAME_HASH_FACTOR = 0x9E3779B97F4A7C15

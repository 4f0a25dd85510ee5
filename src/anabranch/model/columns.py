"""Names of the columns that the engine adds; users may not use them for their own."""

from __future__ import annotations

HASH = "__hash"
"""UInt64, the stable hash of the key columns; runs are sorted by (window, hash)."""

WINDOW = "__window"
"""Int64 microseconds: the start of the window (or of the pane, before windows are laid over it)."""

ORDER = "__order"
"""Int64: a row's place in its batch, (split ordinal << 36) | row, or the producer's key hash after a hop."""

SEEN = "__seen"
"""Int64 microseconds: when a key was last seen, for time-to-live."""

TIME = "__time"
"""Datetime in microseconds, without a zone: a row's event time, whatever its own column is called."""

BATCH = "__batch"
"""Int64: the batch that a row came in, for aggregates whose result depends on order."""

BUCKET = "__bucket"

SECTION = "__section"
"""Int8: the section of the state that a row of a join is of: rows of the left input, which of them met somebody, the
same of the right input."""

DRAW = "__draw"
"""UInt32: a number drawn for a row of a join, where routes place rows by it."""

USE = "__use"
"""UInt8: what a row of a join is for in the slot that got it, where that is not both: to be stored, or to probe."""

WINDOW_START = "window_start"
WINDOW_END = "window_end"

WINDOW_NUMBER = "window"
"""Int64: which of a key's count windows a result is, from 0."""

EMISSION = "emission"
"""String: *early*, *final* or *update*, where a window may be emitted more than once."""
PARTITION = "__partition"
"""String: which partition of which source rows were read from, while they are on their way to a stateless operator."""

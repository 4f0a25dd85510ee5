"""Looking into a checkpoint: what lies where, and the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from anabranch.errors import CheckpointError
from anabranch.model import RunRef
from anabranch.state.manifest import LevelState, Manifest
from anabranch.state.runs import RunFiles, WriteName
from anabranch.state.store import Store

SLOT = "__slot"
RUN = "__run"
"""The age of a row's run within its slot: 0 is the oldest. Where rows of a key are totals, the highest counts."""

_READ_ONLY = WriteName(epoch=0, batch=0, attempt=0, unique="reader")


def list_slots(manifest: Manifest) -> pl.DataFrame:
    """Return one row an operator and slot: its runs, live rows, bytes, and the batches its runs come from.

    What readers hold back of an operator is there as well, by reader.
    """
    rows = [
        {
            "operator": level.operator,
            "slot": slot,
            "buckets": level.routes["base"].get("slot_of", []).count(slot),
            "runs": len(refs),
            "rows": sum(ref.live_rows for ref in refs),
            "bytes": sum(ref.bytes for ref in refs),
            "oldest_batch": min((ref.batch for ref in refs), default=None),
            "newest_batch": max((ref.batch for ref in refs), default=None),
        }
        for level in manifest.levels
        for slot in range(level.slots)
        for refs in [level.refs_of(slot)]
    ]
    rows += [
        {
            "operator": f"{operator} (readers)",
            "slot": buffer.reader,
            "buckets": 0,
            "runs": len(buffer.runs),
            "rows": sum(ref.live_rows for ref in buffer.runs),
            "bytes": sum(ref.bytes for ref in buffer.runs),
            "oldest_batch": min((ref.batch for ref in buffer.runs), default=None),
            "newest_batch": max((ref.batch for ref in buffer.runs), default=None),
        }
        for operator, buffers in manifest.reader_buffers.items()
        for buffer in buffers
    ]
    schema = {
        "operator": pl.String,
        "slot": pl.Int64,
        "buckets": pl.Int64,
        "runs": pl.Int64,
        "rows": pl.Int64,
        "bytes": pl.Int64,
        "oldest_batch": pl.Int64,
        "newest_batch": pl.Int64,
    }
    return pl.DataFrame(rows, schema=schema)


def find_level(manifest: Manifest, operator: str) -> LevelState:
    """Return the state of an operator by name; raise ``CheckpointError`` naming those that exist."""
    for level in manifest.levels:
        if level.operator == operator:
            return level
    known = ", ".join(level.operator for level in manifest.levels) or "none"
    msg = f"no operator {operator!r} in batch {manifest.batch}; there are: {known}"
    raise CheckpointError(msg)


def list_holders(level: LevelState) -> list[tuple[int, tuple[RunRef, ...]]]:
    """Return (slot, runs) of all that holds state: each slot, and each handoff by itself, as a part of its own."""
    own = [(slot, refs) for slot, refs in enumerate(level.runs) if refs]
    return own + [(slot, (ref,)) for slot, refs in enumerate(level.handoffs) for ref in refs]


def read_rows(store: Store, level: LevelState) -> pl.DataFrame:
    """Return all live rows of an operator, with ``__slot`` and ``__run``; an empty frame if there are none.

    These are the rows as stored: a key may have several, one a run, until they are merged.
    """
    files = RunFiles(store, "state", _READ_ONLY)
    frames = [
        files.read(ref).with_columns(
            pl.lit(slot, dtype=pl.Int64).alias(SLOT), pl.lit(position, dtype=pl.Int64).alias(RUN)
        )
        for slot in range(level.slots)
        for position, ref in enumerate(level.refs_of(slot))
    ]
    # Runs that a processor wrote before it got another field lack its column.
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def find_key(rows: pl.DataFrame, key: Mapping[str, str]) -> pl.DataFrame:
    """Return the rows of a key that is given as text, column by column; each text is read as its column's type."""
    if rows.is_empty():
        return rows
    strangers = [name for name in key if name not in rows.columns]
    if strangers:
        known = [name for name in rows.columns if not name.startswith("__")]
        msg = f"the state has no columns {strangers}; it has {known}"
        raise CheckpointError(msg)
    for name, text in key.items():
        dtype = rows.schema[name]
        value = read_text(text, dtype)
        if value[0] is None:
            msg = f"{text!r} cannot be a value of {name}, which is {dtype}"
            raise CheckpointError(msg)
        rows = rows.filter(pl.col(name) == value[0])
    return rows


def read_text(text: str, dtype: pl.DataType) -> pl.Series:
    """Return a text as one value of a type; null if it cannot be one."""
    if dtype == pl.Binary:
        return pl.Series([text.encode()])
    value = pl.Series([text])
    try:
        if dtype == pl.Date:
            return value.str.to_date(strict=False)
        if dtype == pl.Time:
            return value.str.to_time(strict=False)
        if isinstance(dtype, pl.Datetime):
            return value.str.to_datetime(strict=False, time_unit=dtype.time_unit, time_zone=dtype.time_zone)
        if dtype == pl.Boolean:
            return value.str.to_lowercase().replace_strict({"true": True, "false": False}, default=None)
        return value.cast(dtype, strict=False)
    except pl.exceptions.PolarsError:
        # No form of a time that Polars knows, or a type that texts have none for.
        return pl.Series([None], dtype=dtype)

"""Read what Structured Streaming wrote into its offset log: it is written before the batch runs."""

from __future__ import annotations

import json
from typing import Any

from anabranch.errors import CheckpointError
from anabranch.state.split_log import BEFORE_FIRST
from anabranch.state.store import Store

NOTHING_READ: dict[str, Any] = {"entry": BEFORE_FIRST, "spark": []}


def read_trigger_time(store: Store, batch: int) -> float | None:
    """Return when Spark began to make this batch, in seconds since 1970; None if the log does not say."""
    try:
        metadata = json.loads(store.read(f"spark/offsets/{batch}").decode().splitlines()[1])
        return float(metadata["batchTimestampMs"]) / 1000.0
    except (OSError, ValueError, KeyError, IndexError):
        return None


def read_offset(store: Store, batch: int) -> dict[str, Any]:
    """Return where all sources stand after a batch: our split log's entry, and the offsets of Spark's own sources."""
    if batch < 0:
        return NOTHING_READ
    file = f"spark/offsets/{batch}"
    try:
        lines = store.read(file).decode().splitlines()
    except FileNotFoundError as error:
        msg = f"{store.url}/{file} is missing: Spark's part of the checkpoint is damaged; restore it from a copy"
        raise CheckpointError(msg) from error
    # Line 0 is the log's version, line 1 the batch's metadata, then one line a source.
    entry, others = BEFORE_FIRST, []
    for line in lines[2:]:
        try:
            data = json.loads(line)
        except ValueError:
            data = None
        if isinstance(data, dict) and set(data) == {"entry"}:
            entry = data["entry"]
        else:
            others.append(line)
    return {"entry": entry, "spark": others}

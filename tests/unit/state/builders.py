"""What the tests of this folder build: frames, manifests, checkpoints, clocks."""

from __future__ import annotations

import multiprocessing
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl

from anabranch.model import HASH, WINDOW, RunRef
from anabranch.model.runs import Leaving
from anabranch.routing.phases import PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.state import Checkpoint, LevelState, Manifest, RunFiles, RunsOfSlot, Store, WriteName
from anabranch.state.split_log import LogEntry, SplitLog

# Children of this process would inherit the threads of its libraries in an unknown state; those of a server that
# has loaded the modules and done nothing start clean, and fast.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["anabranch.state", "pytest", "hypothesis"])

HERE = 0
"""The slot that hands over."""
Places = Callable[[pl.DataFrame], Leaving]


def windowed(rows: Sequence[tuple[int, int, int]]) -> pl.DataFrame:
    """Return a sorted frame of (window, hash, value)."""
    schema = {WINDOW: pl.Int64, HASH: pl.UInt64, "value": pl.Int64}
    return pl.DataFrame(list(rows), schema=schema, orient="row").sort(WINDOW, HASH, maintain_order=True)


def unwindowed(rows: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """Return a sorted frame of (hash, value)."""
    schema = {HASH: pl.UInt64, "value": pl.Int64}
    return pl.DataFrame(list(rows), schema=schema, orient="row").sort(HASH, maintain_order=True)


def hashes(*values: int) -> pl.Series:
    return pl.Series(values, dtype=pl.UInt64)


def run_files(store: Store, batch: int = 0, epoch: int = 1, slot: int = 0, **options: Any) -> RunFiles:
    return RunFiles(store, f"state/0/{slot}", WriteName(epoch, batch, 0, "cafe"), **options)


def manifest(batch: int, runs: Sequence[RunRef] = (), epoch: int = 1, **fields: Any) -> Manifest:
    """Return a manifest of a flow with one operator on one slot."""
    given: dict[str, Any] = {
        "flow": "low-voltage",
        "flow_structure": {"operators": ["agg"]},
        "batch": batch,
        "epoch": epoch,
        "query_id": "q-1",
        "start_offset": {"entry": batch - 1},
        "end_offset": {"entry": batch},
        "levels": (LevelState("agg", PhasedRoutes(Routes.even(1, 4)).to_json(), (tuple(runs),)),),
    }
    return Manifest(**(given | fields))


def commit_batches(checkpoint: Checkpoint, count: int, epoch: int = 1) -> list[Manifest]:
    """Commit batches that each add one run of ten rows to the same slot."""
    runs: list[RunRef] = []
    committed = []
    for batch in range(count):
        frame = unwindowed([(key, batch) for key in range(10)])
        runs.append(run_files(checkpoint.store, batch, epoch).write(frame))
        committed.append(checkpoint.commit(manifest(batch, runs, epoch)))
    return committed


def places(slot_of: dict[int, int]) -> Places:
    """Return the function that puts hashes on slots; those that are not named stay."""
    return lambda rows: Leaving.to(np.array([slot_of.get(key, HERE) for key in rows[HASH].to_list()], np.int32), HERE)


def slot_over(store: Store, refs: Sequence[RunRef] = (), batch: int = 0) -> RunsOfSlot:
    """Return a slot with these runs, as a batch finds it."""
    files = run_files(store, batch)
    return RunsOfSlot(refs, files, files)


class Clock:
    """A clock that tests turn."""

    def __init__(self, seconds: float = 1_000_000.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def write_logs(store: Store, batches: Iterable[int]) -> None:
    """Write what Spark and the process that plans splits leave of these batches."""
    for batch in batches:
        SplitLog(store).append(LogEntry(batch))
        content = f'v1\n{{}}\n{{"entry": {batch}}}'.encode()
        for log in ("offsets", "commits"):
            store.write(f"spark/{log}/{batch}", content)
            store.write(f"spark/{log}/.{batch}.crc", checksums_of(content))
    store.write("spark/metadata", b"{}")
    store.write("spark/sources/0/9", b"v1")


def checksums_of(content: bytes) -> bytes:
    """Return what Hadoop writes beside a file: pieces of 512 bytes, a CRC-32 each."""
    pieces = [content[start : start + 512] for start in range(0, len(content), 512)]
    return b"crc\0" + struct.pack(f">{len(pieces) + 1}I", 512, *map(zlib.crc32, pieces))

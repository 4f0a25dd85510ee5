from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import polars as pl

from anabranch.model import HASH
from anabranch.state import (
    Checkpoint,
    Owner,
    Retention,
    RunFiles,
    RunsOfSlot,
    WriteName,
    open_store,
    take_epoch,
    verify,
)
from anabranch.state.inspect import read_rows
from unit.state.builders import PROCESSES, manifest, unwindowed, write_logs

KEPT_BATCHES = 3


def _run_driver(root: str, seed: int) -> None:
    """Commit batches for ever; batch b adds b to the one key there is, and every fifth run starts a compaction."""
    store = open_store(root)
    lease = take_epoch(store, Owner.this_process(), time.time)
    checkpoint = Checkpoint(store, KEPT_BATCHES)
    retention = Retention(checkpoint)
    retention.sweep(lease.epoch, time.time())
    latest = checkpoint.latest()
    for batch in itertools.count(latest.batch + 1 if latest else 0):
        files = RunFiles(store, "state/0/0", WriteName(lease.epoch, batch, 0, f"{seed:x}"))
        state = RunsOfSlot(latest.levels[0].runs[0] if latest else (), files, files)
        state.append(unwindowed([(1, batch)]))
        if len(state.runs()) >= 5:
            merged = pl.concat(state.newest(3)).group_by(HASH, maintain_order=True).agg(pl.col("value").sum())
            state.replace_newest(3, merged)
        write_logs(store, [batch])
        latest = checkpoint.commit(manifest(batch, state.runs(), lease.epoch))
        retention.advance(latest)


def test_a_driver_killed_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    rng = random.Random(7)
    store = open_store(tmp_path)
    reached = -1
    for kill in range(12):
        driver = PROCESSES.Process(target=_run_driver, args=(str(tmp_path), kill))
        driver.start()
        # Every round must get somewhere, then die at any moment of a batch.
        while not (batches := Checkpoint(store).batches()) or batches[-1] <= reached:
            assert driver.is_alive()
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.03))
        driver.kill()
        driver.join()
        checkpoint = Checkpoint(store, KEPT_BATCHES)
        assert verify(checkpoint) == []
        latest = checkpoint.latest()
        assert latest is not None
        reached = latest.batch
        assert read_rows(store, latest.levels[0])["value"].sum() == sum(range(reached + 1))
    # What the kills left behind is found by the next sweep.
    Retention(Checkpoint(store, KEPT_BATCHES)).sweep(epoch=10**6, now_seconds=time.time() + 10**6)
    kept = Checkpoint(store)
    named = {ref.file for batch in kept.batches() for ref in kept.load(batch).files()}
    files = {entry.name for entry in store.list("state")}
    assert named <= files
    assert all(f"-b{reached + 1:012d}-" in file for file in files - named)

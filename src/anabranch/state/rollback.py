"""Going back to an earlier batch: the state, Spark's own logs, and a word to the sinks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from anabranch.errors import CheckpointError, StateDamaged
from anabranch.model import StagedFile
from anabranch.state.checkpoint import COMMITS, Checkpoint, commit_file
from anabranch.state.epochs import Owner, take_epoch
from anabranch.state.manifest import Manifest
from anabranch.state.repair import newest_intact_batch, verify
from anabranch.state.split_log import SplitLog

SPARK_LOGS = ("spark/offsets", "spark/commits")
"""Spark names the entries of its logs by batch number, with a checksum file ``.<number>.crc`` beside each."""

_LOG_ENTRY = re.compile(r"(\d+)|\.(\d+)\.crc")


@dataclass(frozen=True, slots=True)
class Rollback:
    """What was undone, for the sinks to take back."""

    to: Manifest
    """The manifest that the flow goes on from."""
    epoch: int
    undone_batches: tuple[int, ...]
    undone_results: Mapping[int, Mapping[int, tuple[StagedFile, ...]]]
    """Batch → sink → the result files that were published; a batch whose manifest was broken is missing here."""


def roll_back(
    checkpoint: Checkpoint, to_batch: int, owner: Owner, now: Callable[[], float], takeover: bool = False
) -> Rollback:
    """Make a batch the latest one again.

    Manifests of later batches are kept below ``commits/rolled-back/``; their offsets are forgotten by Spark, so that
    the sources are read again from there. Refused while a driver is alive or only stopped, and for a batch whose
    files are damaged. If it is cut short, nothing runs on the half-way state; calling it again finishes it.
    """
    target = _check_target(checkpoint, to_batch)
    lease = take_epoch(checkpoint.store, owner, now, takeover, over_stopped=False)
    try:
        undone = [batch for batch in checkpoint.batches() if batch > to_batch]
        results = {batch: results for batch in undone if (results := _results_of(checkpoint, batch)) is not None}
        # The highest first: whenever this is cut short, the manifests that are left have no gap.
        for batch in reversed(undone):
            kept_as = commit_file(batch).removeprefix(f"{COMMITS}/")
            checkpoint.store.rename(commit_file(batch), f"{COMMITS}/rolled-back/{lease.epoch:08d}/{kept_as}")
        checkpoint.forget(undone)
        _cut_spark_logs(checkpoint, to_batch)
        if target.end_offset is not None:
            SplitLog(checkpoint.store).forget_unreachable(target.end_offset["entry"])
    finally:
        lease.release()
    return Rollback(target, lease.epoch, tuple(undone), results)


def _check_target(checkpoint: Checkpoint, to_batch: int) -> Manifest:
    batches = checkpoint.batches()
    if to_batch not in batches:
        there = f"it keeps {batches[0]} to {batches[-1]}" if batches else "it has none"
        msg = f"cannot return to batch {to_batch} of {checkpoint.store.url}: {there}"
        raise CheckpointError(msg)
    problems = [problem for problem in verify(checkpoint, [to_batch]) if not problem.rebuildable]
    if problems:
        intact = newest_intact_batch(checkpoint)
        advice = f"the newest intact batch is {intact}" if intact is not None else "no kept batch is intact"
        msg = f"cannot return to batch {to_batch}: {problems[0].detail}; {advice}"
        raise StateDamaged(msg)
    _check_spark_logs(checkpoint, to_batch)
    return checkpoint.load(to_batch)


def _check_spark_logs(checkpoint: Checkpoint, to_batch: int) -> None:
    """Raise ``CheckpointError`` if Spark does not know the batch any more: it would begin again with batch 0."""
    if to_batch < 0:
        return
    missing = [log for log in SPARK_LOGS if not _knows(checkpoint, to_batch, log)]
    # A batch that was committed here and not yet by Spark is the latest: Spark runs it again, and its manifest stands.
    if missing and (missing != ["spark/commits"] or to_batch != checkpoint.batches()[-1]):
        kept = [batch for batch in checkpoint.batches() if all(_knows(checkpoint, batch, log) for log in SPARK_LOGS)]
        advice = f"it knows batches {kept[0]} to {kept[-1]}" if kept else "restore the checkpoint from a copy"
        msg = (
            f"cannot return to batch {to_batch} of {checkpoint.store.url}: {missing[0]}/{to_batch} is gone, so Spark "
            f"does not know this batch any more; {advice}"
        )
        raise CheckpointError(msg)


def _knows(checkpoint: Checkpoint, batch: int, log: str) -> bool:
    return checkpoint.store.exists(f"{log}/{batch}")


def _results_of(checkpoint: Checkpoint, batch: int) -> Mapping[int, tuple[StagedFile, ...]] | None:
    try:
        return checkpoint.load(batch).sinks
    except CheckpointError:
        return None


def _cut_spark_logs(checkpoint: Checkpoint, to_batch: int) -> None:
    for folder in reversed(SPARK_LOGS):
        later = []
        for entry in checkpoint.store.list(folder):
            match = _LOG_ENTRY.fullmatch(entry.name.removeprefix(f"{folder}/"))
            if match and int(match[1] or match[2]) > to_batch:
                later.append(entry.name)
        checkpoint.store.delete(later)

"""Going back to an earlier batch: the state, Spark's own logs, and a word to the sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.errors import CheckpointError, StateDamaged
from anabranch.model import StagedFile
from anabranch.model.events import RecoveryEvent
from anabranch.state.checkpoint import COMMITS, Checkpoint, commit_file
from anabranch.state.epochs import Owner, take_epoch
from anabranch.state.event_log import EventLog
from anabranch.state.manifest import Manifest
from anabranch.state.repair import newest_intact_batch, verify
from anabranch.state.spark_logs import SPARK_LOGS, list_log
from anabranch.state.split_log import SplitLog


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
        log = EventLog(checkpoint.store, lease.epoch, lease.check)
        log.add([RecoveryEvent("rollback", f"batches {_name(undone)} were undone", to_batch)], now())
        log.flush()
    finally:
        lease.release()
    return Rollback(target, lease.epoch, tuple(undone), results)


def _name(batches: Sequence[int]) -> str:
    return f"{batches[0]} to {batches[-1]}" if len(batches) > 1 else ", ".join(map(str, batches)) or "none"


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
    return checkpoint.load(to_batch)


def _results_of(checkpoint: Checkpoint, batch: int) -> Mapping[int, tuple[StagedFile, ...]] | None:
    try:
        return checkpoint.load(batch).sinks
    except CheckpointError:
        return None


def _cut_spark_logs(checkpoint: Checkpoint, to_batch: int) -> None:
    for log in reversed(SPARK_LOGS):
        checkpoint.store.delete([file for batch, file in list_log(checkpoint.store, log) if batch > to_batch])

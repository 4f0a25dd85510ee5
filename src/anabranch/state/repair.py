"""Finding damaged state, and going on without it where older runs hold the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from anabranch.errors import CheckpointError, StateDamaged
from anabranch.model import RunRef
from anabranch.state.checkpoint import Checkpoint, commit_file
from anabranch.state.event_files import problems_with_history
from anabranch.state.manifest import Manifest
from anabranch.state.runs import RunDamaged, RunFiles, check_content, open_content
from anabranch.state.slots import RunsOfSlot, join_ranges
from anabranch.state.spark_logs import COMMITS, OFFSETS, find_problem, problem_with_log
from anabranch.state.split_log import SplitLog
from anabranch.state.store import Store

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Problem:
    """One damaged or missing file."""

    file: str
    kind: Literal["manifest", "missing", "damaged"]
    detail: str
    operator: str | None
    slot: int | None
    batches: tuple[int, ...]
    """The kept batches that need the file."""
    rebuildable: bool = False
    """Whether the runs it was merged from are intact: then the flow goes on without it."""


@dataclass(frozen=True, slots=True)
class Recovered(Generic[Outcome]):
    """What came of a kernel's work on one slot, and what had to be worked around."""

    outcome: Outcome
    state: RunsOfSlot
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Use:
    ref: RunRef
    operator: str
    slot: int
    batch: int


def verify(checkpoint: Checkpoint, batches: Sequence[int] | None = None) -> list[Problem]:
    """Read every file of the batches (all that are kept, unless said) and return what is wrong, by file name.

    That is their manifests, what the split log and Spark's own logs say of them, and their runs; where none is named,
    also the records of batches. Files that only serve to rebuild others are looked at when those are damaged.
    """
    problems: list[Problem] = []
    uses: dict[str, list[_Use]] = {}
    for batch in checkpoint.batches() if batches is None else batches:
        try:
            for use in _uses_of(checkpoint, batch):
                uses.setdefault(use.ref.file, []).append(use)
        except CheckpointError as error:
            problems.append(Problem(commit_file(batch), "manifest", str(error), None, None, (batch,)))
    problems += _unread_logs(checkpoint, batches)
    if batches is None:
        # No batch needs what is told of those before it.
        problems += [
            Problem(file, "damaged", detail, None, None, (), rebuildable=False)
            for file, detail in problems_with_history(checkpoint.store)
        ]
    for file, found in sorted(uses.items()):
        damage = _damage_of(checkpoint.store, found[0].ref)
        if damage is None:
            continue
        kind, detail = damage
        sources = next((use.ref.made_from for use in found if use.ref.made_from), ())
        intact = bool(sources) and all(_damage_of(checkpoint.store, source) is None for source in sources)
        affected = tuple(sorted({use.batch for use in found}))
        problems.append(Problem(file, kind, detail, found[0].operator, found[0].slot, affected, intact))
    return problems


def newest_intact_batch(checkpoint: Checkpoint) -> int | None:
    """Return the newest batch that a flow can go on from, or None: all its files are intact or can be done without."""
    for batch in reversed(checkpoint.batches()):
        if all(problem.rebuildable for problem in verify(checkpoint, [batch])):
            return batch
    return None


def refuse_lost_logs(checkpoint: Checkpoint, latest: Manifest) -> None:
    """Raise ``StateDamaged`` if nobody knows what was read up to the latest batch, or Spark cannot go on behind it."""
    if latest.end_offset is None:
        return
    problem = SplitLog(checkpoint.store).problem_with(latest.end_offset["entry"])
    problem = problem or find_problem(checkpoint.store, latest.batch)
    if problem is not None:
        raise explain_damage(checkpoint, problem)


def explain_damage(checkpoint: Checkpoint, damage: str) -> StateDamaged:
    """Return the error that stops a flow: what is wrong, and which batch to return to."""
    lines = [damage]
    latest = checkpoint.batches()[-1:]
    for problem in verify(checkpoint, latest):
        where = f" (operator {problem.operator}, slot {problem.slot})" if problem.operator is not None else ""
        lines.append(f"{problem.detail}{where}")
    intact = newest_intact_batch(checkpoint)
    lines.append(
        f"batch {intact} is intact; to return to it: anabranch state rollback --to {intact}"
        if intact is not None
        else "no kept batch is intact; restore the checkpoint from a backup, or start with a new one"
    )
    # The first line may say again what the check of the files says.
    return StateDamaged("; ".join(dict.fromkeys(lines)))


def advance_on_intact_runs(
    runs: Sequence[RunRef], files: RunFiles, advance: Callable[[RunsOfSlot], Outcome]
) -> Recovered[Outcome]:
    """Run a kernel on a slot's state, and again with the older runs where a merged run turns out to be damaged.

    ``advance`` must change nothing but the state it is given. Raises ``RunDamaged`` if there are no older runs.
    """
    problems: list[str] = []
    intact = tuple(runs)
    while True:
        state = RunsOfSlot(intact, files, files)
        try:
            return Recovered(advance(state), state, tuple(problems))
        except RunDamaged as damage:
            intact = _fall_back(intact, damage, files)
            problems.append(f"{damage}; the runs that it was merged from are used instead")


def _fall_back(runs: Sequence[RunRef], damage: RunDamaged, files: RunFiles) -> tuple[RunRef, ...]:
    """Put the sources of the damaged run in its place: a merge only saves work, so they are the same state."""
    position = next((place for place, ref in enumerate(runs) if ref.file == damage.file), None)
    if position is None or not runs[position].made_from:
        raise damage
    damaged = runs[position]
    # What was handed to another slot since the merge is gone from its sources, too.
    made_from = (replace(source, gone=join_ranges([*source.gone, *damaged.gone])) for source in damaged.made_from)
    sources = RunsOfSlot(made_from, files, files)
    try:
        sources.live()
        if damaged.min_window is not None:
            # Windows that fired since the merge must not fire again.
            sources.drop_due(damaged.min_window)
    except RunDamaged as error:
        msg = f"{damage}, and so is what it was merged from: {error}"
        raise RunDamaged(msg, damaged.file) from error
    return (*runs[:position], *sources.runs(), *runs[position + 1 :])


def _unread_logs(checkpoint: Checkpoint, batches: Sequence[int] | None) -> Iterator[Problem]:
    """Yield what keeps the batch behind each of these from being asked for, in the split log or in Spark's own logs."""
    store, latest = checkpoint.store, checkpoint.batches()[-1:]
    for batch in checkpoint.batches() if batches is None else batches:
        try:
            offset = checkpoint.load(batch).end_offset
        except CheckpointError:
            continue  # That is a problem of its own.
        if offset is None:
            continue
        details = {SplitLog.file_of(offset["entry"]): SplitLog(store).problem_with(offset["entry"])}
        # Spark asks for the offsets before the last ones, too.
        needed = [(OFFSETS, wanted) for wanted in range(max(batch - 1, 0), batch + 1)]
        if [batch] != latest or store.exists(f"{COMMITS}/{batch}"):
            # Spark may have died before it wrote down that the last batch was done: then it asks for it again.
            needed.append((COMMITS, batch))
        for log, wanted in needed:
            details[f"{log}/{wanted}"] = problem_with_log(store, log, wanted)
        for file, detail in details.items():
            if detail is not None:
                kind: Literal["missing", "damaged"] = "damaged" if store.exists(file) else "missing"
                yield Problem(file, kind, detail, None, None, (batch,))


def _uses_of(checkpoint: Checkpoint, batch: int) -> Iterator[_Use]:
    manifest = checkpoint.load(batch)
    for level in manifest.levels:
        for slot in range(level.slots):
            for ref in level.refs_of(slot):
                yield _Use(ref, level.operator, slot, batch)
    for operator, reader, ref in manifest.held_runs():
        yield _Use(ref, f"{operator}, held back by a reader", reader, batch)


def _damage_of(store: Store, ref: RunRef) -> tuple[Literal["missing", "damaged"], str] | None:
    try:
        content = open_content(store, ref)
    except RunDamaged as error:
        return "missing", str(error)
    try:
        check_content(ref, content)
    except RunDamaged as error:
        return "damaged", str(error)
    return None

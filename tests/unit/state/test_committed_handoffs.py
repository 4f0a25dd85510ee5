"""State that moves, seen from the checkpoint: what is on its way is kept, found and counted once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from anabranch.model import HASH, RunRef
from anabranch.routing.phases import PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.state import Checkpoint, LevelState, Manifest, Store, runs
from anabranch.state.epochs import Owner
from anabranch.state.inspect import list_slots, read_rows
from anabranch.state.repair import newest_intact_batch, verify
from anabranch.state.retention import Retention, named_files
from anabranch.state.rollback import roll_back
from unit.state.builders import Clock, manifest, places, run_files, slot_over, unwindowed


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_verified", {})


def with_handoffs(
    batch: int, runs_by_slot: Sequence[Sequence[RunRef]], handoffs: Sequence[Sequence[RunRef]], **fields: Any
) -> Manifest:
    level = LevelState(
        "agg",
        PhasedRoutes(Routes.even(max(len(runs_by_slot), len(handoffs)), 4)).to_json(),
        tuple(tuple(refs) for refs in runs_by_slot),
        tuple(tuple(refs) for refs in handoffs),
    )
    return manifest(batch, levels=(level,), **fields)


def commit_a_move(checkpoint: Checkpoint) -> tuple[RunRef, RunRef]:
    """Commit a batch at whose end slot 0 hands half its keys to slot 1, which is new; return both runs."""
    store = checkpoint.store
    slot = slot_over(store)
    slot.append(unwindowed([(key, key) for key in range(10)]))
    handed = slot.hand_off(places({key: 1 for key in range(5, 10)}))
    handoff = run_files(store, slot=0, batch=0).write(pl.concat(handed[1]))
    checkpoint.commit(with_handoffs(0, [slot.runs()], [(), (handoff,)]))
    return slot.runs()[0], handoff


def test_a_manifest_with_handoffs_reads_back_the_same(checkpoint: Checkpoint) -> None:
    kept, handoff = commit_a_move(checkpoint)
    found = Manifest.decode(checkpoint.load(0).encode(), "f")
    (level,) = found.levels
    assert level.runs == ((kept,),)
    assert level.handoffs == ((), (handoff,))
    assert (level.refs_of(0), level.refs_of(1), level.refs_of(2)) == ((kept,), (handoff,), ())
    assert level.slots == 2


def test_a_look_into_the_checkpoint_sees_every_row_once_while_it_is_on_its_way(checkpoint: Checkpoint) -> None:
    commit_a_move(checkpoint)
    level = checkpoint.load(0).levels[0]
    rows = read_rows(checkpoint.store, level)
    assert sorted(rows.select(HASH, "__slot").rows()) == [(key, int(key >= 5)) for key in range(10)]
    assert list_slots(checkpoint.load(0)).select("slot", "runs").rows() == [(0, 1), (1, 1)]


def test_a_damaged_handoff_is_found_and_belongs_to_the_slot_that_waits_for_it(checkpoint: Checkpoint) -> None:
    _, handoff = commit_a_move(checkpoint)
    assert verify(checkpoint) == []
    checkpoint.store.delete([handoff.file])
    (problem,) = verify(checkpoint)
    assert (problem.file, problem.kind, problem.slot, problem.rebuildable) == (handoff.file, "missing", 1, False)
    assert newest_intact_batch(checkpoint) is None


def test_a_handoff_is_kept_as_long_as_a_kept_batch_needs_it(store: Store) -> None:
    checkpoint = Checkpoint(store, kept_batches=3)
    retention = Retention(checkpoint)
    kept, handoff = commit_a_move(checkpoint)
    retention.advance(checkpoint.load(0))
    # The new owner takes it in as a run, then merges it into another; the merge can be rebuilt while both are kept.
    retention.advance(checkpoint.commit(with_handoffs(1, [[kept], [handoff]], [])))
    merged = run_files(store, batch=2, slot=1).write(unwindowed([(key, key) for key in range(5, 10)]), [handoff])
    there = []
    for batch in range(2, 8):
        retention.advance(checkpoint.commit(with_handoffs(batch, [[kept], [merged]], [])))
        there.append(handoff.file in {entry.name for entry in store.list("state")})
        assert verify(checkpoint) == []
    # Batch 4 is the last that names it, as what the merge of batch 2 was made from.
    assert there == [True, True, True, True, True, False]
    assert handoff.file not in named_files(checkpoint.load(7))


def test_a_sweep_spares_handoffs_that_a_batch_names(store: Store) -> None:
    checkpoint = Checkpoint(store)
    commit_a_move(checkpoint)
    stray = run_files(store, batch=0, slot=1).write(unwindowed([(99, 99)]))
    assert Retention(checkpoint).sweep(epoch=1, now_seconds=0.0).files == (stray.file,)
    assert verify(checkpoint) == []


def test_a_rollback_to_a_batch_with_handoffs_finds_them(local_store: Store) -> None:
    checkpoint = Checkpoint(local_store)
    kept, handoff = commit_a_move(checkpoint)
    checkpoint.commit(with_handoffs(1, [[kept], [handoff]], []))
    clock = Clock()
    done = roll_back(checkpoint, 0, Owner.this_process(), clock)
    assert done.undone_batches == (1,)
    assert done.to.levels[0].handoffs == ((), (handoff,))
    assert verify(checkpoint) == []

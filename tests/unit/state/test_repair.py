from __future__ import annotations

import pickle

import polars as pl
import pytest

from anabranch.model import HASH, WINDOW, RunRef
from anabranch.state import Checkpoint, RunsOfSlot, Store, runs
from anabranch.state.repair import advance_on_intact_runs, explain_damage, newest_intact_batch, verify
from anabranch.state.runs import RunDamaged
from unit.state.builders import commit_batches, manifest, run_files, unwindowed, windowed


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_verified", {})


def add_up(frames: list[pl.DataFrame]) -> pl.DataFrame:
    keys = [name for name in (WINDOW, HASH) if name in frames[0].columns]
    return pl.concat(frames).group_by(keys, maintain_order=True).agg(pl.col("value").sum()).sort(keys)


def flip_a_bit(store: Store, file: str) -> None:
    content = bytearray(store.read(file))
    content[len(content) // 2] ^= 1
    store.write(file, bytes(content))


def compacted(store: Store, batch: int = 0) -> RunRef:
    """Return a run that was merged from three, after a window of each had fired."""
    files = run_files(store, batch)
    slot = RunsOfSlot([], files, files)
    for value in range(3):
        slot.append(windowed([(0, 1, 100), (10, 1, value), (10, 2, value)]))
        slot.drop_due(10)
    slot.replace_newest(3, add_up(slot.newest(3)))
    (ref,) = slot.runs()
    assert len(ref.made_from) == 3
    return ref


def test_an_intact_checkpoint_has_no_problems(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 3)
    assert verify(checkpoint) == []
    assert newest_intact_batch(checkpoint) == 2


def test_every_kind_of_damage_is_found_and_located(checkpoint: Checkpoint) -> None:
    committed = commit_batches(checkpoint, 5)
    files = [ref.file for ref in committed[-1].files()]
    store = checkpoint.store
    flip_a_bit(store, files[2])
    store.write(files[3], store.read(files[3])[:-1])
    store.delete([files[4]])
    problems = {problem.file: problem for problem in verify(checkpoint)}
    assert [(problems[file].kind, problems[file].batches) for file in files[2:]] == [
        ("damaged", (2, 3, 4)),
        ("damaged", (3, 4)),
        ("missing", (4,)),
    ]
    assert set(problems) == set(files[2:])
    assert {(problem.operator, problem.slot) for problem in problems.values()} == {("agg", 0)}
    assert newest_intact_batch(checkpoint) == 1


def test_a_broken_manifest_is_a_problem_of_its_batch(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 2)
    checkpoint.store.write("commits/000000000001.json", b"{")
    (problem,) = verify(checkpoint)
    assert (problem.kind, problem.batches) == ("manifest", (1,))
    assert newest_intact_batch(checkpoint) == 0


def test_damage_names_the_file_and_the_batch_to_return_to(checkpoint: Checkpoint) -> None:
    committed = commit_batches(checkpoint, 3)
    newest = list(committed[-1].files())[-1]
    checkpoint.store.delete([newest.file])
    error = explain_damage(checkpoint, "a task found damaged state")
    assert newest.file in str(error)
    assert "operator agg, slot 0" in str(error)
    assert "anabranch state rollback --to 1" in str(error)


def test_without_an_intact_batch_the_error_says_so(checkpoint: Checkpoint) -> None:
    committed = commit_batches(checkpoint, 2)
    flip_a_bit(checkpoint.store, next(iter(committed[0].files())).file)
    assert "no kept batch is intact" in str(explain_damage(checkpoint, "damage"))


def damage_run(store: Store, file: str, how: str) -> None:
    if how == "flip":
        flip_a_bit(store, file)
    elif how == "truncate":
        store.write(file, store.read(file)[:100])
    else:
        store.delete([file])


@pytest.mark.parametrize("how", ["flip", "truncate", "delete"])
def test_a_damaged_merge_is_replaced_by_what_it_was_merged_from(store: Store, how: str) -> None:
    before = run_files(store, batch=1).write(windowed([(10, 1, 50)]))
    merged = compacted(store)
    after = run_files(store, batch=2).write(windowed([(10, 1, 60)]))
    damage_run(store, merged.file, how)
    recovered = advance_on_intact_runs([before, merged, after], run_files(store, 3), lambda state: state.due(11))
    assert [frame.rows() for frame in recovered.outcome] == [
        [(10, 1, 50)],
        *([(10, 1, value), (10, 2, value)] for value in range(3)),
        [(10, 1, 60)],
    ]
    assert recovered.state.runs() == (before, *merged.made_from, after)
    assert [merged.file in problem for problem in recovered.problems] == [True]


def test_intact_state_is_used_as_it_is(store: Store) -> None:
    merged = compacted(store)
    recovered = advance_on_intact_runs([merged], run_files(store, 3), lambda state: state.live())
    assert recovered.state.runs() == (merged,)
    assert recovered.problems == ()


def test_windows_that_fired_after_the_merge_stay_dropped(store: Store) -> None:
    files = run_files(store)
    slot = RunsOfSlot([], files, files)
    for value in range(2):
        slot.append(windowed([(0, 1, value), (10, 1, value)]))
    slot.append(windowed([(0, 2, 2)]))
    slot.replace_newest(3, add_up(slot.newest(3)))
    slot.drop_due(10)
    flip_a_bit(store, slot.runs()[0].file)
    recovered = advance_on_intact_runs(slot.runs(), files, lambda state: state.live())
    assert [frame.rows() for frame in recovered.outcome] == [[(10, 1, 0)], [(10, 1, 1)]]


def test_work_that_was_begun_on_damaged_state_begins_anew(store: Store) -> None:
    merged = compacted(store)
    flip_a_bit(store, merged.file)

    def append_then_read(state: RunsOfSlot) -> int:
        state.append(windowed([(20, 1, 1)]))
        return sum(frame.height for frame in state.live())

    recovered = advance_on_intact_runs([merged], run_files(store, 3), append_then_read)
    assert recovered.outcome == 7
    assert len(recovered.state.runs()) == 4


def test_two_damaged_merges_are_both_replaced(store: Store) -> None:
    merged = [compacted(store, batch=0), compacted(store, batch=1)]
    for ref in merged:
        store.delete([ref.file])
    recovered = advance_on_intact_runs(merged, run_files(store, 3), lambda state: state.live())
    assert len(recovered.problems) == 2
    assert sum(frame.height for frame in recovered.outcome) == 12


def test_damaged_sources_are_named_with_the_merge(store: Store) -> None:
    merged = compacted(store)
    flip_a_bit(store, merged.file)
    flip_a_bit(store, merged.made_from[1].file)
    with pytest.raises(RunDamaged, match=f"{merged.file}.*, and so is .*{merged.made_from[1].file}"):
        advance_on_intact_runs([merged], run_files(store, 3), lambda state: state.live())


def test_what_a_batch_added_has_no_second_copy(store: Store) -> None:
    ref = run_files(store, batch=4).write(unwindowed([(1, 1)]))
    store.delete([ref.file])
    with pytest.raises(RunDamaged, match="is missing") as raised:
        advance_on_intact_runs([ref], run_files(store, 5), lambda state: state.live())
    assert raised.value.file == ref.file
    assert pickle.loads(pickle.dumps(raised.value)).file == ref.file


def test_verify_says_whether_the_flow_can_go_on(checkpoint: Checkpoint) -> None:
    store = checkpoint.store
    merged = compacted(store)
    checkpoint.commit(manifest(0, [merged]))
    flip_a_bit(store, merged.file)
    assert [problem.rebuildable for problem in verify(checkpoint)] == [True]
    assert newest_intact_batch(checkpoint) == 0
    flip_a_bit(store, merged.made_from[1].file)
    assert [problem.rebuildable for problem in verify(checkpoint)] == [False]
    assert newest_intact_batch(checkpoint) is None

"""Files that a flow passes over: in batches that were planned before, and by the command."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.connectors import files
from anabranch.connectors.filesystem.bad_files import SetAsideFiles
from anabranch.engine.batches.jobs import BatchInput
from anabranch.engine.batches.set_aside import PassedOver, leave_out
from anabranch.engine.batches.split_steps import SplitSteps, StepRequest
from anabranch.engine.skipping import BY_COMMAND, skip_file
from anabranch.errors import CheckpointError, Fenced, SourceError
from anabranch.model import Split
from anabranch.state import Checkpoint, Manifest, open_store
from anabranch.state.epochs import Owner, take_epoch
from anabranch.state.split_log import SplitLog


def test_one_split_of_a_set_aside_file_brings_its_letter_whoever_reads_it() -> None:
    odd, fine = {"path": "in/odd", "from": 0}, {"path": "in/fine"}
    packs: Any = ([(1, 0, odd), (2, 0, fine)], [(0, 0, {**odd, "from": 9}), (3, 0, odd)], [(4, 1, {"topic": "t"})])
    marked, left_out = leave_out(packs, {"in/odd": "it is odd", "in/elsewhere": "no matter"})
    assert left_out == {"in/odd": "it is odd"}
    found = {ordinal: split.get("set_aside") for pack in marked for ordinal, _, split in pack}
    assert found == {0: "it is odd", 1: "", 2: None, 3: "", 4: None}
    assert leave_out(marked, {"in/odd": "it is odd"}) == (marked, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number, name in enumerate(("a", "b", "c")):
        (tmp_path / "in" / f"{name}.json").write_text('{"k": 1}\n' * 3)
        os.utime(tmp_path / "in" / f"{name}.json", ns=(number, number))
    return tmp_path


def plan(folder: Path, entries: int, committed: int, **limits: Any) -> Checkpoint:
    """Return a checkpoint whose flow has planned some entries and committed the first few of them."""
    checkpoint = Checkpoint(open_store(folder / "state"))
    planner = files(folder / "in", schema={"k": int}, **limits).planner()
    steps = SplitSteps(SplitLog(checkpoint.store), {0: planner}, drain_at_end=False)
    for number in range(entries):
        steps.next_after(number - 1, StepRequest(), float(number))
    for batch in range(committed):
        checkpoint.commit(Manifest("f", {}, batch, 1, "q", {"entry": batch - 1}, {"entry": batch}, ()))
    return checkpoint


def skip(checkpoint: Checkpoint, file: Path | str) -> str:
    return skip_file(checkpoint, str(file), Owner.this_process(), time.time).standing


def test_file_of_a_planned_batch_is_skipped_also_if_it_is_gone(folder: Path) -> None:
    checkpoint = plan(folder, entries=2, committed=1, max_files=1)
    (folder / "in" / "b.json").unlink()
    assert skip(checkpoint, "b.json") == "it is in a batch that was planned and is not committed"
    assert SetAsideFiles(str(folder / "state")).load() == {str(folder / "in" / "b.json"): BY_COMMAND}


def test_file_is_skipped_before_anything_was_committed(folder: Path) -> None:
    assert skip(plan(folder, entries=1, committed=0), folder / "in" / "b.json").startswith("it is in a batch")


def test_file_that_is_not_planned_yet_is_skipped(folder: Path) -> None:
    assert skip(plan(folder, entries=1, committed=1, max_files=1), folder / "in" / "c.json") == "it is not planned yet"


def test_rest_of_a_half_read_file_is_skipped(folder: Path) -> None:
    checkpoint = plan(folder, entries=1, committed=1, max_rows=1)
    assert skip(checkpoint, folder / "in" / "a.json") == "it was read in part; the rest is left out"


def test_file_whose_rows_are_committed_is_not_skipped(folder: Path) -> None:
    checkpoint = plan(folder, entries=2, committed=1, max_files=1)
    with pytest.raises(CheckpointError, match=r"the rows of .*a\.json are committed"):
        skip(checkpoint, folder / "in" / "a.json")
    assert SetAsideFiles(str(folder / "state")).load() == {}


def test_unknown_file_is_refused_with_those_that_are_planned(folder: Path) -> None:
    checkpoint = plan(folder, entries=1, committed=0, max_files=2)
    with pytest.raises(CheckpointError, match=r"no file .*/x\.json.* not committed are: .*a\.json, .*b\.json"):
        skip(checkpoint, folder / "in" / "x.json")


def test_name_that_several_files_have_is_refused(tmp_path: Path) -> None:
    for place in ("north", "south"):
        (tmp_path / "in" / place).mkdir(parents=True)
        (tmp_path / "in" / place / "a.json").write_text('{"k": 1}\n')
    checkpoint = plan(tmp_path, entries=1, committed=0, recursive=True)
    with pytest.raises(CheckpointError, match=r"a\.json may be any of .*/north/a\.json, .*/south/a\.json"):
        skip(checkpoint, "a.json")
    assert skip(checkpoint, "south/a.json").startswith("it is in a batch")


def test_no_file_is_skipped_while_the_flow_runs(folder: Path) -> None:
    checkpoint = plan(folder, entries=1, committed=0)
    lease = take_epoch(checkpoint.store, Owner.this_process(), time.time)
    with pytest.raises(Fenced):
        skip(checkpoint, folder / "in" / "a.json")
    lease.release()
    skip(checkpoint, folder / "in" / "a.json")


def test_splits_of_the_log_stay_as_they_are() -> None:
    split: Split = {"path": "in/odd"}
    marked, _ = leave_out(([(0, 0, split)],), {"in/odd": "it is odd"})
    assert split == {"path": "in/odd"}
    assert marked[0][0][2] == {"path": "in/odd", "set_aside": "it is odd"}


def input_of(*paths: str) -> BatchInput:
    packs = tuple([(ordinal, 0, {"path": path})] for ordinal, path in enumerate(paths))
    nobody: Any = None
    return BatchInput(7, None, packs, None, None, 0.0, nobody)


def test_bad_files_are_left_out_durably_and_told_of(tmp_path: Path) -> None:
    given = PassedOver(str(tmp_path)).set_aside({"in/b": "it is odd"}, input_of("in/a", "in/b"))
    assert given.problems == ("in/b is set aside, its rows are not read: it is odd",)
    assert given.packs[1] == [(1, 0, {"path": "in/b", "set_aside": "it is odd"})]
    again = PassedOver(str(tmp_path)).leave_out(input_of("in/a", "in/b"))
    assert again == given


def test_bad_file_that_no_split_has_does_not_run_a_batch_without_end(tmp_path: Path) -> None:
    passed_over = PassedOver(str(tmp_path))
    with pytest.raises(SourceError, match="in/c cannot be used, and no split of batch 7"):
        passed_over.set_aside({"in/c": "it is odd"}, input_of("in/a"))
    left_out = passed_over.set_aside({"in/a": "it is odd"}, input_of("in/a"))
    with pytest.raises(SourceError, match="in/a cannot be used"):
        passed_over.set_aside({"in/a": "it is odd"}, left_out)

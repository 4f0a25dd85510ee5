from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import obstore
import polars as pl
import pytest
from obstore.store import MemoryStore

from anabranch.connectors import json_lines, parquet, to_memory
from anabranch.connectors.filesystem.output_store import LocalOutputStore, RemoteOutputStore
from anabranch.connectors.filesystem.part_files import MARKER, list_parts, publish_parts, retract_parts
from anabranch.connectors.filesystem.sinks import PartFileSink
from anabranch.errors import SinkError
from anabranch.model import StagedFile

CONTEXT = {"flow": "volts", "epoch": 1}
FRAME = pl.DataFrame({"sensor": [1, 2], "volts": [229.5, 231.0]})
Stage = Callable[..., tuple[StagedFile, str]]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = [0]

    def stage_file(sink: PartFileSink, frame: pl.DataFrame = FRAME, slot: int = 0) -> tuple[StagedFile, str]:
        made[0] += 1
        path = tmp_path / "staged" / f"{made[0]}{sink.suffix}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(sink.encode(frame))
        return StagedFile(path.name, frame.height, path.stat().st_size, slot), str(path)

    return stage_file


def part_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith(MARKER))


def test_batch_becomes_part_files_named_by_batch_and_slot(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out" / "deep")
    sink.publish(7, [stage(sink, slot=0), stage(sink, slot=3), stage(sink, slot=3)], CONTEXT)
    names = part_names(tmp_path / "out" / "deep")
    assert names == [
        "part-000000000007-00000.parquet",
        "part-000000000007-00003-00001.parquet",
        "part-000000000007-00003.parquet",
    ]
    assert pl.read_parquet(tmp_path / "out" / "deep" / names[0]).equals(FRAME)
    assert [Path(path).name for _, path in list_parts(str(tmp_path / "out" / "deep"))] == [names[0], names[2], names[1]]


def test_json_lines_hold_one_object_a_line(tmp_path: Path, stage: Stage) -> None:
    sink = json_lines(tmp_path / "out")
    sink.publish(0, [stage(sink)], CONTEXT)
    text = (tmp_path / "out" / "part-000000000000-00000.json").read_text()
    assert [json.loads(line) for line in text.splitlines()] == FRAME.to_dicts()


def test_publishing_again_changes_nothing(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    staged = [stage(sink, slot=slot) for slot in range(3)]
    sink.publish(0, staged, CONTEXT)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    sink.publish(0, staged, CONTEXT)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize("moved", range(4))
def test_publication_that_was_cut_off_is_finished_by_the_next(tmp_path: Path, stage: Stage, moved: int) -> None:
    sink = parquet(tmp_path / "out")
    staged = [stage(sink, slot=slot) for slot in range(4)]
    sink.publish(0, staged[:moved], CONTEXT)
    (tmp_path / "out" / MARKER).unlink(missing_ok=True)
    sink.publish(0, staged, CONTEXT)
    assert len(part_names(tmp_path / "out")) == 4


def test_copy_that_was_cut_off_before_the_staged_file_was_deleted_is_finished(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    file, path = stage(sink)
    kept = Path(path).read_bytes()
    sink.publish(0, [(file, path)], CONTEXT)
    Path(path).write_bytes(kept)
    sink.publish(0, [(file, path)], CONTEXT)
    assert not Path(path).exists()


def test_staged_file_on_another_file_system_is_copied(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = parquet(tmp_path / "out")
    file, path = stage(sink)
    rename = os.replace

    def refuse_across(source: str, target: str) -> None:
        if os.path.dirname(source) != os.path.dirname(target):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refuse_across)
    sink.publish(0, [(file, path)], CONTEXT)
    assert part_names(tmp_path / "out") == ["part-000000000000-00000.parquet"]
    assert not Path(path).exists()


def test_other_rows_under_the_same_name_are_never_dropped(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    sink.publish(0, [stage(sink)], CONTEXT)
    other = stage(sink, FRAME.reverse())
    with pytest.raises(SinkError, match=r"exists already with other rows.*give each its own"):
        sink.publish(0, [other], CONTEXT)
    assert Path(other[1]).exists()


def test_file_without_rows_is_not_published(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    sink.publish(0, [stage(sink, FRAME.clear())], CONTEXT)
    assert part_names(tmp_path / "out") == []


def test_part_file_that_a_consumer_deleted_is_not_missed(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    staged = [stage(sink)]
    sink.publish(0, staged, CONTEXT)
    (tmp_path / "out" / "part-000000000000-00000.parquet").unlink()
    sink.publish(0, staged, CONTEXT)
    assert part_names(tmp_path / "out") == []


def test_staged_file_that_vanished_unpublished_is_an_error(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    file, path = stage(sink)
    os.remove(path)
    with pytest.raises(SinkError, match="batch 0 cannot be published: neither the staged file"):
        sink.publish(0, [(file, path)], CONTEXT)


def test_retraction_deletes_later_batches_only(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    for batch in range(4):
        sink.publish(batch, [stage(sink)], CONTEXT)
    sink.retract(1)
    assert part_names(tmp_path / "out") == ["part-000000000000-00000.parquet", "part-000000000001-00000.parquet"]
    replayed = stage(sink, FRAME.reverse())
    sink.publish(2, [replayed], CONTEXT)
    assert pl.read_parquet(tmp_path / "out" / "part-000000000002-00000.parquet").equals(FRAME.reverse())


def test_directory_of_another_flow_is_refused(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    sink.claim("volts", None)
    sink.publish(0, [stage(sink)], CONTEXT)
    with pytest.raises(SinkError, match="holds results of the flow 'volts', this one is 'amps'"):
        sink.claim("amps", None)
    with pytest.raises(SinkError, match="belongs to the flow 'volts'"):
        sink.publish(1, [stage(sink)], CONTEXT | {"flow": "amps"})


def test_directory_that_was_claimed_but_never_written_may_change_hands(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "out")
    sink.claim("volts", None)
    sink.claim("amps", None)


def test_results_of_an_earlier_checkpoint_are_refused(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    sink.publish(5, [stage(sink)], CONTEXT)
    sink.claim("volts", 5)
    with pytest.raises(SinkError, match="holds results up to batch 5, but the checkpoint is new"):
        sink.claim("volts", None)


def test_part_files_of_unknown_origin_are_refused(tmp_path: Path) -> None:
    (tmp_path / "part-000000000000-00000.parquet").write_bytes(b"x")
    with pytest.raises(SinkError, match="1 part files of unknown origin"):
        parquet(tmp_path).claim("volts", None)


def test_target_that_cannot_be_written_is_refused_before_the_first_batch(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SinkError, match="is a file; name a directory"):
        parquet(tmp_path / "file").check(FRAME.schema)


def test_full_disk_leaves_the_staged_file_for_the_next_try(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = parquet(tmp_path / "out")
    staged = stage(sink)

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        with pytest.raises(SinkError, match="No space left on device; see that files can be made there"):
            sink.publish(0, [staged], CONTEXT)
    sink.publish(0, [staged], CONTEXT)
    assert part_names(tmp_path / "out") == ["part-000000000000-00000.parquet"]


def test_column_without_a_form_in_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="column 'raw' is Binary, which JSON lines cannot hold"):
        json_lines(tmp_path).check({"raw": pl.Binary()})


def test_object_store_is_published_to_in_the_same_way(stage: Stage) -> None:
    store = MemoryStore()
    outputs = RemoteOutputStore(store, "memory://out")
    sink = parquet("unused")
    staged = [stage(sink, slot=slot) for slot in range(2)]
    for _ in range(2):
        publish_parts(outputs, "memory://out", 3, staged, ".parquet", CONTEXT)
    marker = f"{MARKER}-00000001"
    assert outputs.names() == [marker, "part-000000000003-00000.parquet", "part-000000000003-00001.parquet"]
    assert not Path(staged[0][1]).exists()
    assert bytes(obstore.get(store, "part-000000000003-00000.parquet").bytes()) == sink.encode(FRAME)
    retract_parts(outputs, "memory://out", 2)
    assert outputs.names() == [marker]


def test_memory_sink_gives_its_results_as_frames(stage: Stage) -> None:
    sink = to_memory()
    assert sink.frame().is_empty()
    sink.publish(0, [stage(sink, slot=1), stage(sink, FRAME.reverse(), slot=0)], CONTEXT)
    sink.publish(1, [stage(sink)], CONTEXT)
    assert sink.frame().equals(pl.concat([FRAME.reverse(), FRAME, FRAME]))
    assert [batch for batch, _ in sink.batches()] == [0, 1]
    assert sink.pandas().shape == (6, 2)
    sink.retract(0)
    assert sink.frame().height == 4


def test_an_older_driver_does_not_set_back_what_a_newer_one_has_published(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    sink.claim("volts", None)
    first, second = [stage(sink)], [stage(sink)]

    class PausingStore(LocalOutputStore):
        """Lets a newer driver go on when all files are there, once."""

        def settle(self) -> None:
            super().settle()
            if paused:
                paused.pop()()

    def go_on() -> None:
        newer = parquet(tmp_path / "out")
        newer.publish(0, first, CONTEXT | {"driver_epoch": 2})
        newer.publish(1, second, CONTEXT | {"driver_epoch": 2})
        for name in part_names(tmp_path / "out"):
            (tmp_path / "out" / name).unlink()

    paused = [go_on]
    publish_parts(PausingStore(str(tmp_path / "out")), "out", 0, first, ".parquet", CONTEXT)
    # The newest driver is started again, and its last batch, which a reader has taken away, is not missed.
    again = parquet(tmp_path / "out")
    again.claim("volts", 1)
    again.publish(1, second, CONTEXT | {"driver_epoch": 3})
    assert part_names(tmp_path / "out") == []


def test_progress_of_an_older_version_counts(tmp_path: Path, stage: Stage) -> None:
    sink = parquet(tmp_path / "out")
    staged = [stage(sink)]
    sink.publish(4, staged, CONTEXT)
    (tmp_path / "out" / f"{MARKER}-00000001").rename(tmp_path / "out" / MARKER)
    (tmp_path / "out" / "part-000000000004-00000.parquet").unlink()
    sink.claim("volts", 4)
    sink.publish(4, staged, CONTEXT)
    sink.publish(5, [stage(sink)], CONTEXT | {"driver_epoch": 2})
    sink.publish(6, [stage(sink)], CONTEXT | {"driver_epoch": 3})
    markers = sorted(path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(MARKER))
    assert markers == [MARKER, f"{MARKER}-00000003"]


def test_what_a_killed_driver_left_half_written_is_swept_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in (".part-000000000000-00000.parquet.0123abcd.tmp", f".{MARKER}.0123abcd.tmp", ".notes.tmp"):
        (tmp_path / "out" / name).write_text("half")
    parquet(tmp_path / "out").claim("volts", None)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".notes.tmp", MARKER]


def test_results_are_synced_unless_they_go_with_their_process(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    alone = to_memory()
    alone.publish(0, [stage(alone)], CONTEXT)
    assert alone.frame().equals(FRAME)
    assert synced == []
    lasting = to_memory(tmp_path / "out")
    lasting.publish(0, [stage(lasting)], CONTEXT)
    # The rows and their names, and a marker and its own.
    assert len(synced) >= 4

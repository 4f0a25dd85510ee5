from __future__ import annotations

import polars as pl
import pytest

from anabranch.connectors import memory
from anabranch.errors import FlowError

from .conftest import drain_source

FRAME = pl.DataFrame({"k": [1, 2], "v": [0.5, 1.5]})


def test_every_frame_is_a_batch_of_its_own_in_the_order_of_adding() -> None:
    source = memory(FRAME, FRAME.reverse())
    source.add(FRAME.head(1))
    drained = drain_source(source)
    assert drained.rows_per_batch == [2, 2, 1]
    assert drained.frame.equals(pl.concat([FRAME, FRAME.reverse(), FRAME.head(1)]))


def test_frames_share_a_batch_where_asked() -> None:
    assert drain_source(memory(FRAME, FRAME, FRAME, max_frames=2)).rows_per_batch == [4, 2]
    assert drain_source(memory(FRAME, FRAME, FRAME, max_frames=None)).rows_per_batch == [6]


def test_frames_that_are_added_while_it_runs_are_found() -> None:
    source = memory(schema={"k": int})
    planner = source.planner()
    assert planner.plan(None, 0.0).splits == ()
    source.add({"k": [1, 2, 3]})
    planned = planner.plan(None, 0.0)
    assert [outcome.frame["k"].to_list() for split in planned.splits for outcome in source.read(split)] == [[1, 2, 3]]
    source.add({"k": [4]})
    assert len(planner.plan(planned.position, 0.0).splits) == 1


def test_empty_frame_does_not_keep_a_bounded_run_from_ending() -> None:
    drained = drain_source(memory(FRAME.clear(), FRAME))
    assert drained.frame.equals(FRAME)


def test_frame_without_a_declared_column_is_refused() -> None:
    with pytest.raises(FlowError, match=r"has no column 'v'; it has \['k'\]"):
        memory(FRAME).add(FRAME.select("k"))


def test_pandas_frames_and_columns_by_name_are_taken_as_well() -> None:
    source = memory(FRAME.to_pandas(), FRAME.to_dict(as_series=False))
    assert drain_source(source).frame.equals(pl.concat([FRAME, FRAME]))


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(FlowError, match="takes Polars or pandas frames, or columns by name, found a LazyFrame"):
        memory(FRAME.lazy())


def test_neither_frames_nor_schema_is_refused() -> None:
    with pytest.raises(FlowError, match="needs frames or a schema"):
        memory()


def test_source_in_a_named_directory_goes_on_where_it_was(tmp_path: object) -> None:
    memory(FRAME, directory=str(tmp_path))
    assert drain_source(memory(FRAME.reverse(), directory=str(tmp_path))).frame.equals(
        pl.concat([FRAME, FRAME.reverse()])
    )


def test_partition_of_a_frame_is_in_its_splits_and_the_order_of_adding_is_kept() -> None:
    source = memory(FRAME, max_frames=None)
    source.add(FRAME.reverse(), "south").add(FRAME, "north").add(FRAME.reverse(), "south")
    splits = source.planner().plan(None, 0.0).splits
    assert [split.get("partition", "") for split in splits] == ["", "south", "north", "south"]
    assert drain_source(source).frame.equals(pl.concat([FRAME, FRAME.reverse(), FRAME, FRAME.reverse()]))


@pytest.mark.parametrize("name", [".hidden", "_old", "a/b", "x.tmp"])
def test_partition_that_no_folder_could_be_named_after_is_refused(name: str) -> None:
    with pytest.raises(FlowError, match="a partition's name"):
        memory(FRAME).add(FRAME, name)

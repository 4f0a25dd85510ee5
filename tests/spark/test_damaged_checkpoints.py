"""Whatever file of a checkpoint is removed, cut or flipped: a flow ends with the right answers, or says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sharing import make_once
from spark.damaging import Damage, DamagedFlow


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DamagedFlow:
    """A flow that was stopped after some batches."""

    def begin(folder: Path) -> None:
        DamagedFlow(folder / "flow", spark).begin()

    return DamagedFlow(make_once(tmp_path_factory, "damaged-begun", begin) / "flow", spark)


@pytest.fixture(scope="module")
def undisturbed(begun: DamagedFlow, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, ...]]]:
    """What the flow comes to when nothing is damaged."""

    def finish(folder: Path) -> None:
        begun.copy(folder / "flow").finish()

    return DamagedFlow(make_once(tmp_path_factory, "damaged-undisturbed", finish) / "flow", begun.spark).results()


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("commits/*", "flipped"),
        ("endpoints/*", "cut"),
        ("epochs/*.json", "flipped"),
        ("sources/*", "flipped"),
        ("sources/*", "removed"),
        ("spark/commits/[0-9]*", "cut"),
        ("spark/metadata", "removed"),
        ("spark/offsets/[0-9]*", "removed"),
        ("state/*/*/*", "flipped"),
    ],
)
def test_damage_to_the_newest_file_of_a_kind_is_mended_or_said_and_nothing_is_wrong(
    begun: DamagedFlow, undisturbed: dict[str, list[tuple[int, ...]]], tmp_path: Path, kind: str, how: Damage
) -> None:
    flow = begun.copy(tmp_path / "flow")
    newest = sorted(flow.checkpoint.glob(kind), key=lambda path: path.stat().st_mtime_ns)[-1]
    file = str(newest.relative_to(flow.checkpoint))
    held = flow.damage(file, how)
    flow.finish_by_advice(file, held)
    assert flow.results() == undisturbed

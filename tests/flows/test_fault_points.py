"""Killed at any fault point of any batch, a run in this process leaves what an undisturbed one leaves, byte for byte.

On Spark, ``tests/lab/test_killed_drivers.py`` kills real drivers at the same points. No point is Spark's alone: all
lie in the engine, which both runners go through. What only Spark does (its logs, its executors, its workers) is
disturbed by real kills at random moments, in ``tests/lab`` too.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.engine.faults import MOMENTS, Killed, killed_at
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from flows.commits import contents_of
from flows.random_flows import SCHEMA, RandomFlow, make_random_flow
from flows.running import frames_of
from flows.wild_steering import WildSteering

NOW = 1_800_000_000.0
SEED = 20_261_116
SINKS = ("first", "second")
PACKAGE = Path(ab.__file__).resolve().parent


@dataclass(frozen=True)
class Runs:
    """Runs of one flow over the same frames, each in a folder of its own, with keys that move at nearly every batch."""

    case: RandomFlow
    source: Any
    folder: Path

    def open(self) -> LocalRun:
        """Return a new driver of the flow, which takes over from one that was killed."""
        flow = ab.Flow("killed")
        results = self.case.build(flow.read(self.source))
        for sink in SINKS:
            results.write(ab.parquet(self.folder / sink))
        settings = make_settings(
            checkpoint=str(self.folder / "state"),
            trigger="available-now",
            drain=True,
            takeover=True,
            read_tasks=2,
            kept_batches=50,
            slots=self.case.slots,
            parallelism=self.case.parallelism,
        )
        rows = [row for batch in self.case.batches() for row in batch]
        return LocalRun(flow, settings, clock=lambda: NOW, make_steering=lambda program: WildSteering(7, program, rows))

    def finish(self) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
        """Run to the end; return what was committed, by whichever driver, and the files that were published."""
        run = self.open()
        run.run_to_end()
        run.close()
        commits = contents_of(str(self.folder / "state"))
        for commit in commits:
            del commit["epoch"]
        parts = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in self.folder.glob("*/part-*")}
        return commits, parts

    def kill(self, moment: str, batch: int) -> None:
        """Run until a driver is killed there; fail if it never gets there."""
        run = self.open()
        with killed_at(moment, batch), pytest.raises(Killed, match=f"{moment} of batch {batch}"):
            run.run_to_end()
        run.abandon()


@pytest.fixture(scope="module", params=["sliding", "running", "held session", "own tumbling"])
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Runs, Any]:
    case = make_random_flow(request.param, SEED)
    source = ab.memory(*frames_of(case.batches(), SCHEMA), max_frames=1)
    runs = Runs(case, source, tmp_path_factory.mktemp("undisturbed"))
    commits, parts = runs.finish()
    assert len(commits) > 2 and {name.split("/")[0] for name in parts} == set(SINKS)
    return runs, (commits, parts)


@pytest.mark.parametrize("moment", MOMENTS)
def test_drivers_killed_at_a_fault_point_of_every_batch_leave_the_undisturbed_commits_and_files(
    undisturbed: tuple[Runs, Any], moment: str, tmp_path: Path
) -> None:
    runs, expected = undisturbed
    runs = replace(runs, folder=tmp_path)
    for commit in expected[0]:
        runs.kill(moment, commit["batch"])
    commits, parts = runs.finish()
    assert commits == expected[0]
    assert parts == expected[1]


def test_every_fault_point_is_reached_in_the_engine_and_nowhere_else() -> None:
    reached = {
        call.args[0].value: path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "reach"
        if isinstance(call.args[0], ast.Constant)
    }
    assert reached == dict.fromkeys(MOMENTS, "engine")

"""The driver's host is cut off for longer than Spark waits for a sign of life: the flow goes on, or says why it ended.

Shorter cuts, after which it always goes on, are in ``tests/lab``.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from anabranch.state import open_store
from anabranch.state.checkpoint import Checkpoint
from lab.drivers import DriverProcess
from lab.hosts import driver_on
from lab.hosts_under_test import DETECTION_SECONDS, LOOK_SECONDS
from lab.test_cut_hosts import ROWS, SCRIPT, Stage, lab_of_four

pytestmark = pytest.mark.xdist_group("lab")
CUT_SECONDS = 3 * (DETECTION_SECONDS + LOOK_SECONDS)
"""The master, too, gives workers up meanwhile."""
END_SECONDS = 200.0


def goes_on(stage: Stage) -> bool:
    """Say whether the batch that was under way is there, or the flow has ended and said why."""
    if stage.process.wait_for("batch ", stage.fed):
        return True
    told = [line for line in stage.process.lines if line.startswith("failed ")]
    assert stage.process.wait(END_SECONDS) != 0, "it ended without its rows, and as if all were well"
    assert told and len(told[0].split(": ", 1)[1]) > 10, f"it ended and did not say why: {stage.process.lines[-3:]}"
    return False


def end(process: DriverProcess, stage: Stage) -> None:
    (stage.folder / "end").write_text(str(stage.fed * ROWS))
    assert process.wait(END_SECONDS) == 0, process.lines[-3:]


def test_a_driver_cut_off_for_longer_than_spark_waits_goes_on_or_ends_and_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with lab_of_four() as lab:
        with driver_on(lab, tmp_path, SCRIPT) as process:
            assert process.wait_for("ready"), process.lines
            stage = Stage(tmp_path, lab, process)
            for number in range(2):
                stage.feed(f"steady {number}")
            lab.cut("driver")
            stage.write()
            time.sleep(CUT_SECONDS)
            lab.heal("driver")
            went_on = goes_on(stage)
            if went_on:
                stage.feed("afterwards")
                end(process, stage)
        if not went_on:
            stage.write()
            # Rows of committed batches are not counted again: it runs until nothing comes for it any more.
            committed_rows = count_rows(tmp_path)
            with driver_on(lab, tmp_path, SCRIPT, log="again") as again:
                (tmp_path / "end").write_text(str(stage.fed * ROWS - committed_rows))
                assert again.wait(END_SECONDS) == 0, again.lines[-3:]
    print("went on" if went_on else "ended, and was started again")
    stage.check_totals()


def count_rows(folder: Path) -> int:
    """Return how many rows were committed: a batch that is only published again has none in its progress."""
    latest = Checkpoint(open_store(folder / "state")).latest()
    return 0 if latest is None else latest.totals["rows_in"]

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from anabranch.cli.app import app
from anabranch.cli.state.tables import read_key
from anabranch.connectors import parquet
from anabranch.errors import CheckpointError
from anabranch.model import (
    HASH,
    ORDER,
    WINDOW,
    AggregateSpec,
    OperatorTime,
    RunRef,
    StagedFile,
    WindowSpec,
)
from anabranch.model.events import BatchEvent
from anabranch.operators.aggregates.functions import count, min
from anabranch.operators.kernels import make_kernel
from anabranch.routing.hashing import hash_keys
from anabranch.routing.phases import PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.state import Checkpoint, EngineState, LevelState, Manifest, RunFiles, WriteName, open_store
from anabranch.state.event_log import EventLog
from unit.cli.builders import batch as progress_of
from unit.cli.flows import write_flow
from unit.operators.memory_state import MemoryState
from unit.state.builders import write_logs

WINDOW_US = 1_760_000_000_000_000
STRUCTURE = {"operators": {"agg": {"keys": {"sensor": "Int64"}}}, "sources": 1, "buckets": 4}


def invoke(*arguments: object, answer: str | None = None) -> Result:
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    return runner.invoke(app, ["state", *(str(argument) for argument in arguments)], input=answer)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A checkpoint of four batches: each adds a run with the sensors 0 to 4, and one result file of a sink."""
    folder = tmp_path / "state"
    checkpoint = Checkpoint(open_store(folder))
    sink = parquet(tmp_path / "alerts")
    runs: list[RunRef] = []
    write_logs(checkpoint.store, range(4))
    for batch in range(4):
        runs.append(RunFiles(checkpoint.store, "state/0/0", WriteName(1, batch, 0, "cafe")).write(rows_of(batch)))
        result = sink.encode(pl.DataFrame({"batch": [batch]}))
        checkpoint.store.write(f"results/{batch}.parquet", result)
        staged = StagedFile(f"results/{batch}.parquet", rows=1, bytes=len(result), slot=0)
        manifest = Manifest(
            flow="low-voltage",
            flow_structure=STRUCTURE,
            batch=batch,
            epoch=1,
            query_id="q",
            start_offset={"entry": batch - 1},
            end_offset={"entry": batch},
            levels=(LevelState("agg", PhasedRoutes(Routes.even(1, 4)).to_json(), (tuple(runs),)),),
            sinks={0: (staged,)},
            created_at=WINDOW_US / 1e6,
        )
        checkpoint.commit(manifest)
        sink.publish(batch, [(staged, str(folder / staged.file))], {"flow": "low-voltage", "epoch": 1})
    return folder


def rows_of(batch: int) -> pl.DataFrame:
    keys = pl.DataFrame({"sensor": range(5)}, schema={"sensor": pl.Int64})
    return (
        keys.with_columns(
            pl.lit(WINDOW_US, dtype=pl.Int64).alias(WINDOW),
            hash_keys(keys, ["sensor"]).alias(HASH),
            (pl.col("sensor") * 100 + batch).alias("lowest"),
            pl.lit(b"x" * 40).alias("sketch"),
        )
        .select(WINDOW, HASH, "sensor", "lowest", "sketch")
        .sort(WINDOW, HASH)
    )


READINGS = {"sensor": pl.Int64(), "ts": pl.Datetime("ms"), "volts": pl.Float64()}
LOWEST = AggregateSpec(
    ("sensor",), {"readings": count(), "lowest": min("volts")}, WindowSpec("tumbling", 10**7, 10**7), "ts"
)


@pytest.fixture
def windows(tmp_path: Path) -> Path:
    """A checkpoint of the flow of ``write_flow`` after two batches: two readings each of sensors 0, 1 and 2."""
    folder = tmp_path / "state"
    checkpoint = Checkpoint(open_store(folder))
    kernel, slot = make_kernel(LOWEST), MemoryState()
    for batch in range(2):
        times = pl.Series([datetime(2026, 1, 1, second=batch)] * 3, dtype=pl.Datetime("ms"))
        rows = pl.DataFrame({"sensor": [0, 1, 2], "ts": times, "volts": [230.0 - batch] * 3, ORDER: [0, 1, 2]})
        partials = kernel.combine(kernel.prepare(rows, OperatorTime(batch)).frame)
        partials = partials.with_columns(hash_keys(partials, ["sensor"]).alias(HASH))
        kernel.advance([partials], True, slot, OperatorTime(batch))
    files = RunFiles(checkpoint.store, "state/0/0", WriteName(1, 0, 0, "cafe"))
    structure = {"operators": {"agg": kernel.structure(READINGS)}, "sources": 1, "strategy": "operator-set"}
    levels = (
        LevelState("agg", PhasedRoutes(Routes.even(1, 4)).to_json(), (tuple(files.write(run) for run in slot.live()),)),
    )
    engine = EngineState(slots=1)
    checkpoint.commit(Manifest("low-voltage", structure, 0, 1, "q", None, None, levels, engine=engine))
    return folder


def parts_of(state: Path) -> list[int]:
    return [int(path.name.split("-")[1]) for path in sorted((state.parent / "alerts").glob("part-*"))]


def test_ls_shows_operators_slots_and_the_batches_to_go_back_to(state: Path) -> None:
    outcome = invoke("ls", state)
    assert outcome.exit_code == 0, outcome.output
    lines = [line.split() for line in outcome.stdout.splitlines()]
    assert ["agg", "0", "4", "4", "20"] in [line[:5] for line in lines]
    assert "low-voltage, batch 3, epoch 1" in outcome.stdout
    assert "can go back to: batches 0–3" in outcome.stdout


def test_ls_of_an_earlier_batch_shows_what_was_there_then(state: Path) -> None:
    outcome = invoke("ls", state, "--batch", 1)
    assert ["agg", "0", "4", "2", "10"] in [line.split()[:5] for line in outcome.stdout.splitlines()]


def test_show_prints_the_rows_of_a_key_with_times_that_can_be_read(state: Path) -> None:
    outcome = invoke("show", "3", state)
    assert outcome.exit_code == 0, outcome.output
    rows = [line.split() for line in outcome.stdout.splitlines() if "2025-10-09" in line]
    assert [row[1] for row in rows] == ["0", "1", "2", "3"]
    assert [row[5] for row in rows] == ["300", "301", "302", "303"]
    assert "40 bytes" in outcome.stdout and HASH not in outcome.stdout
    assert invoke("show", "sensor=3", state).stdout == outcome.stdout


def test_show_merges_the_rows_of_a_key_and_finishes_its_values(windows: Path) -> None:
    outcome = invoke("show", "1", windows)
    assert outcome.exit_code == 0, outcome.output
    title, head, *rows = [line.split() for line in outcome.stdout.splitlines()]
    assert " ".join(title) == "agg after batch 0"
    assert sorted(head) == ["lowest", "readings", "sensor", "window_end", "window_start"]
    (row,) = rows
    assert row[:4] == ["2026-01-01", "00:00:00", "2026-01-01", "00:00:10"]
    assert sorted(row[4:]) == ["1", "2", "229.0"]


def test_show_raw_prints_partial_results_run_by_run(windows: Path) -> None:
    outcome = invoke("show", "1", windows, "--raw")
    assert "readings.n" in outcome.stdout and "lowest.value" in outcome.stdout
    assert [line.split()[1] for line in outcome.stdout.splitlines() if "2026-01-01" in line] == ["0", "1"]


def test_show_with_the_flow_finishes_values_by_the_flows_own_code(windows: Path) -> None:
    outcome = invoke("show", "1", windows, "--flow", write_flow(windows.parent))
    assert outcome.exit_code == 0, outcome.output
    (row,) = [line.split() for line in outcome.stdout.splitlines() if "2026-01-01" in line]
    assert row[4:] == ["1", "2", "229.0"]


def test_show_of_a_key_without_values_ends_with_1(windows: Path) -> None:
    for options in ([], ["--raw"], ["--flow", write_flow(windows.parent)]):
        outcome = invoke("show", "77", windows, *options)
        assert outcome.exit_code == 1 and "no state of key 77 after batch 0" in outcome.stderr


def test_show_says_where_it_cannot_finish_values(state: Path) -> None:
    outcome = invoke("show", "3", state)
    assert "agg after batch 3, as stored: --flow FLOW would finish the values" in outcome.stdout
    assert "as stored" not in invoke("show", "3", state, "--raw").stdout


def test_show_puts_rows_below_each_other_where_a_table_would_be_too_wide(state: Path) -> None:
    runner = CliRunner(env={"COLUMNS": "40", "NO_COLOR": "1"})
    outcome = runner.invoke(app, ["state", "show", "3", str(state), "--batch", "0"])
    lines = [line.split() for line in outcome.stdout.splitlines()]
    assert ["window", "2025-10-09", "08:53:20Z"] in lines and ["lowest", "300"] in lines


def test_show_of_a_key_without_state_ends_with_1(state: Path) -> None:
    outcome = invoke("show", "77", state)
    assert outcome.exit_code == 1 and "no state of key 77 after batch 3" in outcome.stderr


def test_a_key_of_the_wrong_type_is_refused_with_the_type(state: Path) -> None:
    outcome = invoke("show", "kitchen", state)
    assert outcome.exit_code == 1 and "'kitchen' cannot be a value of sensor, which is Int64" in outcome.stderr


def test_show_of_an_unknown_operator_names_the_known(state: Path) -> None:
    assert "there are: agg" in invoke("show", "3", state, "--operator", "sum").stderr


def test_verify_of_an_intact_checkpoint_ends_with_0(state: Path) -> None:
    outcome = invoke("verify", state)
    assert outcome.exit_code == 0 and "batches 0–3: every file is as it was written" in outcome.stdout


def test_verify_names_the_damaged_file_and_the_batch_to_return_to(state: Path) -> None:
    damaged = next(state.glob("state/0/0/*-b000000000002-*"))
    damaged.write_bytes(damaged.read_bytes()[:-7] + b"damaged")
    outcome = invoke("verify", state)
    assert outcome.exit_code == 1
    assert damaged.name in outcome.stdout and "needed by batches 2–3, operator agg, slot 0" in outcome.stdout
    assert f"anabranch state rollback --to 1 {state}" in outcome.stdout


def test_rollback_asks_first_and_does_nothing_on_no(state: Path) -> None:
    outcome = invoke("rollback", "--to", 1, state, answer="n\n")
    assert outcome.exit_code == 1
    assert "Undo 2 batches (2–3)" in outcome.output
    assert Checkpoint(open_store(state)).batches() == [0, 1, 2, 3]


@pytest.mark.parametrize("answer", ["", None])
def test_rollback_where_nobody_can_answer_names_the_option_and_changes_nothing(state: Path, answer: str | None) -> None:
    outcome = invoke("rollback", "--to", 1, state, answer=answer)
    assert outcome.exit_code == 2 and "say --yes" in outcome.stderr
    assert Checkpoint(open_store(state)).batches() == [0, 1, 2, 3]
    assert invoke("rollback", "--to", 1, state, "--yes").exit_code == 0
    assert Checkpoint(open_store(state)).batches() == [0, 1]


def test_rollback_without_the_flow_says_what_the_sinks_still_hold(state: Path) -> None:
    outcome = invoke("rollback", "--to", 1, state, answer="y\n")
    assert outcome.exit_code == 0, outcome.output
    assert "batch 1 is the latest one now" in outcome.stdout
    assert "sink 0 holds 2 rows of batches 2 to 3" in outcome.stdout and "--flow" in outcome.stdout
    assert Checkpoint(open_store(state)).batches() == [0, 1]
    assert parts_of(state) == [0, 1, 2, 3]


def test_rollback_with_the_flow_lets_file_sinks_take_their_results_back(state: Path) -> None:
    flow = write_flow(state.parent)
    outcome = invoke("rollback", "--to", 1, state, "--flow", flow, "--yes")
    assert outcome.exit_code == 0, outcome.output
    assert parts_of(state) == [0, 1]
    assert "later results are gone" in outcome.stdout


def test_rollback_can_be_finished_with_the_flow_later(state: Path) -> None:
    invoke("rollback", "--to", 1, state, "--yes")
    outcome = invoke("rollback", "--to", 1, state, "--yes", "--flow", write_flow(state.parent))
    assert outcome.exit_code == 0 and "undone: nothing" in outcome.stdout
    assert parts_of(state) == [0, 1]


def test_rollback_to_a_batch_that_is_not_kept_names_those_that_are(state: Path) -> None:
    outcome = invoke("rollback", "--to", 9, state, "--yes")
    assert outcome.exit_code == 1 and "it keeps 0 to 3" in outcome.stderr


@pytest.mark.parametrize("command", [["ls"], ["show", "3"], ["verify"], ["rollback", "--to", "1", "--yes"]])
def test_a_checkpoint_that_is_not_there_is_not_made(command: list[str], tmp_path: Path) -> None:
    outcome = invoke(*command, tmp_path / "stat")
    assert outcome.exit_code == 1 and "there is no checkpoint" in outcome.stderr
    assert not (tmp_path / "stat").exists()


def test_a_folder_without_commits_is_no_checkpoint(tmp_path: Path) -> None:
    outcome = invoke("ls", tmp_path)
    assert outcome.exit_code == 1 and "holds no committed batch" in outcome.stderr


def test_keys_of_one_column_may_be_bare_or_named() -> None:
    assert read_key("a=b,c", ["name"], "agg") == {"name": "a=b,c"}
    assert read_key("name=x", ["name"], "agg") == {"name": "x"}


def test_keys_of_several_columns_are_named() -> None:
    assert read_key("b=x,a=1", ["a", "b"], "agg") == {"a": "1", "b": "x"}
    for text in ("1", "a=1", "a=1,b=x,c=2", "a=1,a=2"):
        with pytest.raises(CheckpointError, match="write the key as a=…,b=…"):
            read_key(text, ["a", "b"], "agg")


def test_verify_names_damaged_records_and_that_no_batch_needs_them(state: Path) -> None:
    store = open_store(state)
    log = EventLog(store, 1, lambda: None)
    for number in range(2):
        log.add([BatchEvent(progress_of(number))], 0.0)
    (file,) = store.list("history")
    store.write(file.name, b"x" + store.read(file.name))
    outcome = invoke("verify", state)
    assert outcome.exit_code == 1
    assert f"{file.name}, line 1," in outcome.stdout
    assert "needed by no batch" in outcome.stdout
    assert "rollback" not in outcome.stdout

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from anabranch.cli import bench as bench_command
from anabranch.cli.app import app
from anabranch.cli.run import command as run_command
from anabranch.cli.sessions import SessionOptions
from anabranch.engine.settings import RunSettings
from anabranch.errors import EngineError
from anabranch.model import BatchProgress
from anabranch.model.waits import Wait
from anabranch.spark.flow import Flow
from benchmarks.shared.registry import BENCHES, Bench, BenchOptions
from unit.cli.builders import batch
from unit.cli.flows import write_flow

COMMANDS = [
    "run",
    "explain",
    "history",
    "ctl",
    "bench",
    "demo",
    "doctor",
    "state ls",
    "state show",
    "state verify",
    "state rollback",
    "state skip",
    "lab up",
    "lab status",
    "lab cut",
    "lab heal",
    "lab limit",
    "lab kill",
    "lab add",
    "lab down",
    "lab exec",
]


def invoke(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(argument) for argument in arguments])


def plain(text: str) -> str:
    """Return a text without the box that usage errors are drawn in."""
    return re.sub(r"\s+", " ", re.sub(r"[│╭╮╰╯─]", "", text))


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Flow, dict[str, Any], SessionOptions, bool]]:
    """Collect what would be run, instead of starting Spark."""
    calls: list[tuple[Flow, dict[str, Any], SessionOptions, bool]] = []

    def follow(flow: Flow, settings: dict[str, Any], session: SessionOptions, console: object, *, live: bool) -> None:
        calls.append((flow, settings, session, live))

    monkeypatch.setattr(run_command, "follow_flow", follow)
    return calls


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    outcome = invoke(*command.split(), "--help")
    assert outcome.exit_code == 0
    assert "Usage: " in outcome.stdout


def test_the_version_is_the_installed_one() -> None:
    outcome = invoke("--version")
    assert (outcome.exit_code, bool(re.fullmatch(r"anabranch \d+\.\d+\.\d+\S*\n", outcome.stdout))) == (0, True)


def test_every_setting_of_a_run_has_an_option() -> None:
    usage = invoke("run", "--help").stdout
    options = {name: f"--{name.replace('_', '-')}" for name in RunSettings.model_fields}
    options["drop_sources"] = "--drop-source "  # given once for each
    options["elasticity"] = "--executors "  # from how many to how many; flow files say the rest
    missing = [name for name, option in options.items() if option not in usage]
    assert not missing


def test_an_endless_source_and_a_run_that_must_end_do_not_start_spark(followed: list[Any], tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        "flow: endless\nsources: {made: {generate: {rows_per_second: 10}}}\n"
        "streams: {copy: {from: made, steps: [], to: {parquet: out}}}\n",
        encoding="utf-8",
    )
    outcome = invoke("run", flow, "-c", tmp_path / "state", "--trigger", "available-now")
    assert outcome.exit_code == 1 and "set generate(total_rows=…)" in outcome.stderr
    assert followed == []
    assert invoke("run", flow, "-c", tmp_path / "state", "--trigger", "5s").exit_code == 0
    assert len(followed) == 1


def test_the_latency_that_hosts_may_sleep_for_wins_over_the_files(followed: list[Any], tmp_path: Path) -> None:
    flow = write_flow(tmp_path, "{checkpoint: state, energy: {latency_seconds: 9, policy: consolidation}}")
    assert invoke("run", flow).exit_code == 0
    assert invoke("run", flow, "--energy", "4").exit_code == 0
    expected = {"latency_seconds": 9, "policy": "consolidation"}
    assert [settings["energy"] for _, settings, *_ in followed] == [expected, expected | {"latency_seconds": 4.0}]
    wrong = write_flow(tmp_path, "{checkpoint: state, energy: {policy: consolidation}}")
    outcome = invoke("run", wrong)
    assert outcome.exit_code == 1 and "latency_seconds is missing" in outcome.stderr


def test_options_win_over_the_files_run_section(followed: list[Any], tmp_path: Path) -> None:
    flow = write_flow(tmp_path, "{checkpoint: state, trigger: once, slots: 8, drain: true}")
    outcome = invoke("run", flow, "--slots", "3", "--no-drain", "--no-local-merge", "--takeover")
    assert outcome.exit_code == 0, outcome.output
    ((graph, settings, _, live),) = followed
    assert graph.name == "low-voltage"
    assert settings == {
        "checkpoint": str(tmp_path / "state"),
        "trigger": "once",
        "slots": 3,
        "drain": False,
        "local_merge": False,
        "takeover": True,
    }
    assert not live


def test_the_degree_of_replicas_is_an_option_and_flow_files_say_the_rest(followed: list[Any], tmp_path: Path) -> None:
    flow = write_flow(tmp_path, "{replicas: {placement: random, memory_mb: 64}}")
    assert invoke("run", flow, "--replicas", "2").exit_code == 0
    assert followed[0][1]["replicas"] == {"placement": "random", "memory_mb": 64, "degree": 2}
    flow = write_flow(tmp_path, "{replicas: {degre: 2}}")
    outcome = invoke("run", flow)
    assert outcome.exit_code != 0
    assert "run.replicas: there is no setting 'degre'; did you mean 'degree'?" in plain(outcome.output)


def test_a_flow_that_names_no_checkpoint_has_one_of_its_name_here(followed: list[Any], tmp_path: Path) -> None:
    outcome = invoke("run", write_flow(tmp_path))
    assert outcome.exit_code == 0, outcome.output
    ((_, settings, *_),) = followed
    assert settings == {"checkpoint": "state/low-voltage"}
    assert "checkpoint: state/low-voltage" in plain(outcome.output)


def test_a_python_file_says_how_it_is_run(followed: list[Any], tmp_path: Path) -> None:
    flow = tmp_path / "jobs.py"
    flow.write_text(
        "import polars as pl\nimport anabranch as ab\n"
        'flow = ab.Flow("jobs")\n'
        'flow.read(ab.memory(pl.DataFrame({"a": [1]}))).write(ab.to_memory())\n'
        'RUN = {"checkpoint": "kept", "trigger": "available-now", "slots": 3}\n',
        encoding="utf-8",
    )
    assert invoke("run", flow, "--slots", "2").exit_code == 0
    ((_, settings, *_),) = followed
    assert settings == {"checkpoint": str(tmp_path / "kept"), "trigger": "available-now", "slots": 2}


def test_strategy_is_parallelism_by_its_name_of_before(followed: list[Any], tmp_path: Path) -> None:
    flow, said = write_flow(tmp_path), "--strategy is called --parallelism now"
    old = invoke("run", flow, "-c", "state", "--strategy", "query")
    assert old.exit_code == 0 and said in old.stderr
    drawn, redrawn = (invoke("explain", flow, option, "operator") for option in ("--strategy", "--parallelism"))
    assert drawn.stdout == redrawn.stdout and said in drawn.stderr
    new = invoke("run", flow, "-c", "state", "--parallelism", "query")
    assert said not in new.stderr + redrawn.stderr
    (_, old_settings, _, _), (_, new_settings, _, _) = followed
    assert old_settings == new_settings and old_settings["parallelism"] == "query"


def test_spark_options_reach_the_session(followed: list[Any], tmp_path: Path) -> None:
    flow = write_flow(tmp_path)
    invoke("run", flow, "-c", "state", "--master", "local[3]", "--memory", "2g", "--conf", "spark.a=b=c", "--verbose")
    ((_, _, session, _),) = followed
    assert session == SessionOptions("local[3]", "2g", {"spark.a": "b=c"}, verbose=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-c", "state", "--trigger", "hourly"], "'hourly' is no trigger"),
        (["-c", "state", "--control", "http://host"], "'http' is no way to send commands; use one of redis://"),
        (["-c", "state", "--control", "redis://host:port"], "control: Port could not be cast"),
        (["-c", "state", "--slots", "0"], "greater than or equal to 1"),
        (["-c", "state", "--slots", "20000"], "slots: input should be less than or equal to 10000, found 20000"),
        (["-c", "state", "--parallelism", "quick"], "operator-set"),
        (["-c", "state", "--conf", "spark.a"], "'spark.a' is no Spark setting"),
        (["-c", "state", "--colour"], "No such option"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_right(
    arguments: list[str], words: str, followed: list[Any], tmp_path: Path
) -> None:
    outcome = invoke("run", write_flow(tmp_path), *arguments)
    assert outcome.exit_code == 2
    assert words in plain(outcome.output)
    assert not followed


def test_a_missing_flow_file_is_an_error_that_names_its_neighbours(followed: list[Any], tmp_path: Path) -> None:
    write_flow(tmp_path)
    outcome = invoke("run", tmp_path / "flaw.yaml", "-c", "state")
    assert outcome.exit_code == 1
    assert "error: " in outcome.stderr and "flow.yaml" in outcome.stderr
    assert "Traceback" not in outcome.output


def test_a_source_that_cannot_be_read_fails_before_spark_starts(followed: list[Any], tmp_path: Path) -> None:
    flow = write_flow(tmp_path)
    (tmp_path / "readings").rmdir()
    outcome = invoke("run", flow, "-c", tmp_path / "state")
    assert outcome.exit_code == 1 and "readings" in outcome.stderr
    assert not followed and not (tmp_path / "state").exists()


def test_an_unforeseen_error_is_a_sentence_and_with_debug_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        msg = "the [disk] is on fire"
        raise OSError(msg)

    monkeypatch.setattr(run_command, "follow_flow", fail)
    flow = write_flow(tmp_path)
    outcome = invoke("run", flow, "-c", "state")
    assert outcome.exit_code == 1
    assert "error: OSError: the [disk] is on fire" in outcome.stderr and "--debug" in outcome.stderr
    assert isinstance(invoke("run", flow, "-c", "state", "--debug").exception, OSError)


class FakeHandle:
    """A flow that ends after some polls, or when it is stopped."""

    def __init__(self, polls: int, error: BaseException | None = None) -> None:
        self.polls = polls
        self.error = error
        self.stops: list[bool] = []

    def wait(self, timeout_seconds: float) -> bool:
        self.polls -= 1
        if self.polls <= 0 and self.error is not None:
            raise self.error
        return self.polls <= 0

    def stop(self, *, drain: bool = False) -> None:
        self.stops.append(drain)

    def exception(self) -> BaseException | None:
        return None

    @property
    def waits(self) -> tuple[Wait, ...]:
        return (Wait("redis://cache", "refused", 0.0),)


class FakeDisplay:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.announced = 0
        self.waits: tuple[Wait, ...] = ()

    def show_waits(self, waits: tuple[Wait, ...]) -> None:
        self.waits = waits

    def announce_end(self) -> None:
        self.announced += 1


class Asked:
    """An interrupt that has come already."""

    def __init__(self, requested: bool) -> None:
        self.requested = requested


def follow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, batches: list[BatchProgress], error: BaseException | None = None
) -> Result:
    """Run the command with a flow that makes these batches at once, without Spark."""

    @contextmanager
    def no_session(options: SessionOptions) -> Iterator[None]:
        yield None

    def start(self: Flow, open_spark: Callable[[], Any], *, on_progress: Any, **settings: Any) -> FakeHandle:
        open_spark()
        for progress in batches:
            on_progress(progress)
        return FakeHandle(polls=1, error=error)

    monkeypatch.setattr(run_command, "open_session", no_session)
    monkeypatch.setattr(Flow, "start_on", start)
    return invoke("run", write_flow(tmp_path), "-c", tmp_path / "state")


def test_without_a_terminal_each_batch_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome = follow(monkeypatch, tmp_path, [batch(0), batch(1, problems=("a.json grew",))])
    assert outcome.exit_code == 0
    first, second, problem, closing = outcome.stdout.splitlines()
    assert first.startswith("batch=0 rows=100000 ") and second.startswith("batch=1 ")
    assert problem == "problem: a.json grew"
    assert "2 batches" in closing and "committed up to batch 1" in closing


def test_a_flow_that_fails_ends_with_1_and_its_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome = follow(monkeypatch, tmp_path, [batch(0)], EngineError("batch 1 failed 3 times; nothing was committed"))
    assert outcome.exit_code == 1
    assert outcome.stdout.startswith("batch=0")
    assert outcome.stderr.strip() == "error: batch 1 failed 3 times; nothing was committed"


@pytest.mark.parametrize(
    ("settings", "drains"),
    [
        ({}, False),
        ({"drain": True}, True),
        ({"drain": True, "trigger": "5s"}, True),
        # The rest of bounded input comes later: windows that were closed now would lose it.
        ({"drain": True, "trigger": "available-now"}, False),
    ],
)
def test_ctrl_c_stops_the_flow_and_drains_only_endless_ones(settings: dict[str, Any], drains: bool) -> None:
    handle = FakeHandle(polls=100)
    display = FakeDisplay()
    run_command.watch(handle, Asked(True), settings, display)  # type: ignore[arg-type]
    assert handle.stops == [drains]
    assert display.announced == 1


def test_a_flow_that_ends_by_itself_is_not_stopped() -> None:
    handle = FakeHandle(polls=3)
    display = FakeDisplay()
    run_command.watch(handle, Asked(False), {}, display)  # type: ignore[arg-type]
    assert handle.stops == []
    assert display.waits == handle.waits


def test_explain_draws_text_mermaid_and_svg(tmp_path: Path) -> None:
    flow = write_flow(tmp_path, "{slots: 5}")
    text = invoke("explain", flow)
    assert text.exit_code == 0 and "fan-out 5" in text.stdout
    assert "fan-out 30" in invoke("explain", flow, "--slots", "30").stdout
    assert "operator parallelism" in invoke("explain", flow, "--parallelism", "operator").stdout
    assert invoke("explain", flow, "--format", "svg").stdout.startswith("<svg")
    assert "flowchart" in invoke("explain", flow, "--format", "mermaid").stdout


def test_explain_checks_a_flow_only_if_asked(tmp_path: Path) -> None:
    flow = write_flow(tmp_path)
    assert invoke("explain", flow, "--check").exit_code == 0
    shutil.rmtree(tmp_path / "readings")
    assert invoke("explain", flow).exit_code == 0
    outcome = invoke("explain", flow, "--check")
    assert outcome.exit_code == 1 and "readings" in outcome.stderr and outcome.stdout == ""


def test_explain_takes_the_format_from_the_files_ending(tmp_path: Path) -> None:
    flow = write_flow(tmp_path)
    outcome = invoke("explain", flow, "--out", tmp_path / "plan.svg")
    assert outcome.exit_code == 0 and outcome.stdout == ""
    assert (tmp_path / "plan.svg").read_text(encoding="utf-8").startswith("<svg")
    assert invoke("explain", flow, "--out", tmp_path / "no" / "plan.svg").exit_code == 2


@pytest.mark.parametrize("name", ["plan.png", "plan.PDF", "plan.dot", "plan.jpeg"])
@pytest.mark.parametrize("format", [[], ["--format", "svg"]])
def test_explain_refuses_a_file_that_would_not_be_what_its_ending_says(
    tmp_path: Path, name: str, format: list[str]
) -> None:
    if format and name == "plan.dot":
        return  # with a format, an ending that stands for no picture may be anything
    outcome = invoke("explain", write_flow(tmp_path), "--out", tmp_path / name, *format)
    assert outcome.exit_code == 2 and not (tmp_path / name).exists()
    assert f"{tmp_path / 'plan.svg'} instead" in plain(outcome.stderr)


def test_explain_refuses_a_format_that_its_files_ending_contradicts(tmp_path: Path) -> None:
    flow = write_flow(tmp_path)
    outcome = invoke("explain", flow, "--out", tmp_path / "plan.svg", "--format", "mermaid")
    assert outcome.exit_code == 2 and "plan.mmd instead" in plain(outcome.stderr)
    for name, format in (("plan", "svg"), ("plan.md", "mermaid"), ("plan.txt", "text")):
        assert invoke("explain", flow, "--out", tmp_path / name, "--format", format).exit_code == 0
        assert (tmp_path / name).read_text(encoding="utf-8") == invoke("explain", flow, "--format", format).stdout


def test_benches_are_listed_when_none_is_named() -> None:
    outcome = invoke("bench")
    assert outcome.exit_code == 0
    assert all(name in outcome.stdout for name in BENCHES)


def test_an_unknown_bench_names_the_known_ones() -> None:
    outcome = invoke("bench", "keyed-windo")
    assert outcome.exit_code == 2 and "keyed-window" in plain(outcome.output)


class FakeReport:
    def __init__(self, answers_equal: bool) -> None:
        self.answers_equal = answers_equal


def test_bench_options_reach_the_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[BenchOptions] = []

    def run(options: BenchOptions) -> Any:
        given.append(options)
        return FakeReport(answers_equal=True)

    monkeypatch.setitem(BENCHES, "fake", Bench("fake", "a bench", run))
    arguments = ["--rows", "10", "--peers", "a, b", "--json", tmp_path / "x.json", "--seed", "3", "--curves"]
    assert invoke("bench", "fake", *arguments).exit_code == 0
    assert invoke("bench", "fake", "--peers", "none").exit_code == 0
    assert given[0].rows == 10 and given[0].peers == ("a", "b") and given[0].json_path == tmp_path / "x.json"
    assert given[0].seed == 3 and given[0].curves
    assert given[1] == BenchOptions(peers=())


def test_different_answers_fail_a_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BENCHES, "fake", Bench("fake", "a bench", lambda options: FakeReport(False)))  # type: ignore[arg-type,return-value]
    outcome = invoke("bench", "fake")
    assert outcome.exit_code == 1 and "different answers" in outcome.stderr


def test_pictures_of_a_bench_are_refused_before_it_runs_where_nothing_can_draw_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = invoke("bench", "planners", "--out", tmp_path)
    assert outcome.exit_code == 1 and "pip install 'anabranch[pictures]'" in plain(outcome.stderr)


def test_a_package_outside_of_a_clone_says_where_benches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench_command, "__file__", str(tmp_path / "site-packages" / "anabranch" / "cli" / "bench.py"))
    outcome = invoke("bench", "planners")
    assert outcome.exit_code == 1 and "benchmarks/ of its repository: clone that" in plain(outcome.stderr)


def test_a_run_without_a_batch_has_its_closing_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome = follow(monkeypatch, tmp_path, [])
    assert outcome.exit_code == 0 and "nothing new to read" in outcome.stdout

"""A real flow, told what to do while it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import anabranch as ab
from anabranch.cli.app import app
from anabranch.model.routes import DEFAULT_BUCKETS
from anabranch.routing import hash_keys
from anabranch.routing.keys import KeyBatch
from anabranch.routing.routes import Routes
from flows.running import SCHEMA, frames_of, reading, wait_until
from servers.redis import RedisServer
from spark.fixtures import SparkBench

KEYS = 20
SLOTS = 3
ROWS = [reading(key, second) for key in range(KEYS) for second in range(3)]


@dataclass
class Told:
    """A flow that runs, and a way to tell it something."""

    handle: ab.Handle
    source: Any
    sink: Any
    checkpoint: str
    frames: int = 0

    def tell(self, *words: object) -> Result:
        runner = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"})
        return runner.invoke(app, ["ctl", self.checkpoint, *(str(word) for word in words), "--timeout", "60"])

    def show(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.tell("show", "--json").stdout)
        (operator,) = shown["operators"]
        return {"batch": shown["batch"], **operator}

    def feed(self) -> None:
        """Give the flow one batch more, and wait until it is done."""
        self.frames += 1
        self.source.add(*frames_of([ROWS]))
        wait_until(lambda: sum(batch.rows_in for batch in self.handle.progress) == self.frames * len(ROWS), "the batch")

    def await_shown(self, **wanted: object) -> dict[str, Any]:
        """Wait until the flow shows these values, without any data coming."""
        shown: dict[str, Any] = {}

        def fits() -> bool:
            shown.update(self.show())
            return shown["pending"] is None and all(shown[name] == value for name, value in wanted.items())

        try:
            wait_until(fits, f"{wanted}")
        except AssertionError as error:
            error.add_note(f"the flow shows {shown}")
            raise
        return shown

    def totals(self) -> dict[int, int]:
        """The last value of every key."""
        rows = pl.concat(frame for _, frame in self.sink.batches())
        return dict(rows.group_by("key", maintain_order=True).last().select("key", "rows").rows())


@pytest.fixture
def told(bench: SparkBench) -> Iterator[Told]:
    yield from run_flow(bench)


def run_flow(bench: SparkBench, **settings: Any) -> Iterator[Told]:
    flow = ab.Flow("steered")
    source, sink = ab.memory(schema=SCHEMA), ab.to_memory(bench.folder / "results")
    flow.read(source).key_by("key").agg(rows=ab.count(), name="totals").write(sink)
    checkpoint = bench.new_checkpoint()
    handle = flow.start(checkpoint, spark=bench.spark, slots=SLOTS, **settings)
    told = Told(handle, source, sink, checkpoint)
    try:
        told.feed()
        yield told
    finally:
        handle.stop()
    handle.wait()


def home_of(key: int) -> int:
    """Return the slot of a key's bucket, as a new flow begins."""
    hashes = hash_keys(pl.DataFrame({"key": [key]}, schema={"key": pl.Int64}), ["key"])
    return int(Routes.even(SLOTS, DEFAULT_BUCKETS).home_slots(KeyBatch(hashes.to_numpy()))[0])


def test_commands_take_effect_while_no_data_comes_and_answers_stay_right(told: Told) -> None:
    target = (home_of(7) + 1) % SLOTS
    # One after the other, faster than batches: each builds on the one before.
    for words in (["move", 7, target], ["split", 11, "0,2"], ["move", 3, home_of(3)], ["split", 12, "1,2"]):
        outcome = told.tell(*words)
        assert outcome.exit_code == 0, outcome.output
        assert "takes effect after batch" in outcome.stdout
    told.await_shown(moved_keys=1, split_keys=2)
    told.feed()
    assert told.totals() == dict.fromkeys(range(KEYS), 6)

    assert told.tell("merge", 11).exit_code == 0
    assert told.tell("merge", 12).exit_code == 0
    told.await_shown(moved_keys=1, split_keys=0)
    assert told.tell("slots", 5).exit_code == 0
    told.await_shown(slots=5)
    assert told.tell("strategy", "modulo").exit_code == 0
    told.await_shown(slots=5, strategy="modulo")
    told.feed()
    assert told.totals() == dict.fromkeys(range(KEYS), 9)
    assert told.handle.exception() is None


BAD_COMMANDS: list[tuple[list[object], str]] = [
    (["move", 7, 9], "there is no slot 9"),
    (["move", "seven", 1], "'seven' cannot be a value of key"),
    (["split", 7, "1,1"], "name one of them twice"),
    (["merge", 7], "neither moved nor split"),
    (["strategy", "fastest"], "fastest"),
    (["set", "tolerence=0.1"], "there is no setting 'tolerence'"),
    (["set", "tolerance=null"], "tolerance"),
    (["slots", 4, "--operator", "total"], "no operator 'total'; the flow has totals"),
]


def test_bad_commands_are_refused_with_the_reason_and_the_flow_goes_on(told: Told) -> None:
    for words, reason in BAD_COMMANDS:
        outcome = told.tell(*words)
        assert outcome.exit_code == 2, outcome.output
        assert "refused: " in outcome.stderr and reason in outcome.stderr
    told.feed()
    assert told.totals() == dict.fromkeys(range(KEYS), 6)
    assert told.show()["slots"] == SLOTS


def test_a_file_that_is_no_command_leaves_the_flow_alone(told: Told) -> None:
    inbox = Path(told.checkpoint) / "control" / "inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    (inbox / "wish.json").write_text("more speed", encoding="utf-8")
    answer = inbox.parent / "outbox" / "wish.json"
    wait_until(answer.exists, "the refusal")
    assert "cannot be read as JSON" in json.loads(answer.read_text(encoding="utf-8"))["text"]
    told.feed()
    assert told.tell("show").exit_code == 0


def test_settings_count_at_once(told: Told) -> None:
    assert told.tell("set", "tolerance=0.25", "sample_rate=0.5").exit_code == 0
    settings = told.show()["settings"]
    assert (settings["tolerance"], settings["sample_rate"]) == (0.25, 0.5)


def test_a_flow_that_ended_is_told_nothing_more(told: Told) -> None:
    told.handle.stop()
    outcome = told.tell("show")
    assert outcome.exit_code == 1
    assert "no flow runs on" in outcome.stderr


def test_a_flow_with_redis_is_reached_by_its_name_and_survives_the_servers_end(bench: SparkBench) -> None:
    server = RedisServer()
    server.start()
    for told in run_flow(bench, control=server.url):
        runner = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"})
        words = ["ctl", "steered", "slots", "4", "--redis", server.url, "--timeout", "60"]
        outcome = runner.invoke(app, words)
        assert outcome.exit_code == 0, outcome.output
        told.await_shown(slots=4)
        server.close()
        told.feed()
        # The checkpoint is listened to, whatever becomes of the server.
        assert told.tell("slots", 2).exit_code == 0
        told.await_shown(slots=2)
        assert told.totals() == dict.fromkeys(range(KEYS), 6)

"""An executor is killed, and its slots go on from copies of their state in another's memory: on Spark, with S3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.jars import S3_FILES, ServerMissing
from lab.drivers import see
from servers.programs import skip_or_fail
from servers.s3 import S3Server

SCRIPT = Path(__file__).with_name("replicas_under_test.py")
PATIENCE_SECONDS = 400.0


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> dict[str, Any]:
    """What one flow on one cluster went through: most of the time is Spark's to start."""
    try:
        jars = sorted(map(str, S3_FILES.find().glob("*.jar")))
    except ServerMissing as missing:
        skip_or_fail(missing)
    in_tasks = {f"spark.executorEnv.{name}": value for name, value in s3.environment.items()}
    settings = {**s3.spark_settings, **in_tasks, "spark.jars": ",".join(jars)}
    found, _ = see(
        SCRIPT,
        tmp_path_factory.mktemp("replicas"),
        f"{s3.make_bucket()}/copied",
        patience_seconds=PATIENCE_SECONDS,
        environment={**s3.environment, "UNDER_TEST_SETTINGS": json.dumps(settings)},
    )
    print(json.dumps(found, indent=1))
    return found


def find_lost(loss: dict[str, Any]) -> list[str]:
    return [slot for slot, executor in loss["steady"]["ran"].items() if executor == loss["killed"]]


def test_slots_read_their_own_memory_while_nothing_happens(seen: dict[str, Any]) -> None:
    assert {source for reads in seen["intact"]["steady"]["reads"].values() for source in reads} == {"hot"}
    stand = seen["intact"]["steady"]["stand"]
    assert stand["current"] == stand["wanted"] == 4


def test_slots_of_a_killed_executor_go_on_from_replicas_where_these_are(seen: dict[str, Any]) -> None:
    loss = seen["intact"]
    lost = find_lost(loss)
    assert lost
    for slot, reads in loss["first"]["reads"].items():
        assert reads.keys() == ({"replica"} if slot in lost else {"hot"}), slot
    assert all(executor != loss["killed"] for executor in loss["first"]["ran"].values())


def test_damaged_replicas_are_not_used_and_the_store_is(seen: dict[str, Any]) -> None:
    loss = seen["damaged"]
    lost = find_lost(loss)
    assert lost and loss["done"] > 0
    sources = {source for slot in lost for source in loss["first"]["reads"][slot]}
    # A slot that was at home there before finds what it left in that memory, too.
    assert "store" in sources and "replica" not in sources


def test_the_history_tells_where_runs_came_from_and_how_long_it_took(seen: dict[str, Any]) -> None:
    intact, damaged = seen["told"]
    assert f"executor {seen['intact']['killed']} on" in intact
    assert "went on from replicas on executor-" in intact
    assert "from replica; results of batch" in intact and "from store" not in intact
    assert "from store; results of batch" in damaged


def test_answers_are_right_whatever_was_killed_and_damaged(seen: dict[str, Any]) -> None:
    assert seen["answers"] == seen["expected"]

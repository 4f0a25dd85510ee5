"""Jars that benches and tests fetch: where they lie, and what is said when they cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.bench.servers import jars
from anabranch.bench.servers.jars import BROKER, FLINK_CONNECTOR, SPARK_CONNECTOR, ServerMissing
from anabranch.bench.servers.kafka import free_ports


@pytest.fixture(autouse=True)
def _caches_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path))


@pytest.mark.parametrize("wanted", [BROKER, SPARK_CONNECTOR, FLINK_CONNECTOR], ids=lambda wanted: wanted.name)
def test_a_folder_bears_the_name_and_the_version_that_the_pom_asks_for(wanted: jars.Jars, tmp_path: Path) -> None:
    name, _, version = wanted.folder.name.partition(f"{wanted.name}-")
    assert wanted.folder.parent == tmp_path
    assert name == ""
    assert version[0].isdigit()


def test_what_was_fetched_is_found_and_not_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    BROKER.folder.mkdir()
    monkeypatch.setenv("PATH", "")
    assert BROKER.find() == BROKER.fetch() == BROKER.folder


def test_what_is_missing_is_said_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerMissing, match="run scripts/ensure-kafka"):
        BROKER.find()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerMissing, match="apt-get install maven"):
        BROKER.fetch()


def test_a_maven_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mvn").write_text("#!/bin/sh\necho no way to the repository\nexit 1\n")
    (folder / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    with pytest.raises(ServerMissing, match="no way to the repository"):
        BROKER.fetch()
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_ports_are_free_and_different() -> None:
    assert len(set(free_ports(5))) == 5

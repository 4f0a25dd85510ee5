"""Servers that benches and tests start: where their jars lie, what is said when they cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.servers import jars
from benchmarks.servers.jars import BROKER, FLINK_CONNECTOR, FLINK_PARQUET, SPARK_CONNECTOR, ServerMissing
from benchmarks.servers.processes import (
    ServerError,
    ServerProcess,
    find_program,
)


@pytest.fixture(autouse=True)
def _caches_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path))


@pytest.mark.parametrize(
    "wanted", [BROKER, SPARK_CONNECTOR, FLINK_CONNECTOR, FLINK_PARQUET], ids=lambda wanted: wanted.name
)
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


def test_a_program_that_is_missing_is_said_with_its_package() -> None:
    with pytest.raises(ServerMissing, match=r"no-such-server is not installed.*package is some-package"):
        find_program(["no-such-server"], ["/usr/lib/nowhere/*/bin"], "some-package")


class Listener(ServerProcess):
    """A program that listens at its port, or ends with a complaint."""

    works = True

    def command(self) -> list[str]:
        """Return the command."""
        listen = f"import socket, time; kept = socket.create_server(('127.0.0.1', {self.port})); time.sleep(600)"
        return [sys.executable, "-S", "-c", listen if self.works else "raise SystemExit('no mood to listen')"]


def test_a_server_is_started_again_at_its_port_and_its_own_folder_is_gone_afterwards() -> None:
    with Listener() as server:
        folder, first = server.folder, server.process
        server.stop()
        assert not server.answers()
        server.start()
        assert server.answers() and server.process is not first and server.folder == folder
        with pytest.raises(ServerError, match="runs already"):
            server.start()
    assert not folder.exists()


def test_a_folder_of_the_callers_stays(tmp_path: Path) -> None:
    with Listener(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine" / "server.log").exists()


def test_a_server_that_does_not_answer_is_said_with_what_it_printed() -> None:
    server = Listener()
    server.works = False
    with pytest.raises(ServerError, match=r"does not answer; it printed:\nno mood to listen"), server:
        pass
    with pytest.raises(ServerError, match="does not run"):
        server.pause()

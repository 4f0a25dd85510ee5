"""Servers that benches and tests start: where their jars lie, their ports, what is said when they cannot be had."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.bench.servers import jars, processes
from anabranch.bench.servers.jars import BROKER, FLINK_CONNECTOR, SPARK_CONNECTOR, ServerMissing
from anabranch.bench.servers.processes import (
    ServerError,
    ServerProcess,
    find_free_port,
    find_free_ports,
    find_program,
)


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


def test_ports_are_different_and_never_those_of_outgoing_connections() -> None:
    ports = find_free_ports(5)
    assert len(set(ports)) == 5
    assert max(ports) < 32_768


def test_a_port_is_given_to_one_process_only_and_not_while_somebody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    first = find_free_port()
    monkeypatch.setattr(processes, "_SERVER_PORTS", range(first, first + 1))
    ask = f"from anabranch.bench.servers import processes as p; p._SERVER_PORTS = range({first}, {first + 1})"
    asked = [sys.executable, "-c", f"{ask}; p.find_free_port()"]
    refused = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert f"no port from {first} to {first} is free at 127.0.0.1" in refused.stderr
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setattr(processes, "_SERVER_PORTS", range(port, port + 1))
        with pytest.raises(ServerError, match="is free at"):
            find_free_port()


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

"""Hosts on one machine: they see each other, their wires are counted, limited and cut, and nothing is left of them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.lab import namespaces
from anabranch.lab.errors import LabError
from anabranch.lab.namespaces import HostNetwork, NetworkHost, find_hindrance, host_network, sweep_leftovers
from anabranch.lab.wires import WireLimit
from anabranch.state.copies.hot import open_hot_copies

hosts_needed = pytest.mark.skipif(find_hindrance() is not None, reason=str(find_hindrance()))
PATIENCE_SECONDS = 20.0
SEND = (
    "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).sendall(bytes(int(sys.argv[3])))"
)


@pytest.fixture(scope="module")
def network() -> Iterator[HostNetwork]:
    try:
        with host_network(2) as made:
            yield made
    except LabError as error:
        pytest.skip(str(error))


def send(host: NetworkHost, address: str, port: int, count: int) -> int:
    """Send so many bytes from a host; return how that ended."""
    command = [*host.prefix, sys.executable, "-S", "-c", SEND, address, str(port), str(count)]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, check=False).returncode


class Sink:
    """A server at an address of this machine that takes whatever comes."""

    def __init__(self, address: str) -> None:
        self._server = socket.create_server((address, 0))
        self.port = int(self._server.getsockname()[1])
        self.received = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                while chunk := connection.recv(1 << 16):
                    self.received += len(chunk)

    def close(self) -> None:
        self._server.close()


@hosts_needed
def test_what_a_host_sends_is_counted_on_its_wire_alone(network: HostNetwork) -> None:
    sink = Sink(network.gateway)
    try:
        first, second = network.hosts
        before = [host.read_traffic() for host in (first, second)]
        assert send(first, network.gateway, sink.port, 300_000) == 0
        sent, idle = (host.read_traffic() - earlier for host, earlier in zip((first, second), before, strict=True))
    finally:
        sink.close()
    assert 300_000 < sent.sent_bytes < 400_000
    # The most that goes into a packet, which the kernel may gather up to 64 kB on its way.
    assert 300_000 / 65_536 < sent.sent_packets < 1_000
    assert sent.received_bytes < 50_000 and idle.sent_bytes < 50_000


@hosts_needed
def test_hosts_have_addresses_of_their_own(network: HostNetwork) -> None:
    first, second = network.hosts
    assert len({network.gateway, first.address, second.address}) == 3
    shown = subprocess.run([*first.prefix, "ip", "-br", "addr"], capture_output=True, text=True, check=True).stdout
    assert first.address in shown and second.address not in shown


@hosts_needed
def test_a_host_that_is_cut_off_reaches_nobody_until_it_is_back(network: HostNetwork) -> None:
    sink = Sink(network.gateway)
    host = network.hosts[0]
    try:
        host.cut_off()
        try:
            assert send(host, network.gateway, sink.port, 10) != 0
        finally:
            host.reconnect()
        # The bridge may learn anew who is where.
        assert any(send(host, network.gateway, sink.port, 10) == 0 for _ in range(3))
    finally:
        sink.close()


@hosts_needed
def test_a_limit_lies_on_both_ends_of_the_wire_and_can_be_lifted(network: HostNetwork) -> None:
    def rules(host: NetworkHost) -> str:
        commands = (["tc", "qdisc", "show", "dev", host.link], ["tc", "-n", host.name, "qdisc", "show", "dev", "eth0"])
        return "".join(subprocess.run(each, capture_output=True, text=True, check=True).stdout for each in commands)

    network.limit(80)
    assert all(rules(host).count("rate 80Mbit") == 2 for host in network.hosts)
    network.limit(10)
    assert all(rules(host).count("rate 10Mbit") == 2 for host in network.hosts)
    network.limit(None)
    network.limit(None)
    assert not any("tbf" in rules(host) for host in network.hosts)
    with pytest.raises(LabError, match="cut the host off"):
        network.limit(0)


@hosts_needed
def test_processes_and_wires_go_with_the_block(network: HostNetwork) -> None:
    with host_network(1) as other:
        host = other.hosts[0]
        assert other.gateway != network.gateway
        sleeper = subprocess.Popen([*host.prefix, "sleep", "60"])
        while (
            str(sleeper.pid)
            not in subprocess.run(
                ["ip", "netns", "pids", host.name], capture_output=True, text=True, check=True
            ).stdout.split()
        ):
            assert sleeper.poll() is None
    assert sleeper.wait(PATIENCE_SECONDS) < 0
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert host.name not in left and network.hosts[0].name in left
    assert not (Path("/sys/class/net") / host.link).exists()
    assert not (Path("/sys/class/net") / other.bridge).exists()


@hosts_needed
def test_what_a_killed_process_left_is_swept_and_what_a_living_one_has_is_not(network: HostNetwork) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    name = f"ab{gone.pid:x}x0h0"
    subprocess.run(["ip", "netns", "add", name], check=True)
    sweep_leftovers()
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert name not in left and network.hosts[0].name in left


@hosts_needed
def test_hot_copies_of_a_host_are_at_hand_there_alone(network: HostNetwork) -> None:
    first, second = network.hosts
    copies = open_hot_copies(first.name, 1, 0.0, cap_bytes=1)
    assert copies is not None
    shutil.rmtree(copies.folder.parent)
    mark = copies.folder.parents[1] / f"{first.name}-mark"
    seen = subprocess.run(
        [*first.prefix, "sh", "-c", f"echo here > {mark}; cat {mark}"], capture_output=True, check=True
    )
    assert seen.stdout == b"here\n"
    assert not mark.exists()
    assert subprocess.run([*second.prefix, "test", "-e", str(mark)], check=False).returncode == 1


@hosts_needed
def test_a_delay_is_laid_on_the_wire_or_refused_with_what_the_kernel_says(network: HostNetwork) -> None:
    host = network.hosts[0]
    host.limit(WireLimit(mbit=50))
    shown = ["tc", "qdisc", "show", "dev", host.link]
    try:
        host.limit(WireLimit(mbit=20, delay_ms=30))
    except LabError as error:
        assert "no netem" in str(error) and "said:" in str(error)
        # The limit from before is as it was.
        assert "rate 50Mbit" in subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    else:
        rules = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
        assert "delay 30ms" in rules and "rate 20Mbit" in rules
    finally:
        host.lift_limit()


def test_what_is_missing_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux" in str(find_hindrance())
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert "apt-get install iproute2" in str(find_hindrance())
    monkeypatch.setattr(shutil, "which", lambda program: f"/sbin/{program}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in str(find_hindrance())
    with pytest.raises(LabError, match="root"), host_network(2):
        pass


def test_a_command_that_fails_is_named_with_what_it_said() -> None:
    with pytest.raises(LabError, match="no-such-program"):
        namespaces._call("no-such-program", "x")
    with pytest.raises(LabError, match="said: status 1"):
        namespaces._call("false")

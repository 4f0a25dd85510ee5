"""Hosts on one machine: network namespaces on a bridge, each with a wire that can be limited, watched and cut.

To the programs in them they are hosts of their own: other addresses, other ports, and every byte between two of them
crosses two wires. They share the processor and the disk. Needs root, a Linux kernel with namespaces, and iproute2.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from anabranch.lab.errors import LabError

_NET = ipaddress.ip_network("10.213.0.0/16")
_FIRST_HOST = 2
_MOST_HOSTS = 200
# Namespaces and wires carry the number of the process that made them: what a killed one left can be told by it.
_OURS = re.compile(r"^ab([0-9a-f]+)x\d+(?:h\d+|br)$")
_SERIALS = itertools.count()
_COMMAND_SECONDS = 20.0
_END_SECONDS = 5.0
_QUEUE_MS = 200
_SMALLEST_BURST_BYTES = 64 * 1024
# Tokens come once a tick of the kernel's clock, 100 ticks a second at the fewest: a burst must last for one.
_TICKS_A_SECOND = 100


@dataclass(frozen=True, slots=True)
class Traffic:
    """What crossed a wire, headers of Ethernet included."""

    sent_bytes: int
    received_bytes: int

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(self.sent_bytes - earlier.sent_bytes, self.received_bytes - earlier.received_bytes)


@dataclass(frozen=True, slots=True)
class Host:
    """A host of its own to the programs that are started behind ``prefix``."""

    name: str
    address: str
    link: str
    """Its wire's other end, on the bridge."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command is put behind to run there; the process has the number that it would have without."""
        return ("ip", "netns", "exec", self.name)

    def limit(self, megabits_per_second: float) -> None:
        """Let no more than this through the wire, each way."""
        if megabits_per_second <= 0:
            msg = f"a wire of {megabits_per_second} Mbit/s lets nothing through; to cut a host off, call cut_off()"
            raise LabError(msg)
        bits = round(megabits_per_second * 1_000_000)
        burst = max(_SMALLEST_BURST_BYTES, bits // 8 // _TICKS_A_SECOND)
        rule = ("tbf", "rate", f"{bits}bit", "burst", f"{burst}b", "latency", f"{_QUEUE_MS}ms")
        # A queue limits what leaves through it, so each end of the wire has one.
        _call("tc", "qdisc", "replace", "dev", self.link, "root", *rule)
        _call("tc", "-n", self.name, "qdisc", "replace", "dev", "eth0", "root", *rule)

    def lift_limit(self) -> None:
        """Let the wire be as fast as the machine again; one that has no limit stays as it is."""
        for command in (("tc",), ("tc", "-n", self.name)):
            device = self.link if len(command) == 1 else "eth0"
            with contextlib.suppress(LabError):
                _call(*command, "qdisc", "del", "dev", device, "root")

    def cut_off(self) -> None:
        """Take the wire out: nothing arrives, and nobody is told."""
        _call("ip", "link", "set", self.link, "down")

    def reconnect(self) -> None:
        """Put the wire back in; connections that have not timed out go on."""
        _call("ip", "link", "set", self.link, "up")

    def read_traffic(self) -> Traffic:
        """Return what the host has sent and received since it was made."""
        # What the bridge's end received is what the host sent.
        end = read_link(self.link)
        return Traffic(end.received_bytes, end.sent_bytes)


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """Hosts that see each other, and this machine at ``gateway``."""

    bridge: str
    gateway: str
    """The address at which hosts find programs that run outside of them."""
    hosts: tuple[Host, ...]

    def limit(self, megabits_per_second: float | None) -> None:
        """Limit the wires of all hosts, or lift all limits."""
        for host in self.hosts:
            if megabits_per_second is None:
                host.lift_limit()
            else:
                host.limit(megabits_per_second)


def read_link(link: str) -> Traffic:
    """Return what an interface of this machine, the end of a wire or a bridge, has sent and received."""
    folder = Path("/sys/class/net") / link / "statistics"
    return Traffic(int((folder / "tx_bytes").read_text()), int((folder / "rx_bytes").read_text()))


def find_hindrance() -> str | None:
    """Say why hosts cannot be made here and what to do about it; None where nothing is known to be in the way."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are Linux's, and this is {sys.platform}"
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} of iproute2 are missing: apt-get install iproute2"
    if os.geteuid() != 0:
        return f"network namespaces need root, and this is user {os.geteuid()}: run it with sudo"
    return None


@contextlib.contextmanager
def host_network(count: int) -> Iterator[HostNetwork]:
    """Make so many hosts on one bridge; when the block ends, end what still runs in them and take all away."""
    hindrance = find_hindrance()
    if hindrance is not None:
        msg = f"no hosts can be made on this machine: {hindrance}"
        raise LabError(msg)
    if not 1 <= count <= _MOST_HOSTS:
        msg = f"{count} hosts were asked for; a network has 1 to {_MOST_HOSTS}"
        raise LabError(msg)
    sweep_leftovers()
    subnet = _find_free_subnet()
    stem = f"ab{os.getpid():x}x{next(_SERIALS)}"
    addresses = list(subnet.hosts())
    network = HostNetwork(
        bridge=f"{stem}br",
        gateway=str(addresses[0]),
        hosts=tuple(
            Host(f"{stem}h{number}", str(addresses[_FIRST_HOST + number]), f"{stem}h{number}")
            for number in range(count)
        ),
    )
    try:
        _make(network, subnet.prefixlen)
        yield network
    finally:
        for host in network.hosts:
            _remove_namespace(host.name)
            _remove_link(host.link)
        _remove_link(network.bridge)


def sweep_leftovers() -> None:
    """Take away what processes that are gone have left: a killed one could not clean up."""
    for name in _list_namespaces():
        if _is_leftover(name):
            _remove_namespace(name)
    for link in _list_links():
        if _is_leftover(link):
            _remove_link(link)


# -- inside --------------------------------------------------------------------------------------------------------


def _make(network: HostNetwork, prefix_length: int) -> None:
    _call("ip", "link", "add", network.bridge, "type", "bridge")
    _call("ip", "addr", "add", f"{network.gateway}/{prefix_length}", "dev", network.bridge)
    _call("ip", "link", "set", network.bridge, "up")
    for host in network.hosts:
        _call("ip", "netns", "add", host.name)
        _call("ip", "link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        _call("ip", "link", "set", host.link, "master", network.bridge, "up")
        _call("ip", "-n", host.name, "addr", "add", f"{host.address}/{prefix_length}", "dev", "eth0")
        _call("ip", "-n", host.name, "link", "set", "eth0", "up")
        _call("ip", "-n", host.name, "link", "set", "lo", "up")


def _find_free_subnet() -> ipaddress.IPv4Network:
    taken = [
        ipaddress.ip_interface(f"{address['local']}/{address['prefixlen']}").network
        for link in json.loads(_call("ip", "-j", "-4", "addr"))
        for address in link.get("addr_info", ())
    ]
    for subnet in _NET.subnets(new_prefix=24):
        if not any(subnet.overlaps(other) for other in taken):
            assert isinstance(subnet, ipaddress.IPv4Network)
            return subnet
    msg = f"every network of 256 addresses in {_NET} is in use here; free one: ip addr"
    raise LabError(msg)


def _is_leftover(name: str) -> bool:
    found = _OURS.match(name)
    return found is not None and not psutil.pid_exists(int(found[1], 16))


def _list_namespaces() -> list[str]:
    return [line.split()[0] for line in _call("ip", "netns", "list").splitlines() if line.split()]


def _list_links() -> list[str]:
    return [link["ifname"] for link in json.loads(_call("ip", "-j", "link"))]


def _remove_namespace(name: str) -> None:
    if name not in _list_namespaces():
        return
    # A namespace lives as long as a process is in it, and keeps its wire.
    left = [int(pid) for pid in _call("ip", "netns", "pids", name).split()]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_SECONDS
    while left and time.monotonic() < deadline and _call("ip", "netns", "pids", name).split():
        time.sleep(0.05)
    _call("ip", "netns", "del", name)


def _remove_link(link: str) -> None:
    # The wire of a namespace that has just gone may go by itself between looking and doing.
    with contextlib.suppress(LabError):
        if (Path("/sys/class/net") / link).exists():
            _call("ip", "link", "del", link)


def _call(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"`{' '.join(command)}` did not work: {error}"
        raise LabError(msg) from error
    if done.returncode != 0:
        said = done.stderr.strip() or f"status {done.returncode}"
        msg = (
            f"`{' '.join(command)}` said: {said}; hosts on one machine need root, and a kernel (or container) that "
            "lets it make network namespaces, bridges and tbf queues"
        )
        raise LabError(msg)
    return done.stdout

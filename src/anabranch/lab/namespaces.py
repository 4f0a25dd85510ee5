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
from dataclasses import dataclass, replace

import psutil

from anabranch.lab.errors import LabError
from anabranch.lab.wires import Traffic, WireLimit, has_link, is_up, read_link

_NET = ipaddress.ip_network("10.213.0.0/16")
_PREFIX_LENGTH = 24
_FIRST_HOST = 2
_MOST_HOSTS = 200
# Namespaces and wires carry the number of the process that made them: what a killed one left can be told by it.
_OURS = re.compile(r"^ab([0-9a-f]+)x\d+(?:h\d+|br)$")
_SERIALS = itertools.count()
_COMMAND_SECONDS = 20.0
_END_SECONDS = 5.0
# Copies of state on an executor's host lie in this folder. `ip netns exec` gives each command mounts of its own, so a
# mount hides the folder of the machine, in which copies of one host would be at hand on all others.
_OWN_COPIES = 'own="/dev/shm/anabranch-$(id -u)"; mkdir -p -m 700 "$own"; mount -t tmpfs -o mode=700 tmpfs "$own"'
_WITH_OWN_COPIES = ("sh", "-c", f'{_OWN_COPIES} && exec "$@"', "sh")


@dataclass(frozen=True, slots=True)
class NetworkHost:
    """A host of its own to the programs that are started behind ``prefix``."""

    name: str
    address: str
    link: str
    """Its wire's other end, on the bridge."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command is put behind to run there; the process has the number that it would have without.

        It has a folder of its own for hot copies of state, which the processes that it starts see, too.
        """
        return ("ip", "netns", "exec", self.name, *_WITH_OWN_COPIES)

    def limit(self, limit: WireLimit) -> None:
        """Let no more than this through the wire, each way; a limit from before is gone."""
        if limit.delay_ms is not None:
            self._try_delay(limit)
        self.lift_limit()
        # A queue limits what leaves through it, so each end of the wire has one.
        for rule in limit.rules:
            for command, device in self._ends:
                _call(*command, "qdisc", "add", "dev", device, *rule)

    def lift_limit(self) -> None:
        """Let the wire be as fast as the machine again; one that has no limit stays as it is."""
        for command, device in self._ends:
            with contextlib.suppress(LabError):
                _call(*command, "qdisc", "del", "dev", device, "root")

    def cut_off(self) -> None:
        """Take the wire out: nothing arrives, and nobody is told."""
        _call("ip", "link", "set", self.link, "down")

    def reconnect(self) -> None:
        """Put the wire back in; connections that have not timed out go on."""
        _call("ip", "link", "set", self.link, "up")

    @property
    def is_cut_off(self) -> bool:
        """Say whether the wire is out."""
        return not is_up(self.link)

    def end_processes(self) -> None:
        """End all that runs there, at once; their connections are closed, so others are told if the wire is in."""
        _end_processes(self.name)

    def read_traffic(self) -> Traffic:
        """Return what the host has sent and received since it was made."""
        return read_link(self.link).seen_from_the_other_end

    @property
    def _ends(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        return ((("tc",), self.link), (("tc", "-n", self.name), "eth0"))

    def _try_delay(self, limit: WireLimit) -> None:
        """Raise if this kernel cannot delay packets; then the wire is as it was."""
        try:
            _call("tc", "qdisc", "replace", "dev", self.link, *limit.rules[0])
        except LabError as error:
            msg = (
                f"a wire cannot be slowed down by {limit.delay_ms:g} ms here: this kernel has no netem "
                f"(CONFIG_NET_SCH_NETEM); a limit in Mbit/s works without. {error}"
            )
            raise LabError(msg) from error


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """Hosts that see each other, and this machine at ``gateway``."""

    stem: str
    """What the names of all its namespaces and wires begin with."""
    gateway: str
    """The address at which hosts find programs that run outside of them."""
    hosts: tuple[NetworkHost, ...]

    @property
    def bridge(self) -> str:
        """The interface that all wires end in; what it receives is meant for this machine itself."""
        return f"{self.stem}br"

    def limit(self, megabits_per_second: float | None) -> None:
        """Limit the wires of all hosts, or lift all limits."""
        for host in self.hosts:
            if megabits_per_second is None:
                host.lift_limit()
            else:
                host.limit(WireLimit(megabits_per_second))

    def name_host(self, number: int) -> NetworkHost:
        """Return the host of this number, from 0 on, be it made or not."""
        if not 0 <= number < _MOST_HOSTS:
            msg = f"host {number} was asked for; a network has {_MOST_HOSTS}, from 0 on"
            raise LabError(msg)
        address = ipaddress.IPv4Address(self.gateway) + _FIRST_HOST + number
        return NetworkHost(f"{self.stem}h{number}", str(address), f"{self.stem}h{number}")


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


def check_hosts(count: int) -> None:
    """Raise if so many hosts cannot be made on this machine."""
    hindrance = find_hindrance()
    if hindrance is not None:
        msg = f"no hosts can be made on this machine: {hindrance}"
        raise LabError(msg)
    if not 1 <= count <= _MOST_HOSTS:
        msg = f"{count} hosts were asked for; a network has 1 to {_MOST_HOSTS}"
        raise LabError(msg)


@contextlib.contextmanager
def host_network(count: int) -> Iterator[HostNetwork]:
    """Make so many hosts on one bridge; when the block ends, end what still runs in them and take all away."""
    check_hosts(count)
    sweep_leftovers()
    stem = f"ab{os.getpid():x}x{next(_SERIALS)}"
    network = plan_network(stem, count)
    try:
        make_network(network)
        yield network
    finally:
        remove_network(stem)


def plan_network(stem: str, count: int) -> HostNetwork:
    """Return a network at addresses that are free, with hosts 0 to ``count`` - 1; nothing is made."""
    gateway = next(_find_free_subnet().hosts())
    network = HostNetwork(stem, str(gateway), ())
    return replace(network, hosts=tuple(network.name_host(number) for number in range(count)))


def make_network(network: HostNetwork) -> None:
    """Make the bridge and all hosts."""
    _call("ip", "link", "add", network.bridge, "type", "bridge")
    _call("ip", "addr", "add", f"{network.gateway}/{_PREFIX_LENGTH}", "dev", network.bridge)
    _call("ip", "link", "set", network.bridge, "up")
    for host in network.hosts:
        make_host(host, network.bridge)


def make_host(host: NetworkHost, bridge: str) -> None:
    """Make a host at a bridge."""
    _call("ip", "netns", "add", host.name)
    _call("ip", "link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
    _call("ip", "link", "set", host.link, "master", bridge, "up")
    _call("ip", "-n", host.name, "addr", "add", f"{host.address}/{_PREFIX_LENGTH}", "dev", "eth0")
    _call("ip", "-n", host.name, "link", "set", "eth0", "up")
    _call("ip", "-n", host.name, "link", "set", "lo", "up")


def remove_host(host: NetworkHost) -> None:
    """End what runs on a host and take away what there is of it, also if it was half made."""
    _remove_namespace(host.name)
    _remove_link(host.link)


def remove_network(stem: str) -> None:
    """End what runs on the hosts of a network, and take away what there is of it, also if it was half made."""
    of_it = re.compile(rf"{re.escape(stem)}(?:h\d+|br)")
    for name in _list_namespaces():
        if of_it.fullmatch(name):
            _remove_namespace(name)
    for link in _list_links():
        if of_it.fullmatch(link):
            _remove_link(link)


def sweep_leftovers() -> None:
    """Take away what processes that are gone have left: a killed one could not clean up."""
    for name in _list_namespaces():
        if _is_leftover(name):
            _remove_namespace(name)
    for link in _list_links():
        if _is_leftover(link):
            _remove_link(link)


# -- inside --------------------------------------------------------------------------------------------------------


def _find_free_subnet() -> ipaddress.IPv4Network:
    taken = [
        ipaddress.ip_interface(f"{address['local']}/{address['prefixlen']}").network
        for link in json.loads(_call("ip", "-j", "-4", "addr"))
        for address in link.get("addr_info", ())
    ]
    for subnet in _NET.subnets(new_prefix=_PREFIX_LENGTH):
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
    _end_processes(name)
    _call("ip", "netns", "del", name)


def _end_processes(namespace: str) -> None:
    deadline = time.monotonic() + _END_SECONDS
    # Again and again: one that is about to end may have started another.
    while (left := _call("ip", "netns", "pids", namespace).split()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.05)


def _remove_link(link: str) -> None:
    # The wire of a namespace that has just gone may go by itself between looking and doing.
    with contextlib.suppress(LabError):
        if has_link(link):
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

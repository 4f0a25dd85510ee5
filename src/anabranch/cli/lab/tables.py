"""A lab as people see it: hosts, wires, and what to say to Spark."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from anabranch.cli.formats import format_bytes, format_count, format_seconds
from anabranch.cli.tables import fits
from anabranch.lab.status import HostStatus, LabStatus
from anabranch.lab.wires import Traffic

_NONE = "–"


class HostTable:
    """Hosts and wires; where that is too wide, wires have a table of their own below."""

    _HOSTS = ("host", "address", "worker", "cores", "used", "waited")
    _WIRES = ("wire", "limit", "sent", "packets", "received", "packets")

    def __init__(self, hosts: tuple[HostStatus, ...]) -> None:
        self._hosts = hosts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = _open_table(*self._HOSTS, *self._WIRES)
        for host in self._hosts:
            table.add_row(*_host_cells(host), *_wire_cells(host))
        if fits(table, console, options):
            yield table
            return
        hosts, wires = _open_table(*self._HOSTS), _open_table("host", *self._WIRES)
        for host in self._hosts:
            hosts.add_row(*_host_cells(host))
            wires.add_row(host.name, *_wire_cells(host))
        yield hosts
        yield Text()
        yield wires


def draw_status(status: LabStatus) -> Iterator[RenderableType]:
    """Return the parts of what ``lab status`` prints."""
    master = "" if status.master_answers else ", which does not answer"
    yield _line(f"master {status.master_url}{master}; its pages: {status.master_pages}")
    running = ", ".join(status.applications) or "none"
    yield _line(f"applications: {running}; logs: {status.folder}")
    yield Text()
    yield HostTable(status.hosts)
    if status.outside is not None:
        # Seen from the machine: what it received, its programs got from hosts.
        yield _line(
            f"to and from this machine: {format_bytes(status.outside.sent_bytes)} sent to hosts, "
            f"{format_bytes(status.outside.received_bytes)} received"
        )
    yield Text()
    yield _line("A driver on this machine finds the lab by these variables:")
    yield from _exports(status.variables)
    yield Text()
    yield _line("or by these settings:")
    for name, value in status.settings.items():
        yield _line(f"  {name}={value}")
    yield Text()
    yield _line("On the driver's host: anabranch lab exec driver COMMAND …")


def _host_cells(host: HostStatus) -> Iterator[str]:
    yield host.name
    yield host.address
    yield _name_worker(host)
    yield _NONE if host.cpu is None else f"{host.cpu:g}"
    use = host.cpu_use
    yield _NONE if use is None or use.seconds is None else format_seconds(use.seconds)
    yield _NONE if use is None else format_seconds(use.throttled_seconds)


def _name_worker(host: HostStatus) -> str:
    if not host.there:
        return "gone"
    if host.worker is None:
        return _NONE
    if host.worker:
        return "runs" if host.known_to_master else "given up"
    return "ended"


def _wire_cells(host: HostStatus) -> Iterator[str]:
    yield "cut" if host.cut_off else ("in" if host.there else "gone")
    yield _NONE if host.limit is None else host.limit.describe()
    yield from _traffic_cells(host.traffic)


def _traffic_cells(traffic: Traffic | None) -> Iterator[str]:
    if traffic is None:
        yield from (_NONE,) * 4
        return
    yield format_bytes(traffic.sent_bytes)
    yield format_count(traffic.sent_packets)
    yield format_bytes(traffic.received_bytes)
    yield format_count(traffic.received_packets)


def _exports(variables: Mapping[str, str]) -> Iterator[Text]:
    for name, value in variables.items():
        yield _line(f"  export {name}={shlex.quote(value)}")


def _line(text: str) -> Text:
    # Lines are copied from here into a shell: none is broken.
    return Text(text, no_wrap=True, overflow="ignore")


def _open_table(*names: str) -> Table:
    table = Table(box=None, header_style="cyan")
    for name in names:
        text = name in ("host", "address", "worker", "wire", "limit")
        table.add_column(name, justify="left" if text else "right", no_wrap=True)
    return table

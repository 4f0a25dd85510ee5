"""What a lab is at a moment: its hosts and wires as the kernel has them, its workers as the master sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.lab.control_groups import CoreUse
from anabranch.lab.plan import DRIVER
from anabranch.lab.record import LabHost, LabRecord
from anabranch.lab.settings import list_settings, list_variables
from anabranch.lab.standalone import ask_master
from anabranch.lab.wires import Traffic, WireLimit, has_link, read_link

_ALIVE = "ALIVE"


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A host and its wire."""

    name: str
    address: str
    namespace: str
    there: bool
    """False if somebody took it away behind the lab's back."""
    worker: bool | None
    """Whether its worker runs; None if it is to have none."""
    known_to_master: bool
    """Whether the master has a worker there that it has not given up."""
    cut_off: bool
    limit: WireLimit | None
    cpu: float | None
    """Its quota of cores."""
    cpu_use: CoreUse | None
    traffic: Traffic | None
    """What crossed its wire since it was made."""


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A lab at a moment."""

    mark: str
    folder: str
    gateway: str
    master_url: str
    master_pages: str
    master_answers: bool
    applications: tuple[str, ...]
    hosts: tuple[HostStatus, ...]
    outside: Traffic | None
    """What crossed between the hosts and the machine itself."""
    settings: Mapping[str, str]
    """What an application must say whose driver runs outside of all hosts."""
    variables: Mapping[str, str]
    """The same, as the environment that makes Spark find it by itself."""


def read_status(record: LabRecord) -> LabStatus:
    """Return what a lab that was made to the end is now."""
    assert record.master is not None
    said = ask_master(record.master.pages)
    alive = list_alive(said)
    bridge = record.network.bridge
    return LabStatus(
        mark=record.mark,
        folder=record.folder,
        gateway=record.gateway,
        master_url=record.master.url,
        master_pages=record.master.pages,
        master_answers=bool(said),
        applications=tuple(str(each["name"]) for each in said.get("activeapps", ())),
        hosts=tuple(_read_host(record, host, alive) for host in record.hosts),
        outside=read_link(bridge) if has_link(bridge) else None,
        settings=list_settings(record),
        variables=list_variables(record),
    )


def list_alive(said: Mapping[str, Any]) -> dict[str, str]:
    """Return the workers that a master has not given up: their ids by their addresses."""
    return {str(each["host"]): str(each["id"]) for each in said.get("workers", ()) if each["state"] == _ALIVE}


def _read_host(record: LabRecord, host: LabHost, alive: Mapping[str, str]) -> HostStatus:
    place, group = record.place_of(host.name), record.group_of(host.name)
    there = has_link(place.link)
    return HostStatus(
        name=host.name,
        address=place.address,
        namespace=place.name,
        there=there,
        worker=None if host.name == DRIVER else host.worker is not None and host.worker.is_alive,
        known_to_master=place.address in alive,
        cut_off=there and place.is_cut_off,
        limit=host.limit,
        cpu=record.plan.quota_of(host.name),
        cpu_use=group.read_use() if group is not None and group.exists else None,
        traffic=place.read_traffic() if there else None,
    )

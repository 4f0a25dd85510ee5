"""A lab: a standalone cluster whose workers are hosts of their own, which outlives the process that made it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from anabranch.lab.control_groups import plan_group
from anabranch.lab.errors import LabError
from anabranch.lab.namespaces import (
    check_hosts,
    find_hindrance,
    make_host,
    make_network,
    plan_network,
    remove_host,
    remove_network,
    sweep_leftovers,
)
from anabranch.lab.plan import DRIVER, LabPlan, name_worker, number_of
from anabranch.lab.record import LabHost, LabRecord, RecordFile, find_record_file, read_boot
from anabranch.lab.settings import OUTSIDE, list_variables, write_settings
from anabranch.lab.standalone import (
    PATIENCE_SECONDS,
    DaemonPlace,
    SparkHost,
    ask_master,
    end_processes,
    name_local_cluster,
    quote_log,
    start_master,
    start_worker,
)
from anabranch.lab.status import LabStatus, list_alive, read_status
from anabranch.lab.wires import WireLimit

_MARK = "ANABRANCH_LAB"
_JVM_OPTIONS = "SPARK_DAEMON_JAVA_OPTS"
# A worker that is cut off is given up by the master after so long; Spark's own minute is long for a person who waits.
_WORKER_TIMEOUT = "-Dspark.worker.timeout=20"


class Lab:
    """The lab of this user, be it there or not."""

    def __init__(self, file: RecordFile | None = None) -> None:
        self._file = file or find_record_file()

    def up(self, plan: LabPlan) -> LabStatus:
        """Make a lab, and return when all its workers have come; if that fails, nothing is left of it."""
        _check_machine(plan.hosts)
        plan.check_cores(plan.hosts, _count_cores())
        with self._file.locked():
            earlier = self._file.read()
            if earlier is not None and earlier.complete and earlier.boot == read_boot():
                msg = (
                    f"there is a lab already, with {len(earlier.workers)} hosts; take it down first: anabranch lab down"
                )
                raise LabError(msg)
            if earlier is not None:
                self._take_away(earlier)
            sweep_leftovers()
            record = self._file.write(_plan_lab(plan))
            try:
                return read_status(self._make(record))
            except BaseException:
                self._take_away(record)
                raise

    def add(self, name: str | None = None) -> str:
        """Add a host with a worker, or start the worker of one that has ended; return its name."""
        with self._changing() as record:
            name = name or name_worker(1 + max((number_of(host.name) for host in record.hosts), default=0))
            if number_of(name) == 0:
                msg = f"the {DRIVER}'s host has no worker, and it is there already"
                raise LabError(msg)
            known = next((host for host in record.hosts if host.name == name), None)
            if known is None:
                record.plan.check_cores(len(record.workers) + 1, _count_cores())
                known = LabHost(name, limit=record.plan.limit)
            grown = self._file.write(record.with_host(known))
            place = grown.place_of(name)
            if known.worker is None:
                # It is new, or a command was killed while it made it.
                remove_host(place)
                make_host(place, grown.network.bridge)
                self._equip(grown, name)
            elif known.worker.is_alive:
                msg = f"{name} is there and its worker runs; for another host, say another name, or none"
                raise LabError(msg)
            elif place.is_cut_off:
                msg = f"{name} is cut off, and its worker would not find the master; first: anabranch lab heal {name}"
                raise LabError(msg)
            self._start_workers(grown, [name])
            return name

    def cut(self, name: str) -> None:
        """Take a host's wire out."""
        with self._changing() as record:
            record.place_of(record.find(name).name).cut_off()

    def heal(self, name: str) -> None:
        """Put a host's wire back in."""
        with self._changing() as record:
            record.place_of(record.find(name).name).reconnect()

    def limit(self, name: str, limit: WireLimit | None) -> None:
        """Let no more than this through a host's wire, each way; None: whatever the machine can."""
        with self._changing() as record:
            host = record.find(name)
            place = record.place_of(host.name)
            if limit is None:
                place.lift_limit()
            else:
                place.limit(limit)
            self._file.write(record.with_host(replace(host, limit=limit)))

    def kill(self, name: str) -> None:
        """End all that runs on a host, at once; its wire stays, so others are told."""
        with self._changing() as record:
            record.place_of(record.find(name).name).end_processes()

    def down(self) -> bool:
        """Take the lab away, whatever there is of it; say whether there was one."""
        if self._file.read() is None:
            return False
        _check_machine()
        with self._file.locked():
            record = self._file.read()
            if record is not None:
                self._take_away(record)
            return record is not None

    def status(self) -> LabStatus:
        """Return what the lab is at this moment."""
        return read_status(_check_record(self._file.read()))

    def place(self, name: str, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Return the command and the variables with which a program runs on a host, under its quota."""
        _check_machine()
        record = _check_record(self._file.read())
        host = record.find(name)
        return [*_prefix_of(record, host.name), *command], list_variables(record, host.name)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[LabRecord]:
        _check_machine()
        with self._file.locked():
            yield _check_record(self._file.read())

    def _make(self, record: LabRecord) -> LabRecord:
        Path(record.folder).mkdir(mode=0o755)
        make_network(record.network)
        if record.group is not None:
            record.group.make(for_groups=True)
        for host in record.hosts:
            self._equip(record, host.name)
        master = start_master(_describe_place(record), SparkHost(record.gateway))
        record = self._file.write(replace(record, master=master))
        for place in (OUTSIDE, DRIVER):
            write_settings(record, place)
        record = self._start_workers(record, [host.name for host in record.workers])
        _limit_cores(record, [DRIVER])
        return self._file.write(replace(record, complete=True))

    def _equip(self, record: LabRecord, name: str) -> None:
        """Give a new host its control group, the limit of its wire, and a folder for shuffle files."""
        _folder_of(record, name).mkdir(exist_ok=True)
        group = record.group_of(name)
        if group is not None:
            group.make()
        limit = record.find(name).limit
        if limit is not None:
            record.place_of(name).limit(limit)

    def _start_workers(self, record: LabRecord, names: Collection[str]) -> LabRecord:
        """Start workers, wait until they have come, and only then hold them to their quotas."""
        if record.master is None or not record.master.daemon.is_alive:
            msg = "the lab's master has ended; take the lab down, and make it anew"
            raise LabError(msg)
        _limit_cores(record, names, lift=True)
        earlier = list_alive(ask_master(record.master.pages)).values()
        for name in names:
            where = SparkHost(record.place_of(name).address, _prefix_of(record, name))
            place = _describe_place(record, SPARK_LOCAL_DIRS=str(_folder_of(record, name)))
            worker = start_worker(place, name, where, record.master.url, record.plan.worker_size)
            record = self._file.write(record.with_host(replace(record.find(name), worker=worker)))
            write_settings(record, name)
        _wait_for_workers(record, names, set(earlier))
        _limit_cores(record, names)
        return record

    def _take_away(self, record: LabRecord) -> None:
        # By the mark, and not by what the record says: a command may have been killed before it wrote it down.
        end_processes(_find_marked(record.mark))
        remove_network(record.network.stem)
        if record.group is not None:
            record.group.remove()
        shutil.rmtree(record.folder, ignore_errors=True)
        self._file.remove()


# -- inside --------------------------------------------------------------------------------------------------------


def _check_machine(hosts: int = 1) -> None:
    if find_hindrance() is not None:
        without = name_local_cluster(max(hosts, 1))
        msg = (
            f"a lab needs hosts: {find_hindrance()}; for executors without hosts of their own, use --master '{without}'"
        )
        raise LabError(msg)
    check_hosts(hosts)


def _check_record(record: LabRecord | None) -> LabRecord:
    if record is None:
        msg = "there is no lab; make one: anabranch lab up"
    elif record.boot != read_boot():
        msg = "the lab is gone, as the machine was started anew since; take away its record: anabranch lab down"
    elif not record.complete:
        msg = "the lab is being made, or a command that was killed left it half made: anabranch lab down takes it away"
    else:
        return record
    raise LabError(msg)


def _count_cores() -> int:
    return len(os.sched_getaffinity(0))


def _plan_lab(plan: LabPlan) -> LabRecord:
    mark = secrets.token_hex(3)
    names = [DRIVER, *(name_worker(number) for number in range(1, plan.hosts + 1))]
    return LabRecord(
        mark=mark,
        folder=str(Path(tempfile.gettempdir()) / f"anabranch-lab-{mark}"),
        gateway=plan_network(mark, 0).gateway,
        plan=plan,
        boot=read_boot(),
        hosts=tuple(LabHost(name, limit=plan.limit) for name in names),
        group=None if plan.cpu is None else plan_group(f"anabranch-lab-{mark}"),
    )


def _describe_place(record: LabRecord, **variables: str) -> DaemonPlace:
    options = f"{os.environ.get(_JVM_OPTIONS, '')} {_WORKER_TIMEOUT}".strip()
    return DaemonPlace(Path(record.folder), {_MARK: record.mark, _JVM_OPTIONS: options, **variables}, stays=True)


def _prefix_of(record: LabRecord, name: str) -> tuple[str, ...]:
    # The group first: in a namespace of `ip netns exec`, the folders of control groups are not mounted.
    group = record.group_of(name)
    return (*(group.prefix if group is not None else ()), *record.place_of(name).prefix)


def _folder_of(record: LabRecord, name: str) -> Path:
    return Path(record.folder) / f"local-{name}"


def _limit_cores(record: LabRecord, names: Collection[str], *, lift: bool = False) -> None:
    for name in names:
        group = record.group_of(name)
        if group is not None:
            group.limit(None if lift else record.plan.quota_of(name))


def _wait_for_workers(record: LabRecord, names: Collection[str], earlier: Collection[str]) -> None:
    """Wait until the master knows new workers at the addresses of these hosts."""
    assert record.master is not None
    deadline = time.monotonic() + PATIENCE_SECONDS
    awaited = {record.place_of(name).address: name for name in names}
    while awaited:
        for address, worker in list_alive(ask_master(record.master.pages)).items():
            if worker not in earlier:
                awaited.pop(address, None)
        for name in awaited.values():
            worker_process = record.find(name).worker
            if time.monotonic() > deadline or worker_process is None or not worker_process.is_alive:
                log = quote_log(_describe_place(record), f"worker-{name}")
                msg = f"the worker of {name} did not come to its master; {log}"
                raise LabError(msg)
        time.sleep(0.2 if awaited else 0.0)


def _find_marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(_MARK) == mark:
                found.append(process)
    return found

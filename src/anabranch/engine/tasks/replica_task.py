"""What hosts do to copy state from one to another: send stretches of runs, and take them into memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from anabranch.engine.tasks.process_figures import read_link_bytes_per_second
from anabranch.engine.tasks.spec import LoadsProgram
from anabranch.errors import AnabranchError
from anabranch.model import RunRef
from anabranch.model.cluster import Executor
from anabranch.placement.replicas import CopyRound, Holdings
from anabranch.state.copies.replicas import measure_room
from anabranch.state.runs import WriteName

PIECE_BYTES = 1 << 20
"""What is sent in one piece: Spark holds several of them at a time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a run on their way to a host."""

    target: str
    file: str
    start: int
    content: bytes


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """A round, and which executors are asked to do a host's part of it."""

    round: CopyRound
    epoch: int
    where: Mapping[str, Executor]
    """Host → one of its executors."""
    hosts: Mapping[str, str]
    """Executor → the host whose memory it sees, of all that there are."""


@dataclass(frozen=True, slots=True)
class HostReport:
    """What a host did of a round, and what it holds afterwards."""

    host: str
    holdings: Holdings
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Carried:
    """What came of a round."""

    reports: tuple[HostReport, ...] = ()
    """Of the hosts that were reached."""
    problem: str = ""
    """Why nothing was done, or not all."""
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class ReplicaTask:
    """A host's part of a round. Where it was told to go, it is whatever executor it finds itself on that counts."""

    program: LoadsProgram
    order: CopyOrder

    def send(self, executor: str) -> Iterator[Piece]:
        """Yield what this host has of the stretches that it is to send; what it cannot read, it leaves out."""
        host = self.order.hosts.get(executor)
        own = [stretch for stretch in self.order.round.stretches if stretch.source == host]
        if not own:
            return
        files = self.program.load().open_runs("state", WriteName(self.order.epoch, 0, 0, "replicas"))
        for stretch in own:
            try:
                content = memoryview(files.fetch(stretch.run)).cast("B")
            except (AnabranchError, OSError):
                # Whoever waits for it says that it did not come, and asks again in the next round.
                continue
            for start in range(stretch.start, stretch.end, PIECE_BYTES):
                end = min(stretch.end, start + PIECE_BYTES)
                yield Piece(stretch.target, stretch.run.file, start, bytes(content[start:end]))

    def receive(self, executor: str, pieces: Iterable[Piece]) -> HostReport | None:
        """Forget what is to be forgotten, take in what came, and say what this host holds; None if it holds nothing."""
        program = self.program.load()
        host = self.order.hosts.get(executor)
        assert program.replicas is not None
        if host is None:
            return None
        copies = program.replica_copies(self.order.epoch)
        if copies is None:
            return HostReport(host, Holdings(room_bytes=0.0), (f"{host} has no memory for replicas in /dev/shm",))
        copies.drop(self.order.round.drops.get(host, ()))
        runs: dict[str, RunRef] = {one.run.file: one.run for one in self.order.round.stretches if one.target == host}
        cap_bytes = program.replicas.memory_bytes
        problems: dict[str, None] = {}
        for piece in sorted(pieces, key=lambda one: (one.file, one.start)):
            if piece.target == host:
                why = copies.add(runs[piece.file], piece.start, piece.content, cap_bytes)
                problems.update({f"{host}: {why}": None} if why else {})
        held, begun = copies.list_held(), copies.list_begun()
        room_bytes = measure_room(copies.folder, cap_bytes, sum(held.values()) + sum(begun.values()))
        holdings = Holdings(held, begun, room_bytes, read_link_bytes_per_second())
        return HostReport(host, holdings, tuple(problems))


def carry_here(order: CopyOrder, tasks: Mapping[str, ReplicaTask]) -> Carried:
    """Carry a round out in this process; ``tasks`` are those of hosts, each with the host's own memory."""
    began = time.perf_counter()
    doing = {host: executor.id for host, executor in order.where.items()}
    pieces = [piece for host, executor in doing.items() for piece in tasks[host].send(executor)]
    reports = (
        tasks[host].receive(executor, [piece for piece in pieces if piece.target == host])
        for host, executor in doing.items()
    )
    return Carried(tuple(report for report in reports if report is not None), seconds=time.perf_counter() - began)

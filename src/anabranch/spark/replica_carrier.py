"""Replicas on their way from host to host: a Spark job of two stages, each with a task on every host concerned."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.engine.tasks.replica_task import Carried, CopyOrder, HostReport, Piece, ReplicaTask
from anabranch.engine.tasks.task_errors import find_reason
from anabranch.placement.replicas import Holdings
from anabranch.spark.anchors import anchor_frame, name_location
from anabranch.spark.programs import PickledProgram
from anabranch.spark.session import task_environment
from anabranch.spark.worker_process import find_owner

_PIECES = "slot int, target string, file string, start bigint, content binary"
_ARROW_PIECES = pa.schema(
    [
        ("slot", pa.int32()),
        ("target", pa.string()),
        ("file", pa.string()),
        ("start", pa.int64()),
        ("content", pa.binary()),
    ]
)
_REPORT = "report string"
FIRST_ROUND_SECONDS = 120.0
"""So long the first round may take: processes start."""
LEAST_LIMIT_SECONDS = 5.0
_LIMIT_FACTOR = 4.0
_FADING = 0.9
"""How fast a long round is forgotten."""


class ReplicaCarrier:
    """Carries rounds out, one at a time, in a thread beside the batches."""

    def __init__(self, spark: SparkSession, program: PickledProgram, flow: str) -> None:
        self._spark = spark
        self._program = program
        self._flow = flow
        self._group = f"anabranch-replicas-{id(self)}"
        self._anchors: tuple[list[str], DataFrame] | None = None
        """Those of the last round: it takes Spark longer to look at a frame that is made anew."""
        self._usual_seconds: float | None = None
        """What a round took at most, lately."""
        self._was_ended = False

    def carry(self, order: CopyOrder) -> Carried:
        """Carry a round out, and return what the hosts say that were reached."""
        began = time.perf_counter()
        limit_seconds = FIRST_ROUND_SECONDS if self._usual_seconds is None else _find_limit(self._usual_seconds)
        # A task that fetches from a host that is cut off waits for the network, and keeps a core all the while.
        watch = threading.Timer(limit_seconds, self.cancel)
        watch.daemon = True
        watch.start()
        self._was_ended = False
        try:
            reports = self._run(order)
        except (PySparkException, Py4JJavaError) as error:
            # A job that was cancelled comes as the JVM's own exception, with a page of its stack.
            problem = "a round was ended before it was over" if self._was_ended else find_reason(str(error))
            return Carried(problem=problem, seconds=time.perf_counter() - began)
        finally:
            watch.cancel()
        seconds = time.perf_counter() - began
        self._usual_seconds = seconds if self._usual_seconds is None else max(seconds, self._usual_seconds * _FADING)
        missed = sorted(order.where.keys() - {report.host for report in reports})
        problem = f"Spark ran what was for {', '.join(missed)} elsewhere" if missed else ""
        return Carried(reports, problem, seconds)

    def cancel(self) -> None:
        """End the job that runs, if there is one."""
        self._was_ended = True
        self._spark.sparkContext.cancelJobGroup(self._group)

    def _run(self, order: CopyOrder) -> tuple[HostReport, ...]:
        said = f"{self._flow}: {order.round.copied_bytes:,} bytes of replicas to {len(order.where)} hosts"
        self._spark.sparkContext.setJobGroup(self._group, said, interruptOnCancel=True)
        hosts = sorted(order.where)
        places = [name_location(order.where[host].id, order.where[host].host) for host in hosts]
        task = ReplicaTask(self._program, order)
        numbers = {host: number for number, host in enumerate(hosts)}
        with task_environment(self._spark):
            if self._anchors is None or self._anchors[0] != places:
                self._anchors = places, anchor_frame(self._spark, places)
            anchors = self._anchors[1]
            sent = anchors.mapInArrow(_sending(task, numbers), _PIECES).repartitionById(len(hosts), "slot")
            taken = anchors.groupBy("slot").cogroup(sent.groupBy("slot")).applyInArrow(_receiving(task), _REPORT)
        return tuple(_read_report(row.report) for row in taken.collect())


def _find_limit(usual_seconds: float) -> float:
    """Return how long a round may take before it is ended, by what rounds took lately."""
    return max(LEAST_LIMIT_SECONDS, _LIMIT_FACTOR * usual_seconds)


def _sending(
    task: ReplicaTask, numbers: dict[str, int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        for piece in task.send(find_owner(os.getpid()).executor):
            told = [numbers[piece.target], piece.target, piece.file, piece.start, piece.content]
            columns = [pa.array([value], kind.type) for value, kind in zip(told, _ARROW_PIECES, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=_ARROW_PIECES)

    return run


def _receiving(task: ReplicaTask) -> Callable[[pa.Table, pa.Table], pa.Table]:
    # Spark looks at the number of arguments: it wants a plain function.
    def run(_anchor: pa.Table, pieces: pa.Table) -> pa.Table:
        columns = [pieces.column(name).to_pylist() for name in ("target", "file", "start", "content")]
        report = task.receive(find_owner(os.getpid()).executor, map(Piece, *columns))
        return pa.table({"report": pa.array([] if report is None else [_write_report(report)], pa.string())})

    return run


def _write_report(report: HostReport) -> str:
    return json.dumps(asdict(report))


def _read_report(text: str) -> HostReport:
    # Python's JSON knows infinity, which is what hosts say that know no limit.
    data: dict[str, Any] = json.loads(text)
    known = data["holdings"]
    room_bytes = float(known["room_bytes"])
    link = float(known["link_bytes_per_second"])
    holdings = Holdings(known["held"], known["begun"], room_bytes, link if link > 0 else math.inf)
    return HostReport(data["host"], holdings, tuple(data["problems"]))

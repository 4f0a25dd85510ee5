"""How each system runs the keyed window: its command, its environment and the folder it reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from anabranch.lab.ports import find_free_port
from benchmarks.keyed_window import peers
from benchmarks.shared.answers import ANSWER_READERS, Expected, check_answer, check_totals
from benchmarks.shared.figures import (
    OURS,
    READERS_ONLY,
    WARM_UP_SHARE,
    SystemRun,
    compute_steady_rate,
    find_longest_steady_batch,
)
from benchmarks.shared.launch import (
    CORES,
    FLINK_CHECKPOINT_SECONDS,
    JVM_MEMORY,
    Places,
    describe_environment,
    our_script,
)
from benchmarks.shared.mixed_json import MIXED_JSON
from benchmarks.shared.peers.flink import ensure_flink
from benchmarks.shared.process import ProcessOutcome, run_measured
from benchmarks.shared.registry import choose_peers
from benchmarks.shared.workload import FORMATS, Workload, read_through, write_lanes

_TIMEOUT_SECONDS = 3_600.0
_SCRIPTS = Path(peers.__file__).parent

SYSTEMS_BY_PEER = {
    "spark": ("spark-memory", "spark-rocksdb"),
    "flink": ("flink",),
    "polars": ("two-polars",),
    "duckdb": ("two-duckdb",),
}
FORMATS_BY_SYSTEM = {
    OURS: FORMATS,
    "spark-memory": FORMATS,
    "spark-rocksdb": FORMATS,
    # Flink's Python package has no Parquet format.
    "flink": ("json", "csv", MIXED_JSON),
    "two-polars": FORMATS,
    "two-duckdb": (MIXED_JSON,),
}
# More in a batch merges better; what is here stays below 3 s on two cores.
_OUR_FILES_PER_BATCH = {MIXED_JSON: 12}
_OUR_FILES_PER_PLAIN_BATCH = 36
_NATIVE_FILES_PER_BATCH = 24
_FEWEST_BATCHES = 4


def count_files_per_batch(workload: Workload, system: str, file_format: str = "json") -> int:
    """Return how many files a micro-batch takes, fewer where the input is short.

    Native Spark gets its best of 6, 12 and 24 files (12 M rows), however long such a batch takes it. We take what stays
    below 3 s on two cores, the checkpoint interval that Flink gets.
    """
    ours = _OUR_FILES_PER_BATCH.get(file_format, _OUR_FILES_PER_PLAIN_BATCH)
    most = ours if system == OURS else _NATIVE_FILES_PER_BATCH
    return max(1, min(most, workload.file_count // _FEWEST_BATCHES))


def list_systems(asked: tuple[str, ...] | None) -> list[str]:
    """Return the systems to run, ours first, then those of the peers asked for: by default, of all."""
    return [OURS, *(system for peer in choose_peers("keyed-window", asked) for system in SYSTEMS_BY_PEER[peer])]


def launch(
    system: str,
    file_format: str,
    folder: Path,
    *,
    files_per_batch: int,
    places: Places,
    cache_dir: Path,
) -> tuple[dict[str, Any], ProcessOutcome]:
    """Run one system over a folder in its own process; return what it reported and what its processes took."""
    shutil.rmtree(places.scratch, ignore_errors=True)
    places.scratch.mkdir(parents=True)
    common = ["--input", str(folder), "--format", file_format, "--output", str(places.output)]
    common += ["--result", str(places.result)]
    checkpoint = ["--checkpoint", str(places.checkpoint)]
    batches = ["--files-per-batch", str(files_per_batch)]
    environment = describe_environment()
    if system == OURS:
        command = [*our_script("keyed_window.peers.ours"), *common, *checkpoint, *batches]
        command += ["--slots", str(CORES), "--memory", JVM_MEMORY]
    elif system.startswith("spark-"):
        command = [*our_script("keyed_window.peers.native"), *common, *checkpoint, *batches]
        command += ["--state-store", system.removeprefix("spark-"), "--memory", JVM_MEMORY]
    elif system == "flink":
        python = ensure_flink(cache_dir)
        # Flink's file source hands out files in no order, and rows of an overtaken file would be late and dropped.
        # So each of its two readers gets one file with the same lines.
        folder = write_lanes(folder, CORES)
        common[1] = str(folder)
        command = [str(python), str(_SCRIPTS / "flink_job.py"), *common, *checkpoint]
        command += ["--rest-port", str(find_free_port())]
        environment["JVM_ARGS"] = f"-Xmx{JVM_MEMORY} -XX:+UseParallelGC"
    else:
        command = [*our_script(f"keyed_window.peers.{system.replace('-', '_')}"), *common]
    read_through(folder)
    name = f"{system} on {file_format}"
    outcome = run_measured(name, command, environment, places.log, _TIMEOUT_SECONDS)
    return json.loads(places.result.read_text()), outcome


def judge(
    system: str,
    file_format: str,
    workload: Workload,
    expected: Expected,
    reported: dict[str, Any],
    took: ProcessOutcome,
    places: Places,
    warm_up_rows: float | None = None,
) -> SystemRun:
    """Check a system's answers and work out its steady rate, behind the first half of the rows unless said."""
    warm_up_rows = workload.rows * WARM_UP_SHARE if warm_up_rows is None else warm_up_rows
    samples = [(float(seconds), int(rows)) for seconds, rows in reported["samples"]]
    if system == "flink":
        # Its source is sampled, not its commits: once all rows are read, time passes that is not throughput.
        samples = [sample for sample in samples if sample[1] < workload.rows]
        batch_seconds: float | None = FLINK_CHECKPOINT_SECONDS
    else:
        batch_seconds = find_longest_steady_batch(reported.get("batches", ()), warm_up_rows)
    check = check_totals if system in READERS_ONLY else check_answer
    return SystemRun(
        system=system,
        file_format=file_format,
        rows=workload.rows,
        rows_per_second=compute_steady_rate(samples, warm_up_rows),
        batch_seconds=batch_seconds,
        run_seconds=took.run_seconds,
        answer=check(ANSWER_READERS[system](places.output), expected),
        peak_memory_bytes=took.peak_bytes,
        peak_memory_bytes_by_role=took.peak_bytes_by_role,
        other_cpu_share=took.other_cpu_share,
        details={
            name: reported[name] for name in ("settings", "versions", "batches", "checkpoints") if name in reported
        },
    )

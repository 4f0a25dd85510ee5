"""How the parts of the skew bench run flows one after the other in one warm session."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anabranch.lab.ports import find_free_port
from benchmarks.shared.answers import ANSWER_READERS, AnswerCheck, ask_oracle, check_answer
from benchmarks.shared.launch import CORES, JVM_MEMORY, Places, our_script, run_peer
from benchmarks.shared.peers.flink import ensure_flink
from benchmarks.shared.process import ProcessOutcome
from benchmarks.shared.registry import BenchError
from benchmarks.shared.report import BUSY_NEIGHBOUR_SHARE
from benchmarks.shared.workload import write_lanes
from benchmarks.skew import peers
from benchmarks.skew.competitors import Competitor
from benchmarks.skew.streams import SkewStream, write_stream

WHY_NO_FLINK_LOADS = "Flink's job was over before its subtasks could be asked for their loads: give more --rows"
WHY_NO_CORE_SHARES = (
    "control groups cannot be made here (root can, where the kernel has cpu quotas), so slots of the costly operator "
    "shared all cores: two of them hide a slot with nearly half of the rows"
)


def describe_run(
    competitor: Competitor, folder: Path, *, lehmer_steps: int = 0, files_per_batch: int = 1, top_k: int = 0
) -> dict[str, Any]:
    """Return a flow as a script is told of it; with ``top_k``, the most frequent keys of a window are what it emits."""
    return {
        "name": competitor.name,
        "folder": str(folder),
        "competitor": competitor.to_json(),
        "files_per_batch": files_per_batch,
        "lehmer_steps": lehmer_steps,
        "local_merge": False,
        "top_k": top_k,
    }


def run_flows(
    name: str,
    given: Sequence[Mapping[str, Any]],
    slots: int,
    threads: int,
    places: Places,
    core_share: float | None = None,
) -> tuple[dict[str, Any], ProcessOutcome]:
    """Run flows one after the other; with a share, every slot's worker gets such a part of a core."""
    path = places.scratch / "runs.json"
    path.write_text(json.dumps(given))
    options: dict[str, Any] = {"runs": path, "slots": slots, "threads": threads, "memory": JVM_MEMORY}
    if core_share is not None:
        options["core-share"] = core_share
    return run_peer(name, our_script("skew.peers.ours_runs"), options, places)


def run_flink_loads(
    stream: SkewStream, slots: int, inputs: Path, cache_dir: Path, places: Places
) -> tuple[list[int], AnswerCheck, ProcessOutcome]:
    """Run a stream through so many subtasks of Flink; return the rows of each, which are 0 if the job was too short."""
    folder = write_stream(stream, "csv", inputs)
    # Flink's file source hands out files in no order, and rows of an overtaken file would be late and dropped.
    lanes = write_lanes(folder, CORES)
    script = [str(ensure_flink(cache_dir)), str(Path(peers.__file__).parent / "flink_loads.py")]
    options = {"input": lanes, "format": "csv", "slots": slots, "rest-port": find_free_port()}
    reported, took = run_peer("Flink", script, options, places)
    answer = check_answer(ANSWER_READERS["flink"](places.output), ask_oracle(folder, "csv"))
    if not sum(reported["rows"]) and not answer.equal:
        msg = f"Flink gave a wrong answer on {stream.name}: {answer.difference}"
        raise BenchError(msg)
    return reported["rows"], answer, took


def describe_neighbours(name: str, took: ProcessOutcome) -> list[str]:
    """Return a note that the machine was busy with other programs during a run, if it was."""
    if took.other_cpu_share <= BUSY_NEIGHBOUR_SHARE:
        return []
    return [f"busy machine: other programs took {took.other_cpu_share:.0%} of it during {name}"]

"""Run the long interval join on Anabranch itself, in a process of its own, and watch what it keeps."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import anabranch as ab
from anabranch.model import BatchProgress
from benchmarks.joins.memory.measuring import SampleTaker
from benchmarks.joins.memory.streams import plan_memory
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.process import measure_memory


def main() -> None:
    """Run the flow to the end of its streams and write what it kept after each batch as JSON."""
    given = read_options(rows=int, z=float, seed=int, slots=int, cores=int, memory=str)
    streams = plan_memory(given.rows, given.z, given.seed)
    taker = SampleTaker(streams)

    def note(batch: BatchProgress) -> None:
        taker.note(batch, measure_memory(os.getpid()))

    spark = ab.local_session(master=f"local[{given.cores}]", memory=given.memory)
    flow = streams.build(ab.parquet(given.output))
    flow.run(given.checkpoint, spark=spark, on_progress=note, trigger="available-now", slots=given.slots)
    spark.stop()
    Path(given.result).write_text(json.dumps({"samples": [asdict(sample) for sample in taker.samples]}))


if __name__ == "__main__":
    main()

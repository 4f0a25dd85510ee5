"""What a driver keeps of a run, over a million batches."""

from __future__ import annotations

from pathlib import Path

from anabranch.metrics.cluster_load import LoadBook
from anabranch.state import open_store
from soak.amounts import TOLD_BATCHES
from unit.cli.builders import batch
from unit.metrics.measured import EXECUTORS
from unit.metrics.test_cluster_load import make_tasks
from unit.spark.test_run_progress import Run, measure


def test_a_million_batches_take_the_memory_and_the_disk_of_a_few_thousand(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    run, seen, sizes = Run(store), [], []
    book = LoadBook()
    for number in range(TOLD_BATCHES):
        measures = book.add(make_tasks(number), EXECUTORS, 0.5)
        run.add(batch(number, phase_seconds={"job": number / 7}, measures=measures))
        if number % (TOLD_BATCHES // 10) == TOLD_BATCHES // 20:
            seen.append(measure(run))
            sizes.append(sum(entry.bytes for entry in store.list("history")))
    assert max(size for _, size in seen[1:]) < 1.1 * seen[0][1]
    assert max(sizes) < 5e6
    assert run.progress.totals.batches == TOLD_BATCHES

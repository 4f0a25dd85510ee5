"""What a driver keeps of a run, over a million batches."""

from __future__ import annotations

from pathlib import Path

from anabranch.state import open_store
from soak.amounts import TOLD_BATCHES
from unit.engine.test_run_progress import measure
from unit.metrics.told_clusters import KeptOfCluster


def test_a_million_batches_take_the_memory_and_the_disk_of_a_few_thousand(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    kept, seen, sizes = KeptOfCluster(store), [], []
    for number in range(TOLD_BATCHES):
        kept.add(number)
        if number % (TOLD_BATCHES // 10) == TOLD_BATCHES // 20:
            seen.append(measure(*kept.parts))
            sizes.append(sum(entry.bytes for entry in store.list("history")))
    assert max(size for _, size in seen[1:]) < 1.1 * seen[0][1]
    assert max(sizes) < 5e6
    assert kept.run.progress.totals.batches == TOLD_BATCHES

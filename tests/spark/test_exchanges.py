"""Rows that are held back are sent though no data comes."""

from __future__ import annotations

import anabranch as ab
from flows.running import frames_of, reading, wait_until
from flows.test_exchanges import keyed
from spark.fixtures import SparkBench


def test_a_delay_wakes_a_flow_that_no_data_comes_to(bench: SparkBench) -> None:
    flow, sink = ab.Flow("waits"), ab.to_memory()
    rows = [[reading(1, 1), reading(1, 2)]]
    keyed(flow.read(ab.memory(*frames_of(rows))), merge=ab.LocalMerge(delay="1s")).agg(rows=ab.count()).write(sink)
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, slots=2)
    try:
        wait_until(lambda: sink.frame().height > 0, "rows that were held back")
        assert sink.frame()["rows"].to_list() == [2]
        # A sink has the rows before the batch is over.
        wait_until(lambda: len(handle.progress) >= 2, "the second batch")
    finally:
        handle.stop()

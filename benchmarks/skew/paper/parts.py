"""Parts of the skew bench after tables and figures of the papers: rising ids, strategies' speed, the top of topics."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console

from benchmarks.planners.inputs import WEIBO_FILE
from benchmarks.shared.answers import ANSWER_READERS, ask_oracle, check_answer
from benchmarks.shared.figures import OURS
from benchmarks.shared.launch import CORES, JVM_MEMORY, our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.registry import BenchOptions
from benchmarks.skew.answers import ask_busy_oracle, check_top_answer
from benchmarks.skew.competitors import BALANCED, HASH, Competitor, list_papers_strategies
from benchmarks.skew.figures import evaluate_busy
from benchmarks.skew.launch import (
    WHY_NO_CORE_SHARES,
    describe_neighbours,
    describe_run,
    run_flink_loads,
    run_flows,
)
from benchmarks.skew.loads import SETTLING_BATCHES
from benchmarks.skew.paper.figures import CASES, TOPICS, SpreadRun, StreamRate
from benchmarks.skew.streams import (
    SkewStream,
    make_four_cases,
    make_rising_stream,
    make_topic_stream,
    read_topic_stream,
    write_stream,
)

SPREAD_SLOTS, SPREAD_ROWS, SPREAD_BATCHES = 60, 1_000_000, 5
"""As the load distribution paper counted what Flink's 60 subtasks got of a million rising ids."""
SPREAD_COMPETITORS = (
    HASH,
    *(Competitor(name, name, "mnrt") for name in ("consistent-hash", "modulo", "least-key")),
    BALANCED,
)
CASE_BATCHES, CASE_PAST_BATCHES = 8, 3
"""Strategies with a memory look at some batches before they decide; what they decide holds two batches later."""
CASE_SETTLING_BATCHES = CASE_PAST_BATCHES + 2
TOPIC_BATCHES = SETTLING_BATCHES + 3
TOP_TOPICS = 10
TOPIC_COMPETITORS = (
    HASH,
    Competitor("readj", planner="readj"),
    Competitor("pkg", "pkg", "mnrt"),
    Competitor("qmmp", planner="qmmp"),
    Competitor("mnrt", planner="mnrt"),
)
"""Whom the splitting paper compares, and hash, within the same tolerance of 0.05."""
LEHMER_STEPS = 4_000
"""About 10 µs a row: reading and exchanging it must not count beside that."""


class PaperParts:
    """What was asked of the bench, for these parts of it."""

    def __init__(self, options: BenchOptions, rows_per_batch: int, slots: int, console: Console) -> None:
        self._options = options
        self._rows_per_batch = rows_per_batch
        self._slots = slots
        self._console = console
        self._inputs = options.cache_dir / "skew"
        self._logs = (options.out_dir or options.cache_dir) / "logs"
        self.notes: list[str] = []

    def spread_rising_ids(self) -> list[SpreadRun]:
        """Return what each of sixty slots got of rising ids, under our strategies, side by side in one flow."""
        stream = make_rising_stream(SPREAD_ROWS // SPREAD_BATCHES, SPREAD_BATCHES, self._options.seed)
        folder = write_stream(stream, "parquet", self._inputs)
        case = {
            "name": stream.name,
            "folder": str(folder),
            "competitors": [competitor.to_json() for competitor in SPREAD_COMPETITORS],
        }
        with (
            scratch_places(self._options.cache_dir, self._logs, "skew-rising") as places,
            show_activity(self._console, "rising ids on sixty slots"),
        ):
            path = places.scratch / "cases.json"
            path.write_text(json.dumps([case]))
            options = {"cases": path, "slots": SPREAD_SLOTS, "memory": JVM_MEMORY}
            reported, took = run_peer("rising ids", our_script("skew.peers.ours_loads"), options, places)
            self.notes += describe_neighbours("rising ids", took)
            expected = ask_oracle(folder, "parquet")
            batches = [batch["operators"] for batch in reported["cases"][stream.name]["batches"] if batch["rows"]]
            return [
                SpreadRun(
                    competitor.name,
                    # What is decided of the first batch holds from the third on.
                    tuple(map(sum, zip(*(batch[competitor.name]["rows"] for batch in batches[2:]), strict=True))),
                    check_answer(ANSWER_READERS[OURS](places.output / "0" / competitor.name), expected),
                )
                for competitor in SPREAD_COMPETITORS
            ]

    def spread_by_flink(self) -> list[SpreadRun]:
        """Return what each of Flink's sixty subtasks got; nothing where the job was over before it could be asked."""
        stream = make_rising_stream(SPREAD_ROWS // SPREAD_BATCHES, SPREAD_BATCHES, self._options.seed)
        with (
            scratch_places(self._options.cache_dir, self._logs, "skew-rising-flink") as places,
            show_activity(self._console, "rising ids on sixty subtasks of Flink"),
        ):
            rows, answer, took = run_flink_loads(stream, SPREAD_SLOTS, self._inputs, self._options.cache_dir, places)
        self.notes += describe_neighbours("Flink, rising ids", took)
        return [SpreadRun("flink", tuple(rows), answer)] if sum(rows) else []

    def rate_cases(self) -> list[StreamRate]:
        """Return how fast a costly operator is under each strategy, in each of the four cases of keys and data."""
        strategies = list_papers_strategies(CASE_PAST_BATCHES * self._rows_per_batch)
        streams = make_four_cases(self._rows_per_batch, CASE_BATCHES, self._options.seed)
        return self._run_busy(CASES, streams, strategies, CASE_SETTLING_BATCHES)

    def rate_topics(self) -> list[StreamRate]:
        """Return how fast the ten most frequent topics of a window are found, on made-up topics and on real ones."""
        rows, seed = self._rows_per_batch, self._options.seed
        streams = [make_topic_stream(rows, TOPIC_BATCHES, seed)]
        if self._options.data_dir is not None:
            real = read_topic_stream(self._options.data_dir / WEIBO_FILE, rows, TOPIC_BATCHES, seed)
            streams += [] if real is None else [real]
        return self._run_busy(TOPICS, streams, TOPIC_COMPETITORS, SETTLING_BATCHES, TOP_TOPICS)

    def _run_busy(
        self,
        part: str,
        streams: Sequence[SkewStream],
        competitors: Sequence[Competitor],
        settling_batches: int,
        top_k: int = 0,
    ) -> list[StreamRate]:
        """Run an operator that costs processor time; each slot has a thread and a part of a core of its own.

        The first stream goes through everyone once before any run counts: whoever ran first would look slow.
        """
        folders = [write_stream(stream, "parquet", self._inputs) for stream in streams]
        given = [
            describe_run(competitor, folder, lehmer_steps=LEHMER_STEPS, top_k=top_k)
            for folder in (folders[0], *folders)
            for competitor in competitors
        ]
        places_in_order = [
            (stream, folder) for stream, folder in zip(streams, folders, strict=True) for _ in competitors
        ]
        warm_up_runs = len(given) - len(places_in_order)
        rates: list[StreamRate] = []
        with (
            scratch_places(self._options.cache_dir, self._logs, f"skew-{part}") as places,
            show_activity(self._console, part),
        ):
            reported, took = run_flows(part, given, self._slots, self._slots, places, CORES / self._slots)
            self.notes += describe_neighbours(part, took)
            if reported["core_share"] is None and WHY_NO_CORE_SHARES not in self.notes:
                self.notes.append(WHY_NO_CORE_SHARES)
            counted = zip(places_in_order, reported["runs"][warm_up_runs:], strict=True)
            for number, ((stream, folder), seen) in enumerate(counted, start=warm_up_runs):
                expected = ask_busy_oracle(folder, LEHMER_STEPS)
                found = ANSWER_READERS[OURS](places.output / str(number))
                answer = check_top_answer(found, expected, top_k) if top_k else check_answer(found, expected)
                run = evaluate_busy(seen["name"], seen["batches"], stream.first_batches, answer, settling_batches)
                rates.append(StreamRate(part, stream.name, run))
                self._console.print(f"{stream.name}: {run.rows_per_second:,.0f} rows/s by {run.system}")
        return rates

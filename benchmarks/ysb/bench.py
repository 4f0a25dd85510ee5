"""The Yahoo Streaming Benchmark: from Kafka, filtered, joined with Redis, counted in windows, to Redis."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from benchmarks.servers.jars import BROKER, SPARK_CONNECTOR
from benchmarks.servers.redis import run_redis
from benchmarks.servers.secured_kafka import SecuredKafkaServer
from benchmarks.shared.figures import WARM_UP_SHARE, compute_steady_rate, find_longest_steady_batch
from benchmarks.shared.launch import (
    CORES,
    FLINK_CHECKPOINT_SECONDS,
    JVM_MEMORY,
    Places,
    describe_environment,
    our_script,
    run_peer,
    scratch_places,
    show_activity,
)
from benchmarks.shared.process import ProcessOutcome
from benchmarks.shared.registry import BenchError, BenchOptions, choose_names, choose_peers
from benchmarks.shared.report import deliver
from benchmarks.ysb.answers import check_windows, measure_latency
from benchmarks.ysb.events import (
    ADS_PER_CAMPAIGN,
    CAMPAIGNS,
    CHUNK_ROWS,
    DELAY_MS,
    PARTITIONS,
    WINDOW_MS,
    Ads,
    chunk_times_ms,
    plan_rows,
)
from benchmarks.ysb.figures import CATCH_UP, FLINK, OURS, SECURED, SPARK, SUSTAINED, YsbRun, compute_figures
from benchmarks.ysb.peers import flink
from benchmarks.ysb.redis import fill_redis, read_windows
from benchmarks.ysb.report import NAMES, YsbReport, print_report
from benchmarks.ysb.topic import ensure_topic

DEFAULT_ROWS = 30_000_000
MODES = {"catch-up": CATCH_UP, "secured": SECURED, "sustained": SUSTAINED}
"""By the names that ``--only`` has for them."""
ROWS_PER_BATCH = {OURS: 7_500_000, SPARK: 5_000_000}
"""Of ours, below 3 s on two cores, the checkpoint interval that Flink gets; and of native Spark, its best."""
_FEWEST_BATCHES = 4
_TURNS = 3
"""Of every mode: nine sustained runs of three systems take a quarter of an hour, and one alone differs by a tenth."""
_BROKER_HEAP_MB = 1_024
# Windows that end this close to the last event may be open still where nobody says that the topic has ended.
_SLACK_MS = 1_000


@dataclass(frozen=True, slots=True)
class Sustained:
    """A producer at a fixed rate, and which windows of its time are looked at."""

    rate: int
    warm_up_seconds: float
    """While systems start, and catch up with what came meanwhile."""
    measured_seconds: float
    tail_seconds: float = 15.0
    """For the last windows to be written."""

    @property
    def producing_seconds(self) -> float:
        return self.warm_up_seconds + self.measured_seconds


FULL_SUSTAINED = Sustained(rate=50_000, warm_up_seconds=30.0, measured_seconds=60.0)
SHORT_SUSTAINED = Sustained(rate=5_000, warm_up_seconds=20.0, measured_seconds=20.0, tail_seconds=10.0)
_SHORT_BELOW_ROWS = 2_000_000


def run(options: BenchOptions, console: Console | None = None, modes: tuple[str, ...] | None = None) -> YsbReport:
    """Run every system in every mode and report; print the table and write JSON if asked.

    Systems take turns, three times unless ``--rounds`` says otherwise: the machine is not now as it was a minute ago.
    """
    console = console or Console()
    with _Ysb(options, console).open() as bench:
        runs = [
            bench.run_system(system, mode)
            for mode in modes or bench.modes
            for _ in range(bench.turns)
            for system in bench.systems
        ]
        figures = compute_figures(runs, bench.rows)
        report = YsbReport(workload=bench.describe(), figures=figures, runs=runs, seed=options.seed)
    return deliver(report, options.json_path, print_report, console)


class _Ysb:
    """One call of the bench: its servers, what was asked for, and where things lie."""

    def __init__(self, options: BenchOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._logs = (options.out_dir or options.cache_dir) / "logs"
        self.rows = plan_rows(options.rows or DEFAULT_ROWS)
        self._sustained = SHORT_SUSTAINED if self.rows < _SHORT_BELOW_ROWS else FULL_SUSTAINED
        self.modes = [MODES[part] for part in choose_names("parts", options.only, MODES)]
        self.systems = [OURS, *choose_peers("ysb", options.peers)]
        # Known to fail or not before anything is measured.
        BROKER.fetch()
        self._spark_jars = SPARK_CONNECTOR.fetch() if SPARK in self.systems else Path()
        self._flink_command = flink.prepare_command(options.cache_dir, JVM_MEMORY) if FLINK in self.systems else []
        self._broker: SecuredKafkaServer
        self._redis_url: str

    @contextmanager
    def open(self) -> Iterator[_Ysb]:
        """Start broker and Redis; end them afterwards. The broker's folder is kept, with the topics in it."""
        folder = self._options.cache_dir / "ysb"
        self._broker = SecuredKafkaServer(folder / "kafka", _BROKER_HEAP_MB)
        with run_redis(folder / "redis") as self._redis_url:
            try:
                self._broker.start()
                yield self
            finally:
                self._broker.stop()

    def run_system(self, system: str, mode: str) -> YsbRun:
        """Run one system in one mode and check its answers."""
        fill_redis(self._redis_url, Ads(self._options.seed))
        done = self._sustain(system) if mode == SUSTAINED else self._catch_up(system, mode)
        verdict = "answers equal" if done.answer.equal else f"[red]wrong answer[/]: {done.answer.difference}"
        if mode != SUSTAINED:
            speed = f"{done.rows_per_second / 1e6:.2f} M rows/s" if done.rows_per_second else "too short for a rate"
        else:
            late = done.latency
            speed = f"late by {late.p50_ms:.0f} ms (p50), {late.p99_ms:.0f} ms (p99)" if late else "no windows"
        self._console.print(f"{NAMES[system]}, {mode}: {speed}, {verdict}")
        return done

    @property
    def turns(self) -> int:
        """How often each system runs in a mode."""
        return self._options.rounds or (1 if self.rows < _SHORT_BELOW_ROWS else _TURNS)

    def describe(self) -> dict[str, Any]:
        """Return what was run."""
        live = self._sustained
        return {
            "name": "ysb",
            "rows": self.rows,
            "partitions": PARTITIONS,
            "campaigns": CAMPAIGNS,
            "ads": CAMPAIGNS * ADS_PER_CAMPAIGN,
            "window_ms": WINDOW_MS,
            "watermark_delay_ms": DELAY_MS,
            "rows_per_batch": {system: self._count_rows_per_batch(system) for system in ROWS_PER_BATCH},
            "sustained_rows_per_second": live.rate,
            "sustained_seconds": live.measured_seconds,
            "turns": self.turns,
            "cores": CORES,
            "jvm_memory": JVM_MEMORY,
            "flink_settings": dict(flink.SETTINGS),
            "flink_kafka_settings": dict(flink.KAFKA_SETTINGS),
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _catch_up(self, system: str, mode: str) -> YsbRun:
        with show_activity(self._console, "filling the topic"):
            topic, answer = ensure_topic(self._broker, self.rows, self._options.seed)
        name = f"{NAMES[system]}, {mode}"
        with (
            scratch_places(self._options.cache_dir, self._logs, f"ysb-{system}-catch-up") as places,
            show_activity(self._console, name),
        ):
            reported, took = self._launch(system, name, topic, 0.0, places, secured=mode == SECURED)
        latest_ms = int(chunk_times_ms(self.rows // CHUNK_ROWS - 1)[-1])
        check = check_windows(read_windows(self._redis_url), answer, latest_ms - DELAY_MS - _SLACK_MS)
        warm_up_rows = self.rows * WARM_UP_SHARE
        samples = [(float(seconds), int(rows)) for seconds, rows in reported["samples"]]
        batch_seconds = find_longest_steady_batch(reported.get("batches", ()), warm_up_rows)
        if system == FLINK:
            # Its source is sampled, not its commits: once all rows are read, time passes that is not throughput.
            samples = [sample for sample in samples if sample[1] < self.rows]
            batch_seconds = FLINK_CHECKPOINT_SECONDS
        return YsbRun(
            system=system,
            mode=mode,
            rows=self.rows,
            answer=check,
            rows_per_second=compute_steady_rate(samples, warm_up_rows),
            batch_seconds=batch_seconds,
            run_seconds=took.run_seconds,
            peak_memory_bytes=took.peak_bytes,
            peak_memory_bytes_by_role=took.peak_bytes_by_role,
            details=_pick_details(reported),
        )

    def _sustain(self, system: str) -> YsbRun:
        live, name = self._sustained, f"{NAMES[system]}, {SUSTAINED}"
        topic = f"live-{system}-{time.time_ns()}"
        self._broker.create_topic(topic, PARTITIONS)
        try:
            with scratch_places(self._options.cache_dir, self._logs, f"ysb-{system}-sustained") as places:
                with show_activity(self._console, name), self._producing(topic, places) as answer_path:
                    seconds = live.producing_seconds + live.tail_seconds
                    reported, took = self._launch(system, name, topic, seconds, places)
                answer = pl.read_parquet(answer_path)
                produced = json.loads(answer_path.with_suffix(".json").read_text())
        finally:
            self._broker.delete_topic(topic)
        started_ms = int(1_000 * produced["started"])
        until_ms = started_ms + int(1_000 * live.producing_seconds) - DELAY_MS - _SLACK_MS
        found = read_windows(self._redis_url)
        return YsbRun(
            system=system,
            mode=SUSTAINED,
            rows=int(produced["rows"]),
            answer=check_windows(found, answer, until_ms),
            latency=measure_latency(found, started_ms + int(1_000 * live.warm_up_seconds), until_ms),
            run_seconds=took.run_seconds,
            peak_memory_bytes=took.peak_bytes,
            peak_memory_bytes_by_role=took.peak_bytes_by_role,
            details=_pick_details(reported),
        )

    @contextmanager
    def _producing(self, topic: str, places: Places) -> Iterator[Path]:
        live, answer_path = self._sustained, places.scratch / "answer.parquet"
        given = {
            "servers": self._broker.servers,
            "topic": topic,
            "rate": live.rate,
            "seconds": live.producing_seconds,
            "seed": self._options.seed,
            "answer": answer_path,
        }
        arguments = [part for option, value in given.items() for part in (f"--{option}", str(value))]
        with places.log.with_suffix(".producer.log").open("wb") as log:
            producer = subprocess.Popen(
                [*our_script("ysb.peers.producer"), *arguments],
                env={**os.environ, **describe_environment()},
                stdout=log,
                stderr=log,
            )
        try:
            yield answer_path
            if producer.wait(60) != 0:
                msg = f"the producer ended with status {producer.returncode}; its log: {log.name}"
                raise BenchError(msg)
        finally:
            producer.kill()
            producer.wait()

    def _launch(
        self, system: str, name: str, topic: str, seconds: float, places: Places, *, secured: bool = False
    ) -> tuple[dict[str, Any], ProcessOutcome]:
        login = self._describe_login(system)
        options: dict[str, object] = {
            "servers": self._broker.login_servers if secured else self._broker.servers,
            "topic": topic,
            "redis": self._redis_url,
            "delay-ms": DELAY_MS,
            "window-ms": WINDOW_MS,
            "seconds": seconds,
        }
        if system == FLINK:
            options |= {f"flink.{setting}": value for setting, value in flink.SETTINGS.items()}
            kafka_settings = flink.KAFKA_SETTINGS | (login if secured else {})
            options |= {f"kafka.{setting}": value for setting, value in kafka_settings.items()}
            return run_peer(name, self._flink_command, options, places)
        options |= {"memory": JVM_MEMORY, "max-rows": self._count_rows_per_batch(system)}
        if secured:
            options["login"] = json.dumps(login)
        if system == SPARK:
            return run_peer(name, our_script("ysb.peers.native"), {**options, "jars": self._spark_jars}, places)
        return run_peer(name, our_script("ysb.peers.ours"), {**options, "slots": CORES}, places)

    def _describe_login(self, system: str) -> dict[str, str]:
        if system == OURS:
            return self._broker.login_options()
        return self._broker.java_login_settings(flink.SHADED_IN if system == FLINK else "")

    def _count_rows_per_batch(self, system: str) -> int:
        return min(ROWS_PER_BATCH[system], self.rows // _FEWEST_BATCHES)


def _pick_details(reported: Mapping[str, Any]) -> dict[str, Any]:
    return {name: reported[name] for name in ("settings", "versions", "batches") if name in reported}

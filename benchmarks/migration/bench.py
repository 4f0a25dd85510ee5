"""The migration bench: what it costs a stream to move a part of its state, beside stopping and repartitioning it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.migration.answers import ask_oracle, check_answer
from benchmarks.migration.figures import MoveRun, RestartRun, compute_figures, evaluate_moves, evaluate_restart
from benchmarks.migration.inputs import WINDOW_MS, MigrationInput, write_input
from benchmarks.migration.report import NAMES, MigrationReport, draw_moves, print_report
from benchmarks.shared.launch import JVM_MEMORY, our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.process import ProcessOutcome
from benchmarks.shared.registry import BenchOptions, choose_peers
from benchmarks.shared.report import BUSY_NEIGHBOUR_SHARE, deliver

DEFAULT_KEYS = 4_000_000
DEFAULT_SLOTS = 16
BATCHES = 27
DEFAULT_ROWS = BATCHES * 1_000_000
"""After a first batch that has every key once."""
GROWTH = 1.25
BUCKETS_A_SLOT = 6
MOVE_AT, GROW_AT, SHRINK_AT = 10, 17, 23
WINDOWED_BATCHES = 11
WINDOWED_MOVE_AT = 8
WINDOWED_MS = 1_000
RESTART_BATCHES = 14
RESTART_AFTER = 10
NATIVE_BATCHES = 9
NATIVE_AFTER = 5


def run(options: BenchOptions, console: Console | None = None) -> MigrationReport:
    """Move state by both protocols, restart with other slots, compare with native Spark, and report."""
    console = console or Console()
    bench = _Migration(options, console)
    moves = [bench.move_by_state(), bench.move_by_window()]
    restarts = [bench.restart_ours()]
    if "spark" in bench.peers:
        restarts.append(bench.restart_native())
    figures = compute_figures(moves, restarts, bench.input.rows)
    pictures: list[Path] = []
    # No matching answers, no claim: a picture would be one.
    if options.out_dir is not None and figures["answers_equal"] == 1:
        pictures += draw_moves(moves, restarts, options.out_dir)
    report = MigrationReport(
        workload=bench.describe(),
        figures=figures,
        moves=moves,
        restarts=restarts,
        seed=options.seed,
        notes=bench.notes,
        pictures=pictures,
    )
    return deliver(report, options.json_path, print_report, console)


class _Migration:
    """One call of the bench: what was asked for, and where things lie."""

    def __init__(self, options: BenchOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._inputs = options.cache_dir / "migration"
        self._logs = (options.out_dir or options.cache_dir) / "logs"
        self._keys = options.keys or DEFAULT_KEYS
        self._rows_per_batch = max(1, (options.rows or DEFAULT_ROWS) // BATCHES)
        self.slots = options.slots or DEFAULT_SLOTS
        self.grown = max(self.slots + 1, round(self.slots * GROWTH))
        self.peers = choose_peers("migration", options.peers)
        self.input = self._make_input(BATCHES)
        self.notes: list[str] = []

    def move_by_state(self) -> MoveRun:
        """Move buckets, then add slots, then take them away again, each by handing state over."""
        script = {
            MOVE_AT: {"buckets_a_slot": BUCKETS_A_SLOT},
            GROW_AT: {"slots": self.grown},
            SHRINK_AT: {"slots": self.slots},
        }
        changes = {
            MOVE_AT: ("buckets move", "state"),
            GROW_AT: (f"{self.slots} → {self.grown} slots", "state"),
            SHRINK_AT: (f"{self.grown} → {self.slots} slots", "state"),
        }
        return self._move("anabranch", self.input, WINDOW_MS, script, changes)

    def move_by_window(self) -> MoveRun:
        """Move buckets of short windows: open ones end where they are."""
        # Every key once fills a batch like the others here.
        given = MigrationInput(self._rows_per_batch, WINDOWED_BATCHES, self._rows_per_batch, self._options.seed)
        script = {WINDOWED_MOVE_AT: {"buckets_a_slot": BUCKETS_A_SLOT, "protocol": "window"}}
        changes = {WINDOWED_MOVE_AT: ("buckets move", "window")}
        return self._move("anabranch-window", given, WINDOWED_MS, script, changes)

    def restart_ours(self) -> RestartRun:
        """Stop our own flow and start it again with more slots."""
        given = self._make_input(RESTART_BATCHES)
        options = {"way": "restart", "window": f"{WINDOW_MS}ms", "keys": given.keys}
        return self._restart("anabranch-restart", "migration.peers.ours", given, RESTART_AFTER, options)

    def restart_native(self) -> RestartRun:
        """Stop a native query, repartition its state, and start it again."""
        return self._restart(
            "spark-rocksdb", "migration.peers.native", self._make_input(NATIVE_BATCHES), NATIVE_AFTER, {}
        )

    def describe(self) -> dict[str, Any]:
        """Return what was run."""
        return {
            "name": "migration",
            "rows": self.input.rows,
            "rows_per_batch": self._rows_per_batch,
            "keys": self._keys,
            "slots": self.slots,
            "slots_after": self.grown,
            "window_ms": WINDOW_MS,
            "aggregates": ["count", "sum", "min", "max"],
            "moves_at_batches": [MOVE_AT, GROW_AT, SHRINK_AT],
            "master": "local[2]",
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _make_input(self, batches: int) -> MigrationInput:
        return MigrationInput(self._keys, batches, self._rows_per_batch, self._options.seed)

    def _move(
        self,
        system: str,
        given: MigrationInput,
        window_ms: int,
        script: Mapping[int, Mapping[str, object]],
        changes: Mapping[int, tuple[str, str]],
    ) -> MoveRun:
        folder = write_input(given, self._inputs)
        expected = ask_oracle(folder, window_ms)
        options = {
            "way": "move",
            "input": folder,
            "window": f"{window_ms}ms",
            "keys": given.keys,
            "slots": self.slots,
            "memory": JVM_MEMORY,
            "script": json.dumps(script),
        }
        with scratch_places(self._options.cache_dir, self._logs, system) as places:
            with show_activity(self._console, NAMES[system]):
                reported, took = run_peer(system, our_script("migration.peers.ours"), options, places)
            answer = check_answer(places.output, expected)
        self._note_neighbours(system, took)
        moved = {int(batch): share for batch, share in reported["moved_keys_pct"].items()}
        run = evaluate_moves(system, reported["batches"], moved, changes, answer)
        slowest = max(step.slowest_over_median for step in run.steps)
        self._console.print(
            f"{NAMES[system]}: slowest batch of a move {slowest:.2f} × the median; {_judge(answer.equal)}"
        )
        return run

    def _restart(
        self, system: str, script: str, given: MigrationInput, batches_before: int, more: Mapping[str, object]
    ) -> RestartRun:
        folder = write_input(given, self._inputs)
        expected = ask_oracle(folder, WINDOW_MS)
        options = {
            "input": folder,
            "slots": self.slots,
            "slots-after": self.grown,
            "files": given.files,
            "files-before": batches_before + 1,
            "memory": JVM_MEMORY,
            **more,
        }
        with scratch_places(self._options.cache_dir, self._logs, system) as places:
            with show_activity(self._console, NAMES[system]):
                reported, took = run_peer(system, our_script(script), options, places)
            answer = check_answer(places.output, expected)
        self._note_neighbours(system, took)
        parts = {
            name.removesuffix("_seconds"): seconds for name, seconds in reported.items() if name.endswith("_seconds")
        }
        run = evaluate_restart(system, reported["batches"], reported["stop_called_at"], parts, answer)
        self._console.print(f"{NAMES[system]}: {run.lost_seconds:.2f} s lost; {_judge(answer.equal)}")
        return run

    def _note_neighbours(self, name: str, took: ProcessOutcome) -> None:
        if took.other_cpu_share > BUSY_NEIGHBOUR_SHARE:
            self.notes.append(f"busy machine: other programs took {took.other_cpu_share:.0%} of it during {name}")


def _judge(equal: bool) -> str:
    return "answers equal" if equal else "[red]wrong answer[/]"

"""What tasks of the last batch took, drawn: by slot, by executor and host, and between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anabranch.cli.formats import format_bytes, format_count, format_seconds
from anabranch.cli.tables import fits
from anabranch.model.measures import BatchMeasures, ExecutorLoad, HostLoad, TaskMeasure

MOST_TASKS_SHOWN = 32
MOST_PAIRS_SHOWN = 8


def draw_measures(told: Mapping[str, Any] | None) -> Iterator[RenderableType]:
    """Yield what the batch took, if the flow tells it: a running flow may be of an earlier version."""
    if told is None:
        return
    measures = BatchMeasures.from_json(told)
    yield Text()
    yield Text.assemble(
        ("tasks", "bold"),
        f" · {format_seconds(measures.cpu_seconds)} of processors · {measures.utilisation:.0%} busy"
        f" · measuring took {measures.measuring_share:.2%} of it",
    )
    for part in _draw_parts(measures):
        yield Padding(part, (0, 0, 0, 2), expand=False)


def _draw_parts(measures: BatchMeasures) -> Iterator[RenderableType]:
    yield _draw_tasks(measures.tasks)
    if len(measures.tasks) > MOST_TASKS_SHOWN:
        yield Text(f"and {len(measures.tasks) - MOST_TASKS_SHOWN} tasks with less, in --json", style="dim")
    yield from _draw_operators(measures.tasks)
    yield Text(" ")
    yield _draw_executors(measures.executors)
    yield Text(" ")
    yield _draw_hosts(measures.hosts)
    if len(measures.executors) > 1:
        pairs = list(measures.executor_bytes.items())[:MOST_PAIRS_SHOWN]
        words = [f"{sender} → {receiver} {format_bytes(sent)}" for (sender, receiver), sent in pairs]
        yield Text.assemble(("between executors  ", "cyan"), ", ".join(words))
    if measures.latency_seconds:
        tried = list(measures.latency_seconds.items())[:MOST_PAIRS_SHOWN]
        words = [f"{sender} → {receiver} {1000 * seconds:.2f} ms" for (sender, receiver), seconds in tried]
        yield Text.assemble(("to connect  ", "cyan"), ", ".join(words))


def name_task(task: TaskMeasure) -> str:
    """Return what a task is, as people say it."""
    if task.level == 0:
        return f"reader {task.slot}"
    return f"level {task.level}, {'meeting' if task.meets else 'slot'} {task.slot}"


class Figures:
    """Rows of figures under names; where a terminal is too narrow, the last columns are left out."""

    def __init__(self, names: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> None:
        """``words`` of the first columns hold names, all others figures."""
        self._names = names
        self._rows = list(rows)
        self._words = words

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for columns in range(len(self._names), self._words, -1):
            table = self._draw(columns)
            if fits(table, console, options):
                break
        yield table

    def _draw(self, columns: int) -> Table:
        table = Table(box=None, header_style="cyan", padding=(0, 1, 0, 0))
        for place, name in enumerate(self._names[:columns]):
            table.add_column(name, justify="left" if place < self._words else "right", no_wrap=True)
        for row in self._rows:
            table.add_row(*map(Text, row[:columns]))
        return table


def _draw_tasks(tasks: Iterable[TaskMeasure]) -> Figures:
    busiest = sorted(tasks, key=lambda task: -task.cpu_seconds)[:MOST_TASKS_SHOWN]
    names = ("task", "executor", "cpu", "rows", "received", "sent", "state", "memory", "wall")
    rows = (
        (
            name_task(task),
            task.executor,
            format_seconds(task.cpu_seconds),
            format_count(task.rows),
            *map(format_bytes, (task.received_bytes, task.all_sent_bytes, task.state_bytes, task.memory_bytes)),
            format_seconds(task.wall_seconds),
        )
        for task in sorted(busiest, key=lambda task: task.id)
    )
    return Figures(names, rows, words=2)


def _draw_operators(tasks: Iterable[TaskMeasure]) -> Iterator[Text]:
    """Yield what operators took that share a level's slots."""
    seconds: Counter[tuple[int, str]] = Counter()
    for task in tasks:
        for operator, each in task.operator_cpu_seconds.items():
            seconds[task.level, operator] += each  # type: ignore[assignment]
    for level in sorted({level for level, _ in seconds}):
        told = [f"{name} {format_seconds(each)}" for (of_level, name), each in seconds.items() if of_level == level]
        yield Text.assemble((f"level {level}  ", "cyan"), ", ".join(told))


def _draw_executors(loads: Iterable[ExecutorLoad]) -> Figures:
    names = ("executor", "host", "busy", "cpu", "jvm", "starts", "state", "memory", "jvm memory", "tasks", "cores")
    rows = (
        (
            load.executor,
            load.host,
            f"{load.utilisation:.0%}",
            *map(format_seconds, (load.cpu_seconds, load.process_cpu_seconds, load.starting_seconds)),
            *map(format_bytes, (load.state_bytes, load.memory_bytes, load.process_memory_bytes)),
            str(load.tasks),
            str(load.cores),
        )
        for load in loads
    )
    return Figures(names, rows, words=2)


def _draw_hosts(loads: Iterable[HostLoad]) -> Figures:
    names = ("host", "busy", "cpu", "network out", "network in", "state", "executors", "cores")
    rows = (
        (
            load.host,
            f"{load.utilisation:.0%}",
            format_seconds(load.busy_seconds),
            *map(format_bytes, (load.network_sent_bytes, load.network_received_bytes, load.state_bytes)),
            str(load.executors),
            str(load.cores),
        )
        for load in loads
    )
    return Figures(names, rows, words=1)

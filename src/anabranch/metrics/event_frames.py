"""Events as Polars frames: what all have in common, or all that one kind says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import polars as pl

from anabranch.metrics.event_lines import describe_event
from anabranch.model.events import (
    BatchEvent,
    EffectEvent,
    EventKind,
    HistoryRecord,
    StartEvent,
)

Column = tuple[pl.DataType, Callable[[Any], Any]]

_MOMENT = pl.Datetime("us", "UTC")
_WHOLE, _REAL, _TEXT, _YES = pl.Int64(), pl.Float64(), pl.String(), pl.Boolean()
_SECONDS_OF = ("trigger", "job", "commit", "publish")

_COMMON: dict[str, Column] = {
    "number": (_WHOLE, lambda record: record.number),
    "epoch": (_WHOLE, lambda record: record.epoch),
    "at": (_MOMENT, lambda record: int(record.at * 1e6)),
    "kind": (_TEXT, lambda record: record.event.kind),
    "batch": (_WHOLE, lambda record: record.event.batch),
    "operator": (_TEXT, lambda record: getattr(record.event, "operator", None)),
}
_WORDS: dict[str, Column] = {"text": (_TEXT, lambda record: describe_event(record.event))}


def _fields(kinds: Mapping[str, pl.DataType], part: str | None = None) -> dict[str, Column]:
    """Return columns of fields of an event, or of a part of it, which may be missing."""

    def reader(name: str) -> Callable[[HistoryRecord], Any]:
        def read(record: HistoryRecord) -> Any:
            whole = record.event if part is None else getattr(record.event, part)
            value = whole.get(name) if isinstance(whole, Mapping) else getattr(whole, name, None)
            return list(value) if isinstance(value, tuple) else value

        return read

    return {name: (kind, reader(name)) for name, kind in kinds.items()}


def _phase(name: str) -> Callable[[HistoryRecord], float | None]:
    return lambda record: (
        record.event.progress.phase_seconds.get(name) if isinstance(record.event, BatchEvent) else None
    )


def _measure(name: str) -> Callable[[HistoryRecord], Any]:
    """Return what reads a figure of a batch's measures, if it has them."""
    return lambda record: (
        getattr(record.event.progress.measures, name, None) if isinstance(record.event, BatchEvent) else None
    )


def _energy(name: str, part: str = "energy") -> Callable[[HistoryRecord], Any]:
    """Return what reads a figure of a batch's energy, if it was told."""
    return lambda record: (
        getattr(getattr(record.event.progress, part), name, None) if isinstance(record.event, BatchEvent) else None
    )


def _measured(name: str, kinds: Mapping[str, pl.DataType]) -> Callable[[HistoryRecord], Any]:
    read = _measure(name)
    return lambda record: [{field: getattr(one, field) for field in kinds} for one in read(record) or ()]


def _pairs(name: str, figure: str) -> Callable[[HistoryRecord], Any]:
    read = _measure(name)
    return lambda record: [
        {"sender": sender, "receiver": receiver, figure: value}
        for (sender, receiver), value in (read(record) or {}).items()
    ]


_TASK: dict[str, pl.DataType] = {
    **{"level": _WHOLE, "slot": _WHOLE, "meets": _YES, "executor": _TEXT, "host": _TEXT},
    **dict.fromkeys(("cpu_seconds", "wall_seconds", "starting_seconds", "exchange_seconds"), _REAL),
    **dict.fromkeys(("memory_bytes", "state_bytes", "rows", "received_bytes"), _WHOLE),
    **dict.fromkeys(("all_sent_bytes", "all_sent_rows"), _WHOLE),
}
_EXECUTOR: dict[str, pl.DataType] = {
    **{"executor": _TEXT, "host": _TEXT, "cores": _WHOLE, "tasks": _WHOLE, "utilisation": _REAL},
    **dict.fromkeys(("cpu_seconds", "starting_seconds", "process_cpu_seconds"), _REAL),
    **dict.fromkeys(("memory_bytes", "process_memory_bytes", "state_bytes"), _WHOLE),
    **dict.fromkeys(("rows", "received_bytes", "sent_bytes"), _WHOLE),
}
_HOST: dict[str, pl.DataType] = {
    **{"host": _TEXT, "executors": _WHOLE, "cores": _WHOLE, "busy_seconds": _REAL, "utilisation": _REAL},
    **dict.fromkeys(("state_bytes", "network_sent_bytes", "network_received_bytes"), _WHOLE),
}
_PAIR: dict[str, pl.DataType] = {"sender": _TEXT, "receiver": _TEXT}

_READ: dict[str, pl.DataType] = {"source": _TEXT, "runs": _WHOLE, "bytes": _WHOLE}
_SLOT: dict[str, pl.DataType] = {
    **{"level": _WHOLE, "slot": _WHOLE, "lost_host": _TEXT, "host": _TEXT},
    **{f"{source}_{figure}": _WHOLE for source in ("hot", "replica", "store") for figure in ("runs", "bytes")},
}
_REPLICAS: dict[str, pl.DataType] = {
    **dict.fromkeys(("wanted", "placed", "current", "hosts", "lag_batches"), _WHOLE),
    **dict.fromkeys(("lag_bytes", "held_bytes", "copied_bytes"), _WHOLE),
    **{"copying_seconds": _REAL, "problem": _TEXT},
}


def _list_reads(reads: Mapping[str, tuple[int, int]] | None) -> list[dict[str, Any]]:
    return [{"source": source, "runs": runs, "bytes": size} for source, (runs, size) in (reads or {}).items()]


def _read_tasks(record: HistoryRecord) -> list[dict[str, Any]]:
    tasks = _measure("tasks")(record) or ()
    return [
        {field: getattr(task, field) for field in _TASK} | {"run_reads": _list_reads(task.run_reads)} for task in tasks
    ]


def _read_slots(record: HistoryRecord) -> list[dict[str, Any]]:
    return [{field: getattr(one, field) for field in _SLOT} for one in getattr(record.event, "slots", ())]


def _read_replicas(record: HistoryRecord) -> dict[str, Any] | None:
    told = record.event.progress.replicas if isinstance(record.event, BatchEvent) else None
    return None if told is None else told.to_json()


_COLUMNS: dict[EventKind, dict[str, Column]] = {
    "start": _fields({"host": _TEXT, "process": _WHOLE, "release": _TEXT}),
    "stop": {},
    "batch": {
        **_fields(
            {name: _WHOLE for name in ("rows_in", "rows_out", "late_rows", "dead_rows")}
            | {"batch_seconds": _REAL}
            | {"watermark_us": _WHOLE, "slot_rows": pl.List(_WHOLE), "slot_seconds": pl.List(_REAL)}
            | {"max_over_mean": _REAL}
            | {name: _WHOLE for name in ("state_rows", "state_bytes", "exchanged_bytes", "moved_bytes")}
            | {"changes": pl.List(_TEXT), "problems": pl.List(_TEXT), "replayed": _YES, "drained": _YES},
            "progress",
        ),
        **{f"{name}_seconds": (_REAL, _phase(name)) for name in _SECONDS_OF},
        **{name: (_REAL, _measure(name)) for name in ("cpu_seconds", "utilisation", "measuring_share")},
        **{name: (_REAL, _energy(name)) for name in ("joules", "low_joules", "high_joules")},
        "joules_per_million_rows": (_REAL, _energy("joules", "energy_per_million_rows")),
        "energy_basis": (_TEXT, _energy("basis")),
        "tasks": (pl.List(pl.Struct(_TASK | {"run_reads": pl.List(pl.Struct(_READ))})), _read_tasks),
        "executors": (pl.List(pl.Struct(_EXECUTOR)), _measured("executors", _EXECUTOR)),
        "hosts": (pl.List(pl.Struct(_HOST)), _measured("hosts", _HOST)),
        "host_bytes": (pl.List(pl.Struct(_PAIR | {"bytes": _WHOLE})), _pairs("host_bytes", "bytes")),
        "latency_seconds": (pl.List(pl.Struct(_PAIR | {"seconds": _REAL})), _pairs("latency_seconds", "seconds")),
        "run_reads": (pl.List(pl.Struct(_READ)), lambda record: _list_reads(_measure("run_reads")(record))),
        "replicas": (pl.Struct(_REPLICAS), _read_replicas),
        "start_offset": (_TEXT, lambda record: json.dumps(record.event.start_offset)),
        "end_offset": (_TEXT, lambda record: json.dumps(record.event.end_offset)),
    },
    "decision": {
        **_fields({"action": _TEXT, "sender": _TEXT, "reason": _TEXT, "protocol": _TEXT}),
        **_fields({"imbalance_before": _REAL, "imbalance_expected": _REAL}),
        **_fields(
            {"planning_seconds": _REAL, "table_rows": _WHOLE, "moved_bytes": _REAL, "split_load": _REAL}, "costs"
        ),
        **_fields(
            {
                **dict.fromkeys(("slots_before", "slots_after", "moved_keys", "split_keys"), _WHOLE),
                **dict.fromkeys(("merged_keys", "moved_buckets"), _WHOLE),
                **dict.fromkeys(("strategy_before", "strategy_after"), _TEXT),
            },
            "change",
        ),
        **_fields({"executors": _WHOLE}),
    },
    "effect": _fields(
        {
            **{"decision": _WHOLE, "imbalance": _REAL, "moved_bytes": _WHOLE},
            **{"utilisation_before": _REAL, "utilisation": _REAL},
        }
    ),
    "failure": _fields({"reason": _TEXT, "attempt": _WHOLE, "ends_run": _YES}),
    "recovery": {
        **_fields({"action": _TEXT, "reason": _TEXT, "seconds": _REAL, "silent_seconds": _REAL, "batches": _REAL}),
        "slots": (pl.List(pl.Struct(_SLOT)), _read_slots),
    },
    "span": {
        **_fields({"first_batch": _WHOLE, "last_batch": _WHOLE, "batch_seconds": _REAL, "longest_seconds": _REAL}),
        "since": (_MOMENT, lambda record: int(record.event.since * 1e6)),
        **_fields({name: _WHOLE for name in ("batches", "rows_in", "rows_out", "late_rows", "dead_rows")}, "totals"),
        **_fields({"cpu_seconds": _REAL, "measuring_seconds": _REAL}, "totals"),
        **_fields({"largest_memory_bytes": _WHOLE}),
    },
}


def frame_events(records: Iterable[HistoryRecord], kind: EventKind | None = None) -> pl.DataFrame:
    """Return events with what all have in common and a sentence, or those of one kind with all that they say.

    Decisions come with what was found of them later: ``imbalance_after``, of executors
    ``utilisation_before`` and ``utilisation_after``, and whether they were ``carried_out``.
    """
    every = list(records)
    chosen = every if kind is None else [record for record in every if record.event.kind == kind]
    frame = _frame(chosen, {**_COMMON, **(_WORDS if kind is None else _COLUMNS[kind])})
    return frame if kind != "decision" else _with_outcomes(frame, every)


def _frame(records: Iterable[HistoryRecord], columns: Mapping[str, Column]) -> pl.DataFrame:
    found = list(records)
    return pl.DataFrame(
        {name: pl.Series(name, [read(record) for record in found], kind) for name, (kind, read) in columns.items()}
    )


def _with_outcomes(decisions: pl.DataFrame, records: Iterable[HistoryRecord]) -> pl.DataFrame:
    effects: dict[int, EffectEvent] = {}
    undone: set[int] = set()
    for record in records:
        if isinstance(record.event, EffectEvent):
            effects[record.event.decision] = record.event
        elif isinstance(record.event, StartEvent):
            undone.update(record.event.undone)
    numbers = decisions["number"].to_list()
    found = [effects.get(number) for number in numbers]
    return decisions.with_columns(
        pl.Series("imbalance_after", [one and one.imbalance for one in found], _REAL),
        pl.Series("utilisation_before", [one and one.utilisation_before for one in found], _REAL),
        pl.Series("utilisation_after", [one and one.utilisation for one in found], _REAL),
        pl.Series("carried_out", [number not in undone for number in numbers], _YES),
    )

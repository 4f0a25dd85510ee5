"""What a batch did, in figures for users and displays."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.engine.reports import BatchReport
from anabranch.eventtime.flow.flow_time import load_time
from anabranch.model import BatchProgress
from anabranch.query.plan import Plan
from anabranch.state.manifest import Manifest


def describe_batch(
    plan: Plan,
    manifest: Manifest,
    report: BatchReport | None,
    seconds: float,
    phases: Mapping[str, float],
    *,
    drained: bool,
) -> BatchProgress:
    """Return the figures of a committed batch; without a report, it was only published again."""
    counters = report.counters if report is not None else {}
    first = plan.levels[0] if plan.levels else ()
    operators = report.operators.values() if report is not None else ()
    rows = [report.operators[head].rows for head in first if report is not None and head in report.operators]
    return BatchProgress(
        batch=manifest.batch,
        rows_in=counters.get("rows_in", 0),
        rows_out=counters.get("rows_out", 0),
        late_rows=counters.get("late_rows", 0),
        dead_rows=counters.get("dead_rows", 0),
        slot_late_rows=counters.get("slot_late_rows", 0),
        updated_rows=counters.get("updated_rows", 0),
        batch_seconds=seconds,
        watermark_us=load_time(plan, manifest).watermark_us,
        slot_rows=tuple(sum(values) for values in zip(*rows, strict=True)) if rows else (),
        slot_seconds=report.slot_seconds if report is not None else (),
        state_rows=manifest.state_rows,
        state_bytes=manifest.state_bytes,
        exchanged_bytes=report.exchanged_bytes if report is not None else 0,
        sampled_rows=sum(load.sampled_rows for operator in operators for load in operator.loads),
        exchanges=tuple(report.figures.values()) if report is not None else (),
        phase_seconds=dict(phases),
        problems=manifest.problems,
        replayed=report is None,
        drained=drained,
    )

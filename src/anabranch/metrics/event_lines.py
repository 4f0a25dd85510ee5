"""Events as sentences, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.model.events import (
    BatchEvent,
    DecisionEvent,
    EffectEvent,
    Event,
    FailureEvent,
    RecoveryEvent,
    SpanEvent,
    StartEvent,
    StopEvent,
)


def describe_event(event: Event) -> str:
    """Return in one line what happened; the batch is not named again."""
    match event:
        case StartEvent():
            behind = "a new checkpoint" if event.batch is None else f"goes on behind batch {event.batch}"
            undone = f"; {len(event.undone)} decisions came to nothing" if event.undone else ""
            return f"process {event.process} on {event.host} (anabranch {event.release}): {behind}{undone}"
        case StopEvent():
            return "the driver gave the checkpoint back"
        case BatchEvent():
            return _describe_batch(event)
        case DecisionEvent():
            return f"{event.sender}, {event.action}: {event.describe()}{_describe_outlook(event)}"
        case EffectEvent():
            return _describe_effect(event)
        case FailureEvent():
            attempt = "" if event.attempt is None else f"try {event.attempt}: "
            return f"{attempt}{event.reason.splitlines()[0]}{'; the run ends' if event.ends_run else ''}"
        case RecoveryEvent():
            return f"{event.action}: {event.reason}"
        case SpanEvent():
            totals = event.totals
            batches = f"{totals.batches:,} batches, {event.first_batch} to {event.last_batch}"
            rows = f"{totals.rows_in:,} rows in, {totals.rows_out:,} out"
            drawn = f", {totals.energy.describe()}" if totals.energy is not None else ""
            return f"{batches}: {rows}, {event.batch_seconds:,.1f} s, the longest {event.longest_seconds:.2f} s{drawn}"


def _describe_batch(event: BatchEvent) -> str:
    done = event.progress
    facts = [f"{done.rows_in:,} rows in, {done.rows_out:,} out"]
    facts += [f"{count:,} {word}" for count, word in ((done.late_rows, "late"), (done.dead_rows, "dead")) if count]
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in done.phase_seconds.items() if seconds >= 0.005)
    facts.append(f"{done.batch_seconds:.2f} s" + (f" ({parts})" if parts else ""))
    if done.max_over_mean is not None:
        facts.append(f"max/mean {done.max_over_mean:.3f} of {len(done.slot_rows)} slots")
    if done.measures is not None and done.measures.cpu_seconds:
        facts.append(f"{done.measures.cpu_seconds:.2f} s of processors, {done.measures.utilisation:.0%} busy")
    if done.replicas is not None:
        facts.append(done.replicas.describe())
    if done.energy is not None:
        each = done.energy_per_million_rows
        facts.append(done.energy.describe() + (f", {each.describe()} per million rows" if each is not None else ""))
    facts += [word for word, holds in (("replayed", done.replayed), ("drained", done.drained)) if holds]
    facts += done.problems
    return ", ".join(facts)


def _describe_outlook(event: DecisionEvent) -> str:
    found = [] if event.costs is None else [describe_costs(event.costs)]
    if event.imbalance_before is not None:
        then = "" if event.imbalance_expected is None else f", {event.imbalance_expected:.3f} expected"
        found.insert(0, f"max/mean was {event.imbalance_before:.3f}{then}")
    return f"; {'; '.join(found)}" if found else ""


def _describe_effect(event: EffectEvent) -> str:
    decided = f"{event.operator}: decision {event.decision}"
    if event.utilisation is not None:
        before = "" if event.utilisation_before is None else f", from {event.utilisation_before:.0%}"
        return f"{decided} made executors {event.utilisation:.0%} busy{before}"
    moved = f", {event.moved_bytes:,} bytes of state were handed over" if event.moved_bytes else ""
    return f"{decided} gave max/mean {event.imbalance or 1.0:.3f}{moved}"


def describe_costs(costs: Mapping[str, Any]) -> str:
    """Return what a plan costs, in words; of other homes that is the state alone."""
    facts = [f"{costs['moved_bytes']:,.0f} bytes to move"]
    if "table_rows" in costs:
        facts.insert(0, f"{costs['table_rows']:,} table rows")
    if costs.get("planning_seconds") is not None:
        facts.insert(0, f"planned in {1000 * costs['planning_seconds']:.1f} ms")
    if costs.get("split_load"):
        facts.append(f"{costs['split_load']:,.0f} rows a batch of split keys")
    return ", ".join(facts)

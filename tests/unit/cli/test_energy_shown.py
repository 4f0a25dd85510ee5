"""What people see of energy: in lines, in what ctl shows, and in the history, with its interval and its basis."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from rich.console import Console

from anabranch.cli.ctl.tables import draw_balance
from anabranch.cli.run.lines import describe_batch, describe_run
from anabranch.metrics.event_lines import describe_event
from anabranch.model import RunTotals
from anabranch.model.events import BatchEvent, HistoryRecord, SpanEvent
from anabranch.model.power import EnergyFigure
from unit.cli.builders import batch, history_of

DRAWN = EnergyFigure(1_200.0, 1_000.0, 1_500.0, "modelled", "a curve")
TOLD = {
    "policy": "ERDM",
    "hosts": 2,
    "asleep": 3,
    "bound_seconds": 5.0,
    "changes": 4,
    "latency_seconds": 2.53,
    "reason": "3 hosts are on no path of 90% of the longest",
}


def show(energy: Any, drawn: Any) -> str:
    console = Console(width=160)
    with console.capture() as told:
        for part in draw_balance({"batch": 1, "operators": [], "energy": energy, "drawn": drawn}):
            console.print(part)
    return told.get()


def test_lines_say_joules_and_whether_they_were_measured() -> None:
    line = describe_batch(batch(1, energy=DRAWN), now_seconds=1_760_000_002.5)
    assert "joules=1200.0 energy=modelled" in line
    assert "joules" not in describe_batch(batch(1), now_seconds=1_760_000_002.5)


def test_the_closing_words_say_what_the_run_drew_and_each_million_rows() -> None:
    history = history_of(batch(0, energy=DRAWN), batch(1, energy=DRAWN))
    told = describe_run(history, 100.0)
    assert "2.4 kJ (2–3), modelled, 12 kJ (10–15), modelled per million rows" in told


def test_ctl_shows_hosts_latency_the_reason_and_what_is_drawn() -> None:
    shown = show(TOLD, {"run": DRAWN.describe()})
    assert "energy · by ERDM · 2 hosts awake, 3 asleep · latency 2.5 s, at most 5 s wanted · 4 changes" in shown
    assert "3 hosts are on no path" in shown and "run: 1.2 kJ (1–1.5), modelled" in shown
    assert "more and more comes than is done" in show(TOLD | {"latency_seconds": None}, None)
    assert "energy · no host sleeps" in show(None, {"run": DRAWN.describe()})
    assert "energy" not in show(None, None)


def test_the_history_keeps_figures_and_old_lines_have_none() -> None:
    record = HistoryRecord(1, 2, 3.0, BatchEvent(batch(1, energy=DRAWN)))
    written = json.loads(json.dumps(record.to_json()))
    assert HistoryRecord.from_json(written) == record
    assert "1.2 kJ (1–1.5), modelled, 12 kJ (10–15), modelled per million rows" in describe_event(record.event)
    del written["progress"]["energy"]
    old = HistoryRecord.from_json(written)
    assert old is not None and isinstance(old.event, BatchEvent) and old.event.progress.energy is None


def test_sums_of_old_batches_have_their_energy() -> None:
    totals = RunTotals().plus(batch(1, energy=DRAWN)).plus(batch(2)).plus(batch(3, energy=DRAWN))
    assert totals.energy == DRAWN + DRAWN
    record = HistoryRecord(1, 2, 3.0, SpanEvent(1, 3, 2.0, totals, 1.0, 1.0))
    assert HistoryRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    assert "2.4 kJ" in describe_event(record.event)
    assert replace(totals, energy=None).energy_per_million_rows is None

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from anabranch.cli.run.screen import ProgressPanel
from anabranch.metrics import RunHistory
from anabranch.model.progress import Admitted
from anabranch.model.waits import Wait
from unit.cli.builders import EXCHANGE, batch, history_of


def draw(history: RunHistory, width: int = 100, waits: tuple[Wait, ...] = (), now: float = 10.0) -> str:
    panel = ProgressPanel("low-voltage", history, monotonic=lambda: now, wall_clock=lambda: 1_760_000_003.0)
    panel.waits = waits
    screen = io.StringIO()
    Console(file=screen, width=width, force_terminal=False).print(panel)
    return screen.getvalue()


def line_of(drawing: str, label: str) -> str:
    return next(line for line in drawing.splitlines() if line.startswith(f"│ {label} "))


def test_before_the_first_batch_the_panel_says_that_it_waits() -> None:
    drawing = draw(RunHistory(0.0))
    assert "waiting for the first batch" in drawing
    assert "low-voltage" in drawing and "Ctrl-C" in drawing


def test_the_panel_shows_rates_batch_watermark_rows_and_state() -> None:
    drawing = draw(history_of(*(batch(n) for n in range(10))))
    assert "100,000" in line_of(drawing, "rows/s") and "1,000,000 since the start" in drawing
    assert "500 ms, median 500 ms" in line_of(drawing, "batch")
    assert "2025-10-09 08:53:20Z  3.0 s behind the clock" in line_of(drawing, "watermark")
    assert "1,200 results" in line_of(drawing, "rows")
    assert "20,000 rows, 1.2 MB" in line_of(drawing, "state")


def test_every_slot_has_a_bar_and_the_fullest_the_longest() -> None:
    lines = draw(history_of(batch(slot_rows=(500, 1000)))).splitlines()
    bars = [line.count("█") for line in lines if "█" in line and " ms" in line and "rows/s" not in line]
    assert bars == [27, 55]
    assert any("max/mean 1.33" in line for line in lines)


def test_the_panel_shows_how_rows_come_to_their_slots() -> None:
    drawing = draw(history_of(batch(exchanges=(EXCHANGE,))))
    assert "merged first, 95 % of 100,000 rows sent, 456.8 kB" in line_of(drawing, "exchange")
    held = replace(EXCHANGE, operator="again", way="held", sent_rows=0, sent_bytes=0)
    drawing = draw(history_of(batch(exchanges=(EXCHANGE, held))))
    assert "agg: merged first" in line_of(drawing, "exchange")
    assert "again: held back, 0 sent while 100,000 came" in drawing
    assert not any(line.startswith("│ exchange") for line in draw(history_of(batch())).splitlines())


def test_sources_that_wait_for_others_are_shown_with_how_far_ahead_they_are() -> None:
    drawing = draw(history_of(batch(held_back={"clicks": 135.0, "ads": 12.0})))
    assert "clicks, 2 m 15 s ahead; ads, 12.0 s ahead" in line_of(drawing, "held back")
    assert "held back" not in draw(history_of(batch()))


def test_a_target_for_latency_is_shown_with_what_is_admitted_and_expected() -> None:
    drawing = draw(history_of(batch(admitted=Admitted(50_000, 2.0, 1.75, "why"), waiting_rows=900)))
    told = "target 2.0 s   up to 50,000 rows admitted, 1.8 s expected   900 rows wait"
    assert told in line_of(drawing, "latency")
    assert "latency" not in draw(history_of(batch()))


def test_many_slots_become_one_column_each() -> None:
    drawing = draw(history_of(batch(slot_rows=tuple(range(1, 41)))))
    assert "40 slots, max/mean 1.95, the fullest is 39 with 40 rows" in drawing


def test_a_watermark_ahead_of_the_clock_is_named_so() -> None:
    assert "2.0 s ahead" in draw(history_of(batch(watermark_us=1_760_000_005_000_000)))


def test_flows_without_time_or_state_have_their_panel_too() -> None:
    drawing = draw(history_of(batch(watermark_us=None, slot_rows=(), slot_seconds=(), phase_seconds={})))
    assert "none" in line_of(drawing, "watermark")
    assert "max/mean" not in drawing


def test_problems_stand_below_with_brackets_as_they_are() -> None:
    assert "! [b]a.json[/b] grew" in draw(history_of(batch(problems=("[b]a.json[/b] grew",))))


@pytest.mark.parametrize("history", [RunHistory(0.0), history_of(batch(1))])
def test_servers_that_are_waited_for_are_shown_with_how_long(history: RunHistory) -> None:
    wait = Wait("redis://cache", "connection refused", 1_760_000_003.0 - 72)
    assert "… waiting for redis://cache, 1:12: connection refused" in draw(history, waits=(wait,))
    assert "redis" not in draw(history)


def test_a_wide_terminal_shows_more_seconds_longer_bars_and_the_phases() -> None:
    history = history_of(*(batch(n, slot_rows=(500, 1000)) for n in range(250)))
    narrow, wide = (draw(history, width, now=251.0) for width in (80, 240))
    assert max(len(line) for line in wide.splitlines()) == 240
    cells = [sum(letter in "▁▂▃▄▅▆▇█" for letter in line_of(drawing, "rows/s")) for drawing in (narrow, wide)]
    assert cells[1] - cells[0] >= 100
    assert wide.count("█") > narrow.count("█") + 100
    assert "publish 40 ms" in wide and "publish" not in narrow


def test_a_wide_terminal_has_a_bar_for_each_of_many_slots() -> None:
    history = history_of(batch(slot_rows=tuple(range(1, 25)), slot_seconds=(0.5,) * 24))
    assert "24 slots" in draw(history, 80)
    wide = draw(history, 200)
    assert "24 slots" not in wide and wide.count("500 ms") == 24 + 2


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200, 300])
@pytest.mark.parametrize("slots", [0, 2, 8, 24, 100])
def test_no_line_is_wider_than_the_terminal(width: int, slots: int) -> None:
    history = history_of(*(batch(n, slot_rows=tuple(range(slots)), problems=("x" * 150,)) for n in range(3)))
    assert max(len(line) for line in draw(history, width).splitlines()) <= width

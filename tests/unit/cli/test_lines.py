from __future__ import annotations

from dataclasses import replace

from anabranch.cli.run.lines import describe_batch, describe_run
from anabranch.metrics import RunHistory
from anabranch.model.progress import Admitted
from unit.cli.builders import EXCHANGE, batch, history_of


def pairs_of(line: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in line.split(" "))


def test_a_line_is_made_of_pairs_that_programs_can_split() -> None:
    pairs = pairs_of(
        describe_batch(
            batch(12, late_rows=3, slot_late_rows=2, updated_rows=1, dead_rows=1), now_seconds=1_760_000_002.5
        )
    )
    assert pairs == {
        "batch": "12",
        "rows": "100000",
        "seconds": "0.500",
        "rows_per_second": "200000",
        "out": "120",
        "late": "3",
        "slot_late": "2",
        "updated": "1",
        "dead": "1",
        "watermark": "2025-10-09T08:53:20Z",
        "lag_seconds": "2.5",
        "state_rows": "20000",
        "state_bytes": "1234567",
        "slots": "2",
        "max_over_mean": "1.10",
    }


def test_what_does_not_apply_is_left_out() -> None:
    pairs = pairs_of(describe_batch(batch(watermark_us=None, slot_rows=(), replayed=True, drained=True), 0.0))
    assert not {"watermark", "lag_seconds", "slots", "max_over_mean"} & set(pairs)
    assert (pairs["replayed"], pairs["drained"]) == ("yes", "yes")


def test_how_rows_came_to_their_slots_is_told_operator_by_operator() -> None:
    second = replace(EXCHANGE, operator="again", way="plain")
    pairs = pairs_of(describe_batch(batch(exchanges=(EXCHANGE, second)), 0.0))
    assert pairs["exchange"] == "agg:merged,again:plain"
    assert pairs["exchanged_bytes"] == "456789"


def test_sources_that_wait_for_others_are_told() -> None:
    pairs = pairs_of(describe_batch(batch(held_back={"clicks": 95.25, "ads": 12.0}), 0.0))
    assert pairs["held_back"] == "clicks:95.2,ads:12.0"
    assert "held_back" not in pairs_of(describe_batch(batch(), 0.0))


def test_what_a_batch_was_allowed_is_told_beside_the_target() -> None:
    pairs = pairs_of(describe_batch(batch(admitted=Admitted(50_000, 2.0, 1.75, "why"), waiting_rows=900), 0.0))
    told = [pairs[name] for name in ("admitted", "target_seconds", "expected_seconds", "waiting")]
    assert told == ["50000", "2", "1.750", "900"]
    assert "admitted" not in pairs_of(describe_batch(batch(), 0.0))


def test_the_closing_line_adds_the_batches_up() -> None:
    history = history_of(batch(7, late_rows=2, slot_late_rows=2), batch(8, dead_rows=5))
    line = describe_run(history, ended_seconds=83.0)
    assert line == ("2 batches in 83.0 s, 200,000 rows in, 240 out, 2 late, 5 dead, committed up to batch 8")


def test_late_rows_are_shown_at_both_levels_where_they_differ() -> None:
    history = history_of(batch(7, late_rows=2, slot_late_rows=1000, updated_rows=2))
    line = describe_run(history, ended_seconds=83.0)
    assert "2 late (2 of them changed results, 1,000 by their slot's own time)" in line


def test_a_run_without_batches_says_that_there_was_nothing_to_read() -> None:
    assert "nothing new to read" in describe_run(RunHistory(0.0), ended_seconds=2.0)

from __future__ import annotations

import pytest

from anabranch.cli.formats import (
    draw_bar,
    draw_spark,
    format_bytes,
    format_count,
    format_elapsed,
    format_moment,
    format_seconds,
)
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (1_234_567, "1,234,567"), (12_345_678, "12.3 M"), (4.2e9, "4.2 G"), (7e12, "7.0 T")]
)
def test_counts_are_grouped_and_large_ones_shortened(count: float, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(999, "999 B"), (1_200_000, "1.2 MB"), (999_960, "1.0 MB"), (25.3e9, "25.3 GB"), (3e12, "3.0 TB")],
)
def test_sizes_take_the_unit_that_keeps_them_short(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12 ms"),
        (0.9999, "1.0 s"),
        (8.44, "8.4 s"),
        (125, "2 m 05 s"),
        (12_000, "3 h 20 m"),
        (400 * 86_400, "400 d"),
        (-2, "-2.0 s"),
    ],
)
def test_durations_show_the_units_that_matter(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_stopwatch_shows_hours_only_when_there_are_some() -> None:
    assert (format_elapsed(42.9), format_elapsed(3723)) == ("0:42", "1:02:03")


def test_moments_are_utc_and_the_ends_of_time_are_words() -> None:
    assert format_moment(1_760_000_000_000_000) == "2025-10-09 08:53:20Z"
    assert format_moment(1_760_000_000_250_000) == "2025-10-09 08:53:20.250Z"
    assert format_moment(END_OF_TIME) == "the end of time"
    assert format_moment(BEGINNING_OF_TIME) == "the beginning of time"


def test_sparks_are_as_high_as_values_and_blank_for_nothing() -> None:
    assert draw_spark([0, 1, 4, 8], width=10) == " ▂▅█"
    assert draw_spark([9, 9, 1, 8], width=2) == "▂█"
    assert draw_spark([0, 0], width=10) == "  "
    assert draw_spark([], width=10) == ""


def test_bars_are_exact_to_an_eighth_and_never_hide_a_row() -> None:
    assert draw_bar(10, 10, 4) == "████"
    assert draw_bar(5, 10, 4) == "██"
    assert draw_bar(1, 16, 2) == "▏"
    assert draw_bar(1, 10_000, 4) == "▏"
    assert draw_bar(0, 10, 4) == ""
    assert draw_bar(0, 0, 4) == ""

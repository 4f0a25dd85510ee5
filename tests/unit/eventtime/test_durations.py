"""Lengths of time are read as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from anabranch.errors import FlowError
from anabranch.eventtime import parse_duration


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("10s", 10_000_000),
        ("500ms", 500_000),
        ("250us", 250),
        ("2m", 120_000_000),
        ("1h30m", 5_400_000_000),
        ("1d", 86_400_000_000),
        ("1w", 604_800_000_000),
        ("1.5s", 1_500_000),
        ("0.1s", 100_000),
        ("0s", 0),
        (" 1h 5s ", 3_605_000_000),
        (timedelta(minutes=3, microseconds=7), 180_000_007),
    ],
)
def test_durations_become_microseconds(text: str | timedelta, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize("wrong", ["", "10", "ten seconds", "10 parsecs", "-5s", "5s-", 10, 2.5, None])
def test_what_is_no_duration_is_refused_with_the_accepted_forms(wrong: object) -> None:
    with pytest.raises(FlowError, match=r"the delay.*'10s'.*timedelta"):
        parse_duration(wrong, role="delay")


def test_negative_timedelta_is_refused() -> None:
    with pytest.raises(FlowError, match="must not be negative"):
        parse_duration(timedelta(seconds=-1))


def test_fractions_of_a_microsecond_are_refused() -> None:
    with pytest.raises(FlowError, match="finer than a microsecond"):
        parse_duration("0.5us")

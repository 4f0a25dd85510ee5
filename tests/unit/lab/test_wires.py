"""Limits of wires, as the kernel is told them."""

from __future__ import annotations

import pytest

from anabranch.lab.errors import LabError
from anabranch.lab.wires import Traffic, WireLimit


def test_a_burst_lasts_for_a_tick_of_the_clock_and_is_never_tiny() -> None:
    (slow,) = WireLimit(mbit=10).rules
    assert slow == ("root", "tbf", "rate", "10000000bit", "burst", "65536b", "latency", "200ms")
    (fast,) = WireLimit(mbit=1000).rules
    assert fast[fast.index("burst") + 1] == "1250000b"


def test_a_limit_of_a_delayed_wire_lies_inside_of_the_delay() -> None:
    delay, limit = WireLimit(mbit=100, delay_ms=2.5).rules
    assert delay[:6] == ("root", "handle", "1:", "netem", "delay", "2.5ms")
    assert limit[:3] == ("parent", "1:1", "tbf")
    assert WireLimit(delay_ms=2.5).rules == (delay,)


def test_limits_are_said_in_words() -> None:
    assert WireLimit(mbit=1000).describe() == "1000 Mbit/s"
    assert WireLimit(delay_ms=20).describe() == "20 ms"
    assert WireLimit(0.5, 20).describe() == "0.5 Mbit/s, 20 ms"


def test_a_wire_that_lets_nothing_through_is_no_limit() -> None:
    with pytest.raises(LabError, match="cut the host off"):
        WireLimit(mbit=0)
    with pytest.raises(LabError, match="leave it out"):
        WireLimit(delay_ms=0)


def test_what_one_end_sends_the_other_receives() -> None:
    assert Traffic(10, 7, 3, 2).seen_from_the_other_end == Traffic(7, 10, 2, 3)


def test_traffic_is_what_came_since() -> None:
    assert Traffic(10, 7, 3, 2) - Traffic(4, 5, 1, 1) == Traffic(6, 2, 2, 1)

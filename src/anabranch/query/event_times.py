"""What ``watermark()`` is told, checked and brought into one form."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from anabranch.errors import FlowError
from anabranch.eventtime import parse_duration
from anabranch.eventtime.durations import describe_duration
from anabranch.model import CLOCK_LEVELS, Clock
from anabranch.model.times import USUAL_LIMITS, ClockLevel, TimeLimits

Duration = str | timedelta
Moment = str | date | datetime
"""A point in time: ISO 8601 text, a date, or a datetime; without a zone it is in UTC."""

NO_LIMIT = "none"
"""What stands for None where only text can be written, as in the attributes of XML."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def make_clock(
    per: ClockLevel,
    delay: Duration,
    groups: int,
    idle: Duration | None,
    behind: Duration | None,
    forget: Duration | None = None,
) -> Clock:
    """Return whose time a watermark follows, or raise ``FlowError`` naming the alternatives."""
    if per not in CLOCK_LEVELS:
        msg = f"watermark: per={per!r} is unknown; watermarks are kept per {', '.join(CLOCK_LEVELS)}"
        raise FlowError(msg)
    if groups < 1:
        msg = f"watermark: groups must be at least 1, got {groups}"
        raise FlowError(msg)
    if behind is not None and per == "flow":
        msg = (
            'watermark: behind compares partitions, slots, groups or keys with the whole flow, and with per="flow" '
            'there is but one time; give per="key", per="partition" …, or leave behind out'
        )
        raise FlowError(msg)
    idle_us, forget_us = (
        None if given is None else _positive(name, given) for name, given in (("idle", idle), ("forget", forget))
    )
    if forget_us is not None and (per != "key" or idle_us is None or forget_us < idle_us):
        msg = (
            f"watermark: forget={forget!r} says when the time of a key that is idle is dropped, not before it is idle; "
            f'got per={per!r}, idle={idle!r}; give per="key" and an idle that is not longer, or leave forget out'
        )
        raise FlowError(msg)
    behind_us = None if behind is None else _positive("behind", behind)
    return Clock(per, parse_duration(delay, "watermark's delay"), groups, idle_us, behind_us, forget_us)


def make_limits(earliest: Moment | None, future: Duration | None) -> TimeLimits:
    """Return which event times cannot be right, or raise ``FlowError`` if that cannot be understood."""
    no_limit = ", or None for no limit"
    return TimeLimits(
        None if earliest is None or earliest == NO_LIMIT else read_moment_us(earliest, "watermark: earliest", no_limit),
        None if future is None or future == NO_LIMIT else parse_duration(future, "watermark's future"),
    )


def describe_limits(limits: TimeLimits) -> str:
    """Return limits as the end of a label; nothing if they are the usual ones."""
    text = ""
    if limits.earliest_us != USUAL_LIMITS.earliest_us:
        earliest_us = limits.earliest_us
        text += (
            ", no earliest time" if earliest_us is None else f", from {_EPOCH + timedelta(microseconds=earliest_us)}"
        )
    if limits.future_us != USUAL_LIMITS.future_us:
        future_us = limits.future_us
        text += ", however far ahead" if future_us is None else f", at most {describe_duration(future_us)} ahead"
    return text.replace("+00:00", "")


def read_moment_us(moment: Moment, role: str, otherwise: str = "") -> int:
    """Return a point in time in microseconds since 1970; raise ``FlowError`` that says its role and what to give."""
    try:
        read = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        read = None
    if isinstance(read, date) and not isinstance(read, datetime):
        read = datetime.combine(read, time())
    if not isinstance(read, datetime):
        msg = (
            f"{role}={moment!r} is no point in time; give '2020-01-01', '2020-01-01T12:00:00+02:00', "
            f"a date or a datetime{otherwise}"
        )
        raise FlowError(msg)
    aware = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _positive(role: str, length: Duration) -> int:
    length_us = parse_duration(length, f"watermark's {role}")
    if length_us <= 0:
        msg = f"watermark: {role} must be longer than nothing, got {length!r}; leave it out for no limit"
        raise FlowError(msg)
    return length_us

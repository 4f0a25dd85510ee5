"""What ``join_asof()`` is told, checked and brought into one form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from anabranch.errors import FlowError
from anabranch.eventtime import parse_duration
from anabranch.eventtime.durations import describe_duration
from anabranch.model import BEGINNING_OF_TIME, FLOW_CLOCK, TIME
from anabranch.model.balance import AUTO, Routing
from anabranch.model.joins import RIGHT, Interval, JoinSpec
from anabranch.operators.kernels import make_kernel
from anabranch.query.alignment import read_align
from anabranch.query.column_checks import find_column
from anabranch.query.event_times import Duration
from anabranch.query.joining import (
    JoinKeys,
    Names,
    check_keys,
    check_same_flow,
    check_time,
    describe_keys,
    name_columns,
    pair_names,
)
from anabranch.query.nodes import EventTime, Stateful
from anabranch.routing.strategies.by_name import make_strategy, places_rows

if TYPE_CHECKING:
    from anabranch.query.streams import Stream

AsofKind = Literal["left", "inner"]
AsofStrategy = Literal["backward"]

_VERB = "join_asof"
_BY = 'by="sensor", or by_left="sensor", by_right="device" where names differ'


@dataclass(frozen=True, slots=True)
class AsofTerms:
    """What an as-of join is asked for, as it is given."""

    on: str | None
    left_on: str | None
    right_on: str | None
    strategy: AsofStrategy
    tolerance: Duration | None
    how: AsofKind
    allow_exact_matches: bool
    suffix: str
    align: Duration | None


def join_asof(left: Stream, right: Stream, keys: JoinKeys, terms: AsofTerms, routing: Routing, name: str) -> Stream:
    """Return the rows of the left stream, each with the version of its key that was valid at its time."""
    check_same_flow(_VERB, left, right)
    if terms.how not in get_args(AsofKind):
        msg = f"{_VERB}: how={terms.how!r} is unknown; rows without a version stay, how='left', or go, how='inner'"
        raise FlowError(msg)
    if terms.strategy not in get_args(AsofStrategy):
        msg = (
            f"{_VERB}: strategy={terms.strategy!r} is unknown; there is 'backward', the newest row that is not after "
            "the left one; for rows after it, see join(…, within=…)"
        )
        raise FlowError(msg)
    if routing.strategy != AUTO and places_rows(make_strategy(routing.strategy, **routing.options)):
        msg = (
            f"{_VERB}: {routing.strategy} sends a row to several slots, and each of them sees some of the versions "
            "only, so none can tell which is the newest; say another routing"
        )
        raise FlowError(msg)
    time = _check_times(left, right, terms)
    check_keys(_VERB, left, right, keys)
    within = _read_ages(terms)
    shown = [name for name in right.schema if name not in keys[RIGHT]]
    spec = JoinSpec(
        inputs=name_columns(_VERB, (left.schema, right.schema), keys, (left.schema, shown), terms.suffix),
        how=terms.how,
        within=within,
        time_column=TIME,
        newest=True,
    )
    schema = make_kernel(spec).output_schema({})
    age = "" if terms.tolerance is None else f", at most {describe_duration(-within.least_us)} old"
    label = f"{terms.how} join by {describe_keys(keys)} with the version as of {time.column}{age}"
    align_us = read_align(_VERB, terms.align, left, right)
    operation = Stateful(spec, left.graph.unused_name(name), routing, align_us)
    # Both streams are followed from here on, whatever the left one's clock is.
    node = left.graph.add(operation, (left.node.id, right.node.id), schema, label, replace(time, clock=FLOW_CLOCK))
    return type(left)(left.graph, node)


def read_by(by: Names | None, by_left: Names | None, by_right: Names | None) -> JoinKeys:
    """Return the keys of both sides."""
    return pair_names(_VERB, by, by_left, by_right, _BY)


def _check_times(left: Stream, right: Stream, terms: AsofTerms) -> EventTime:
    """Return the left stream's event time; whoever names columns must name those that are followed."""
    if terms.on is not None and (terms.left_on is not None or terms.right_on is not None):
        msg = f"{_VERB}: on= is the column of time of both streams; give it, or left_on= and right_on="
        raise FlowError(msg)
    for side, stream, named in (("left", left, terms.left_on), ("right", right, terms.right_on)):
        time = check_time(_VERB, side, stream)
        if time.clock.is_kept_in_slots:
            msg = (
                f"{_VERB}: the {side} stream keeps time per {time.clock.per}, and rows wait here for the time of the "
                'flow; say per="flow" or per="partition"'
            )
            raise FlowError(msg)
        followed = time.column
        column = terms.on if named is None else named
        if column is None or column == followed:
            continue
        find_column(f"{_VERB}, {side} stream", column, stream.schema)
        msg = (
            f"{_VERB}: the {side} stream follows {followed!r}, and not {column!r}, so nobody knows when all rows up to "
            f'a {column!r} are there; say .watermark("{column}", …) before, or leave it out'
        )
        raise FlowError(msg)
    assert left.node.time is not None
    return left.node.time


def _read_ages(terms: AsofTerms) -> Interval:
    """Return how far from a row's time that of its version may be."""
    most_us = 0 if terms.allow_exact_matches else -1
    if terms.tolerance is None:
        return Interval(BEGINNING_OF_TIME, most_us)
    least_us = -parse_duration(terms.tolerance, "join_asof's tolerance")
    if least_us > most_us:
        msg = (
            f"{_VERB}: no version is older than a row and at most {terms.tolerance!r} old; give a longer tolerance, "
            "or allow_exact_matches=True"
        )
        raise FlowError(msg)
    return Interval(least_us, most_us)

"""Behind which level of a batch a source is read: rows need not pass through tasks of levels that they are not for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.eventtime.flow.flow_time import rules_of
from anabranch.model import Split
from anabranch.query.nodes import FlowSource, Stateful
from anabranch.query.plan import Plan

Pack = Sequence[tuple[int, int, Split]]
"""What a task reads, as (ordinal, source, split)."""

ALL_FIRST: Mapping[int, int] = {}
"""No source is read behind a level."""


def find_reading_levels(plan: Plan) -> dict[int, int]:
    """Return the sources that only later levels take rows of, each with the level before the first that does."""
    if plan.hops < 2 or _must_read_first(plan):
        return {}
    levels = {}
    for source in plan.sources:
        assert isinstance(source.operation, FlowSource)
        first = min((plan.level_of(head) for head in _find_heads(plan, source.id)), default=1)
        if first > 1:
            levels[source.operation.index] = first - 1
    return levels


def number_packs(levels: Mapping[int, int], packs: Sequence[Pack]) -> dict[int, range]:
    """Return the numbers of the packs that are read behind each level, 0 for before all; packs lie by level."""
    of_packs = [level_of_pack(levels, pack) for pack in packs]
    return {
        level: range(of_packs.index(level), of_packs.index(level) + of_packs.count(level)) for level in set(of_packs)
    }


def level_of_pack(levels: Mapping[int, int], pack: Pack) -> int:
    """Return the level behind which a pack is read."""
    return max((levels.get(source, 0) for _, source, _ in pack), default=0)


def _must_read_first(plan: Plan) -> bool:
    """Say whether some task before all levels has to be all that reads: it holds rows back, or is a slot itself.

    A watermark that may fall silent follows others, of which slots of the first levels have to hear.
    """
    operations = [plan.nodes[head].operation for head in plan.exchanges]
    if any(decided.kind in ("ahead", "global") for decided in plan.exchanges.values()):
        return True
    if any(isinstance(one, Stateful) and one.routing.exchange.hold is not None for one in operations):
        return True
    return any(clock.idle_us is not None for clock in rules_of(plan).clocks.values())


def _find_heads(plan: Plan, node: int) -> set[int]:
    """Return the first nodes behind an exchange that rows of a node come to."""
    heads: set[int] = set()
    for edge in plan.edges[node]:
        heads |= {edge.node} if plan.level_of(edge.node) else _find_heads(plan, edge.node)
    return heads

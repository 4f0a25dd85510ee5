"""Which offsets of which partitions the next batch reads."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from anabranch.connectors.kafka_topics.cluster import Cluster, OutOfReach, TopicFacts, TopicPart
from anabranch.connectors.waits import begin_wait, end_wait
from anabranch.errors import SourceError
from anabranch.model import Admission, PlannedSplits, Split

LOOK_SECONDS = 5.0
"""How often the planner looks for new partitions and for messages that retention took."""
PATIENCE_SECONDS = 15.0
"""How long a topic that is gone or shorter than before may be one whose broker has just come back."""
SPLIT_BYTES = 64 * 1024 * 1024
"""A partition's messages are cut at about this size, for several tasks to read them."""
_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)

logger = logging.getLogger("anabranch")
PartT = TypeVar("PartT", bound=tuple[str, int])


@dataclass(slots=True)
class Position:
    """Where a source stands: the next offset of every partition, as plain data in the split log."""

    next: dict[TopicPart, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    """Topic → the id it had when it was read last."""
    row_bytes: dict[str, float] = field(default_factory=dict)
    """Topic → the size of a message, from a sample of its first ones."""

    def knows(self, topic: str) -> bool:
        """Say whether the topic was read from before."""
        return topic in self.ids

    def forget_offsets(self, topic: str) -> list[tuple[int, int]]:
        """Forget how far a topic was read, and return it: (partition, next offset)."""
        parts = sorted(part for part in self.next if part.topic == topic)
        return [(part.number, self.next.pop(part)) for part in parts]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "topics": {
                topic: {
                    "id": self.ids[topic],
                    "row_bytes": self.row_bytes.get(topic),
                    "next": {
                        str(part.number): offset for part, offset in sorted(self.next.items()) if part.topic == topic
                    },
                }
                for topic in sorted(self.ids)
            }
        }

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> Position:
        """Read what ``to_json`` wrote; None is the very start."""
        position = cls()
        for topic, facts in (data or {}).get("topics", {}).items():
            position.ids[topic] = facts["id"]
            if facts["row_bytes"] is not None:
                position.row_bytes[topic] = facts["row_bytes"]
            for number, offset in facts["next"].items():
                position.next[TopicPart(topic, int(number))] = offset
        return position


@dataclass(frozen=True, slots=True)
class StartAt:
    """Where reading begins: ``earliest``, ``latest``, or ``time`` with milliseconds since 1970."""

    kind: str
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What a planner must know besides the cluster."""

    topics: tuple[str, ...]
    start: StartAt
    admission: Admission
    skips_lost: bool
    patience_seconds: float
    poll_seconds: float


@dataclass(frozen=True, slots=True)
class _Sight:
    """The topics, seen at one moment."""

    topics: Mapping[str, TopicFacts]
    starts: Mapping[TopicPart, int]
    ends: Mapping[TopicPart, int]

    @property
    def parts(self) -> list[TopicPart]:
        return [TopicPart(name, number) for name, facts in sorted(self.topics.items()) for number in facts.partitions]


@dataclass(frozen=True, slots=True)
class _Loss:
    """Messages that are gone, and where reading goes on if that is accepted."""

    text: str
    place: str
    goes_on_at: int = 0


@dataclass(frozen=True, slots=True)
class _Stand:
    """Where reading goes on."""

    state: Position
    sight: _Sight
    problems: list[str]
    is_new: bool
    """Something of it is not in the checkpoint yet."""


class KafkaPlanner:
    """Plans the messages of topics, every offset once; partitions that appear later are read from their beginning.

    Where a partition begins, and where reading goes on behind a loss, is planned at once, if need be with nothing to
    read: it must be in the checkpoint before more messages come.

    While the cluster is out of reach it plans nothing, says so once, and gives up after ``patience_seconds``.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: PlanSettings,
        measure: Callable[[TopicPart, int, int], float],
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._measure = measure
        self._sleep = sleep
        self._monotonic = monotonic
        self._bound: _Sight | None = None
        self._sight: _Sight | None = None
        self._looked_at = -math.inf
        self._asked_at = -math.inf
        self._away_since: float | None = None
        self._told: str | None = None
        self._begins: dict[TopicPart, int] = {}
        self._untold: list[str] = []
        self._limit: int | None = None
        self._left_rows: int | None = None

    def limit_rows(self, rows: int | None) -> None:
        """Let a batch have no more than so many messages, beside the admission."""
        self._limit = rows

    def bound(self) -> None:
        """From now on, plan only the messages that are there now; wait for a cluster that is out of reach."""
        self._bound = self._insist(lambda: self._look(everything=True))

    def more(self, position: dict[str, Any] | None) -> bool:
        """Say whether messages of the bound offsets are still unread after the position."""
        stand = self._insist(lambda: self._stand(position, self._bound or self._look(everything=True)))
        return any(stand.state.next[part] < stand.sight.ends[part] for part in stand.sight.parts)

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> PlannedSplits:
        """Return the next offsets; raise ``SourceError`` for messages that were lost or a cluster that stays away."""
        if self._bound is not None:
            # Whoever reads to a bound ends when nothing is planned: it is no answer to a cluster that is away.
            stand = self._insist(lambda: self._stand_within_bound(position))
        elif not self._is_due():
            return PlannedSplits((), position or {}, rows=0, left_rows=self._left_rows)
        else:
            try:
                stand = self._stand(position, self._look(everything=False))
                self._come_back()
            except OutOfReach as reason:
                self._wait(reason)
                return PlannedSplits((), position or {})
        there = self._count_left(stand)
        splits = self._cut(stand.state, stand.sight)
        self._left_rows = self._count_left(stand)
        if not splits and stand.is_new:
            # An empty range writes down where partitions begin, or where reading went on: what comes while the flow
            # stands still is behind that.
            part = stand.sight.parts[0]
            at, topic_id = stand.state.next[part], stand.state.ids[part.topic]
            splits = [_name_range(part, at, at, topic_id, 1)]
        if not splits:
            # What there is to tell waits for a batch that tells of it.
            return PlannedSplits((), position or {}, rows=0, left_rows=0)
        problems, self._untold = [*self._untold, *stand.problems], []
        return PlannedSplits(
            tuple(splits),
            stand.state.to_json(),
            tuple(problems),
            rows=there - self._left_rows,
            left_rows=self._left_rows,
        )

    def _count_left(self, stand: _Stand) -> int:
        return sum(max(0, stand.sight.ends[part] - stand.state.next[part]) for part in stand.sight.parts)

    def _is_due(self) -> bool:
        """Say whether it is time to ask again: an idle flow asks many times a second."""
        now = self._monotonic()
        pause = self._settings.poll_seconds if self._away_since is None else _PAUSES_SECONDS[2]
        if now - self._asked_at < pause:
            return False
        self._asked_at = now
        return True

    def _look(self, *, everything: bool) -> _Sight:
        now = self._monotonic()
        known = self._sight
        if everything or known is None or now - self._looked_at >= LOOK_SECONDS:
            topics = self._cluster.topics(self._settings.topics)
            missing = [name for name in self._settings.topics if name not in topics]
            if missing:
                text = f"the Kafka topic {missing[0]!r} is gone; nothing of it can be read any more"
                self._be_patient(text)
                raise SourceError(text)
            sight = _Sight(topics, {}, {})
            known = _Sight(topics, self._cluster.starts(sight.parts), {})
            self._looked_at = now
        self._sight = _Sight(known.topics, known.starts, self._cluster.ends(known.parts))
        return self._sight

    def _stand(self, position: dict[str, Any] | None, sight: _Sight) -> _Stand:
        """Return where every partition is to be read from, and what was lost if that is to be skipped."""
        state, known = Position.from_json(position), Position.from_json(position)
        problems = [self._pass_over(loss) for loss in self._forget_remade(state, sight)]
        begins = self._begin([part for part in sight.parts if not known.knows(part.topic)], sight)
        for part in sight.parts:
            wanted = state.next.setdefault(part, begins.get(part, sight.starts[part]))
            loss = None if part in begins else self._find_loss(part, wanted, sight)
            if loss is not None:
                problems.append(self._pass_over(loss))
                state.next[part] = loss.goes_on_at
        state.ids.update({topic: facts.id for topic, facts in sight.topics.items()})
        return _Stand(state, sight, problems, (state.next, state.ids) != (known.next, known.ids))

    def _stand_within_bound(self, position: dict[str, Any] | None) -> _Stand:
        try:
            return self._stand(position, self._bound or self._look(everything=True))
        except OutOfReach:
            # Whether what is missing comes back shows only to those who look again.
            self._bound = self._look(everything=True)
            raise

    def _pass_over(self, loss: _Loss) -> str:
        """Return what to tell of a loss, or raise ``SourceError`` if losses are not to be skipped."""
        if self._settings.skips_lost:
            return f"{loss.text}; went on at {loss.place}"
        msg = (
            f"{loss.text}; restore the topic, or start with on_loss='skip' to go on at {loss.place}, "
            f"or with a new checkpoint"
        )
        raise SourceError(msg)

    def _begin(self, parts: list[TopicPart], sight: _Sight) -> dict[TopicPart, int]:
        """Return where partitions of a topic that was never read begin; decided once, whatever comes meanwhile."""
        undecided = [part for part in parts if part not in self._begins]
        if undecided:
            start = self._settings.start
            if start.kind == "earliest":
                found: Mapping[TopicPart, int] = sight.starts
            elif start.kind == "latest":
                found = sight.ends
            else:
                # Nothing of that time or later yet: it begins with what comes next.
                found = {**sight.ends, **self._cluster.at_time(undecided, start.time_ms)}
            self._begins.update({part: found[part] for part in undecided})
        return {part: self._begins[part] for part in parts}

    def _forget_remade(self, state: Position, sight: _Sight) -> list[_Loss]:
        """Forget the offsets of topics that were deleted and made again: what these hold was never read."""
        losses = []
        for topic, facts in sight.topics.items():
            if state.ids.get(topic, facts.id) == facts.id:
                continue
            read = ", ".join(f"{offset} of partition {number}" for number, offset in state.forget_offsets(topic))
            losses.append(_Loss(f"topic {topic}: it was deleted and made again since offset {read}", "its beginning"))
        return losses

    def _find_loss(self, part: TopicPart, wanted: int, sight: _Sight) -> _Loss | None:
        """Say what was lost between the position and what is there now."""
        start, end = sight.starts[part], sight.ends[part]
        if wanted > end:
            text = f"{part}: the next offset is {wanted}, but the partition ends at {end}: messages were lost"
            self._be_patient(text)
            # What is left was read before.
            return _Loss(text, f"offset {end}", end)
        if wanted < start:
            text = f"{part}: offsets {wanted} to {start - 1} are gone, by retention or by hand"
            return _Loss(text, f"offset {start}", start)
        return None

    def _cut(self, state: Position, sight: _Sight) -> list[Split]:
        waiting = {part: sight.ends[part] - state.next[part] for part in sight.parts}
        waiting = {part: count for part, count in waiting.items() if count > 0}
        for part, count in waiting.items():
            if part.topic not in state.row_bytes:
                state.row_bytes[part.topic] = self._measure(part, state.next[part], state.next[part] + count)
        splits: list[Split] = []
        for part, count in sorted(share_out(waiting, self._most_rows(waiting, state)).items()):
            first = state.next[part]
            state.next[part] = first + count
            splits += _cut_range(part, first, first + count, sight.topics[part.topic].id, state.row_bytes[part.topic])
        return splits

    def _most_rows(self, waiting: Mapping[TopicPart, int], state: Position) -> int | None:
        limits = []
        admission = self._settings.admission.within(self._limit)
        if admission.max_rows is not None:
            limits.append(admission.max_rows)
        if self._settings.admission.max_bytes is not None and waiting:
            row_bytes = max(state.row_bytes[part.topic] for part in waiting)
            limits.append(max(1, int(self._settings.admission.max_bytes / row_bytes)))
        return min(limits) if limits else None

    def _insist(self, ask: Callable[[], Any]) -> Any:
        """Ask until there is an answer."""
        for attempt in range(1_000_000):
            try:
                answer = ask()
                self._come_back()
                return answer
            except OutOfReach as reason:
                self._wait(reason)
                self._sleep(_PAUSES_SECONDS[min(attempt, len(_PAUSES_SECONDS) - 1)])
        raise AssertionError("waited for ever")

    def _wait(self, reason: OutOfReach) -> None:
        """Note that the cluster is out of reach; give up when it was for too long."""
        now = self._monotonic()
        if self._away_since is None:
            self._away_since = now
            self._told = str(reason)
            logger.warning("%s; waiting for up to %.0f s", reason, self._settings.patience_seconds)
            begin_wait(self._place, str(reason))
        elif now - self._away_since > self._settings.patience_seconds:
            msg = (
                f"{reason} (for {now - self._away_since:.0f} s); bring them back and start the flow again, "
                f"or let it wait longer with patience_seconds=…: nothing is lost"
            )
            raise SourceError(msg)

    @property
    def _place(self) -> str:
        return f"Kafka ({', '.join(self._settings.topics)})"

    def _be_patient(self, text: str) -> None:
        """Raise ``OutOfReach``, unless it has been so for some time: what a broker says as it comes back may be odd."""
        if self._away_since is None or self._monotonic() - self._away_since <= PATIENCE_SECONDS:
            raise OutOfReach(text)

    def _come_back(self) -> None:
        if self._away_since is None:
            return
        end_wait(self._place)
        seconds = self._monotonic() - self._away_since
        told, self._away_since, self._told = self._told, None, None
        logger.warning("Kafka answers again after %.0f s", seconds)
        self._untold.append(f"{told}; it answered again after {seconds:.0f} s")


def _cut_range(part: TopicPart, first: int, last: int, topic_id: str, row_bytes: float) -> list[Split]:
    rows = max(1, int(SPLIT_BYTES / row_bytes))
    pieces = max(1, math.ceil((last - first) / rows))
    edges = [first + (last - first) * piece // pieces for piece in range(pieces + 1)]
    return [_name_range(part, start, end, topic_id, row_bytes) for start, end in pairwise(edges) if end > start]


def _name_range(part: TopicPart, first: int, last: int, topic_id: str, row_bytes: float) -> Split:
    return {
        "topic": part.topic,
        "topic_id": topic_id,
        "number": part.number,
        "from": first,
        "to": last,
        "bytes": max(1, int((last - first) * row_bytes)),
        "partition": f"{part.topic}/{part.number}",
    }


def share_out(waiting: Mapping[PartT, int], most: int | None) -> dict[PartT, int]:
    """Return how many messages each partition gives, at most ``most`` together, as evenly as they can.

    What small partitions leave goes to the others. The remainder of a division goes to those that have the most
    waiting, so that none is passed over for ever.
    """
    if most is None or sum(waiting.values()) <= most:
        return dict(waiting)
    granted: dict[PartT, int] = {}
    left = most
    by_size = sorted(waiting, key=lambda part: (waiting[part], part))
    for place, part in enumerate(by_size):
        share = left // (len(by_size) - place)
        granted[part] = min(waiting[part], share)
        left -= granted[part]
    for part in sorted(waiting, key=lambda part: (-waiting[part], part)):
        extra = min(left, waiting[part] - granted[part])
        granted[part] += extra
        left -= extra
    return granted

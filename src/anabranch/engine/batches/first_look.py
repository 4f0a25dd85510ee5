"""A first look at a batch's keys, by the driver, for strategies that must know keys before a row is routed."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from anabranch.engine.batches.batch_routes import first_routes
from anabranch.engine.batches.jobs import BatchInput, JobFailed
from anabranch.engine.batches.outer_rows import decode_rows
from anabranch.engine.tasks.pipeline import Pipeline
from anabranch.engine.tasks.read_task import name_partition, outcomes_of
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram
from anabranch.engine.tasks.task_errors import StepFailed
from anabranch.errors import AnabranchError
from anabranch.model import HASH, Split
from anabranch.model.balance import AUTO
from anabranch.query.nodes import FlowSource, Stateful
from anabranch.query.plan import name_of
from anabranch.routing.keys import KeySample
from anabranch.routing.phases import FlowRoutes, PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import is_sticky, looks_at_keys, strategy_over
from anabranch.routing.strategies.coordinated import MOST_DECIDED_KEYS
from anabranch.state.manifest import LevelState, Manifest

MOST_ROWS, MOST_SPLITS, MOST_BLOCKS = 50_000, 16, 2
"""What is looked at of a source: rows in all, of so many splits, or of so many blocks of Spark's own rows."""
MOST_SECONDS = 2.0
"""No split is begun later: the batch waits for the look."""

logger = logging.getLogger("anabranch")


class KeyLook(Pipeline):
    """A read task's steps, up to the first operators with state, whose keys it keeps; nothing leaves it."""

    def __init__(self, program: FlowProgram, spec: BatchSpec) -> None:
        super().__init__(program, spec, 0, 0)
        # What a reader would hold back counts as well.
        self._buffers = None
        self._seen: dict[int, list[pl.DataFrame]] = {}

    def samples(self) -> dict[int, KeySample]:
        """Return the keys of each operator, each with as many rows as its slot would get of those looked at."""
        for edge in list(self._waiting):
            self._send_waiting(edge)
        found = {}
        for head, frames in self._seen.items():
            rows = pl.concat(frames)
            keys = rows.columns[1:]
            values = rows.get_column(keys[0]) if len(keys) == 1 else None
            found[head] = KeySample.gather(rows.get_column(HASH).to_numpy(), values=values)
        return found

    def _send(self, head: int, frame: pl.DataFrame, combined: bool, held: bool = False, number: int = 0) -> None:
        operation = self._plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        self._seen.setdefault(head, []).append(frame.select(HASH, *operation.spec.keys))


@dataclass(slots=True)
class FirstLook:
    """Lets named strategies decide before the first row of an operator is routed.

    What a look found is kept in the checkpoint until its batch is committed: a look is cut short by the clock, and
    the same batch, tried again, must go the same ways.
    """

    program: FlowProgram
    buckets: int
    clock: Callable[[], float] = time.monotonic
    _kept: set[int] = field(default_factory=set)

    def route(
        self,
        given: BatchInput,
        before: Manifest | None,
        routes: FlowRoutes,
        make_spec: Callable[[FlowRoutes], BatchSpec],
    ) -> dict[int, PhasedRoutes]:
        """Return the routes of a batch: as they are, or, for operators without state, as their strategy decides."""
        levels = {level.operator: level for level in before.levels} if before is not None else {}
        waiting = {
            head: name_of(self.program.plan, head)
            for head, phases in routes.items()
            if self._waits(head, phases, levels.get(name_of(self.program.plan, head)))
        }
        if not waiting or not (given.packs or given.outer is not None):
            return dict(routes)
        decided = self._load(given.batch, waiting, routes)
        if decided is None:
            samples = self._look(given, make_spec(routes))
            decided = {head: self._decide(head, samples[head]) for head in waiting if head in samples}
            self._store(given.batch, {waiting[head]: found for head, found in decided.items()})
        return {**routes, **{head: PhasedRoutes(found) for head, found in decided.items()}}

    def forget(self, batch: int) -> None:
        """Remove what was kept for a batch that is committed now."""
        if batch in self._kept:
            self._kept.discard(batch)
            self.program.store.delete([look_file(batch)])

    # -- inside ----------------------------------------------------------------------------------------------------

    def _waits(self, head: int, phases: PhasedRoutes, level: LevelState | None) -> bool:
        """Say whether an operator's strategy has not decided yet, and still may without moving any state."""
        plan = self.program.plan
        operation = plan.nodes[head].operation
        if not isinstance(operation, Stateful) or operation.routing.strategy == AUTO or plan.level_of(head) != 1:
            return False
        if plan.exchanges[head].kind == "ahead" or phases.earlier is not None:
            return False
        has_state = level is not None and any(level.refs())
        undecided = phases.routes.by != str(operation.routing.named)
        return undecided and not has_state and looks_at_keys(strategy_over(operation.routing, phases.slots))

    def _decide(self, head: int, sample: KeySample) -> Routes:
        operation = self.program.plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        if is_sticky(strategy_over(operation.routing, 1)):
            sample = sample.hottest(MOST_DECIDED_KEYS)
        routes = first_routes(self.program.plan, head, self.buckets, sample)
        logger.info("%s: %s decides by %d keys of a first look", operation.name, routes.by, len(sample))
        return routes

    def _look(self, given: BatchInput, spec: BatchSpec) -> dict[int, KeySample]:
        look = KeyLook(self.program, spec)
        nodes = {
            node.operation.index: node.id
            for node in self.program.plan.sources
            if isinstance(node.operation, FlowSource)
        }
        try:
            with given.waits.told():
                for source, ordinal, partition, rows in self._rows(given):
                    look.read_from(name_partition(source, partition))
                    look.push(nodes[source], rows, ordinal)
            return look.samples()
        except (AnabranchError, StepFailed, JobFailed, OSError, pl.exceptions.PolarsError) as error:
            # What is wrong will be met by the batch itself, which says so with all that belongs to it.
            logger.info("the first look at keys failed, so they go by their hash at first: %s", error)
            return {}

    def _rows(self, given: BatchInput) -> Iterator[tuple[int, int, str, pl.DataFrame]]:
        """Yield some rows of some splits: of each its source, ordinal and partition."""
        begun = self.clock()
        chosen = choose_splits(given.packs)
        for number, (ordinal, source, split) in enumerate(chosen):
            if number and self.clock() - begun > MOST_SECONDS:
                return
            wanted = MOST_ROWS // len(chosen)
            for outcome in outcomes_of(self.program.sources[source], split):
                frame = outcome.frame
                # Rows that lie side by side may be of one key: every n-th says more than the first ones.
                some = frame.gather_every(max(1, frame.height // max(wanted, 1))).head(wanted)
                yield source, ordinal, split.get("partition", ""), some
                wanted -= some.height
                if wanted <= 0:
                    break
        if given.outer is not None:
            for source, block in given.outer.take_blocks(MOST_BLOCKS):
                schema = self.program.sources[source].schema
                yield source, 0, "", decode_rows(block, schema).head(MOST_ROWS)

    def _load(self, batch: int, waiting: Mapping[int, str], routes: FlowRoutes) -> dict[int, Routes] | None:
        """Return what an earlier try of the batch decided; None if there was none, or if the flow has changed since."""
        try:
            kept: dict[str, Any] = json.loads(self.program.store.read(look_file(batch)))
            found = {head: Routes.from_json(kept[name]) for head, name in waiting.items() if name in kept}
        except (OSError, ValueError, KeyError, TypeError, AnabranchError):
            return None
        for head, decided in found.items():
            operation = self.program.plan.nodes[head].operation
            assert isinstance(operation, Stateful)
            if decided.by != str(operation.routing.named) or decided.slots != routes[head].slots:
                return None
        self._kept.add(batch)
        return found

    def _store(self, batch: int, decided: Mapping[str, Routes]) -> None:
        if decided:
            content = {name: routes.to_json() for name, routes in decided.items()}
            self.program.store.write(look_file(batch), json.dumps(content).encode())
            self._kept.add(batch)


def look_file(batch: int) -> str:
    """Return where the outcome of a look is kept until its batch is committed."""
    return f"looks/{batch:012d}.json"


def choose_splits(packs: tuple[list[tuple[int, int, Split]], ...]) -> list[tuple[int, int, Split]]:
    """Return splits from all over a batch, in an order in which the first few are from all over it, too."""
    every = sorted((part for pack in packs for part in pack), key=lambda part: (part[1], part[0]))
    if len(every) > MOST_SPLITS:
        every = [every[number * len(every) // MOST_SPLITS] for number in range(MOST_SPLITS)]
    bits = max(len(every) - 1, 1).bit_length()
    return [every[number] for number in sorted(range(len(every)), key=lambda n: f"{n:0{bits}b}"[::-1])]

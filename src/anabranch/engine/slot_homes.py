"""The executors of a run, looked at once a batch, and where its slots are at home."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from anabranch.control.decisions import Decision, HomeChange
from anabranch.control.homes import change_homes, find_usable, settle_homes
from anabranch.errors import AnabranchError, EngineError
from anabranch.model.cluster import ChoosesHomes, Cluster, Executor, Executors, Home, KeptHomes, SettledHomes, SlotId
from anabranch.placement.even_homes import spread_evenly

logger = logging.getLogger("anabranch")


class OneProcess:
    """The only executor of a flow whose tasks run in the process of its driver, as in Spark's local mode."""

    def __init__(self, cores: int) -> None:
        self._executor = Executor("driver", "localhost", cores)

    def describe(self) -> Cluster:
        """Return what this is: nothing can be asked of it."""
        why = "driver and executor are one process; run the flow on a cluster: standalone, YARN or Kubernetes"
        return Cluster("one process", pins_slots=False, obstacles=(why,))

    def list(self) -> tuple[Executor, ...]:
        """Return the driver."""
        return (self._executor,)

    def request(self, total: int) -> None:
        """Refuse."""
        refuse_obstacles(self.describe())

    def decommission(self, ids: Sequence[str]) -> None:
        """Refuse."""
        refuse_obstacles(self.describe())

    def kill(self, ids: Sequence[str]) -> None:
        """Refuse."""
        refuse_obstacles(self.describe())


def refuse_obstacles(cluster: Cluster) -> None:
    """Raise ``EngineError`` if executors can be neither added nor released, with every reason and what to change."""
    if cluster.obstacles:
        msg = f"executors can be neither added nor released: {'; '.join(cluster.obstacles)}"
        raise EngineError(msg)


class SlotHomes:
    """Where the slots of a run are at home: settled as a batch begins, kept in its manifest."""

    def __init__(self, executors: Executors, anchors: bool | None, choose: ChoosesHomes = spread_evenly) -> None:
        """``anchors`` says whether slots are pinned at all; None: where there are several executors."""
        self._cluster = executors
        described = executors.describe()
        self._application = described.application
        self._pins_slots = described.pins_slots and anchors is not False
        self._pins_to_one = anchors is True
        self._choose = choose
        self._loads: Mapping[SlotId, float] = {}
        self.executors: tuple[Executor, ...] = ()
        """As they were when somebody last looked."""
        self.settled = SettledHomes()
        """Of the batch that runs."""
        self.kept = KeptHomes()
        """Of the next one, for the manifest."""

    def look(self) -> None:
        """See which executors there are."""
        self.executors = self._cluster.list()

    @property
    def cores(self) -> int:
        """Of all executors that tasks should go to; 0 if none has come yet."""
        return sum(executor.cores for executor in find_usable(self.executors))

    def begin(self, slots: Sequence[int], before: KeptHomes) -> None:
        """Settle where the slots of a batch run; given is how many each level has, and what the last manifest says."""
        if not self._pins_slots:
            return
        every = [(level, slot) for level, count in enumerate(slots, start=1) for slot in range(count)]
        self.settled = settle_homes(every, self.executors, before, self._application, self._loads, self._choose)

    @property
    def homes(self) -> Mapping[SlotId, Home]:
        """What the batch's job is told: nothing if there is but one executor to choose from."""
        kept = self.settled.kept
        return kept.homes if self._pins_to_one or len(find_usable(self.executors)) > 1 else {}

    def end(self, loads: Mapping[SlotId, float], changes: Mapping[SlotId, HomeChange]) -> None:
        """Find out what the manifest says for the next batch; given is what slots did in this one, and what changes."""
        self._loads = loads
        self.kept = change_homes(self.settled.kept, changes)

    def carry_out(self, decision: Decision) -> str | None:
        """Ask for executors, or let some go, once the batch is committed; return why that cannot be."""
        change = decision.executors
        if change is None:
            return None
        try:
            if change.provision:
                staying = [executor for executor in self.executors if not executor.is_leaving]
                self._cluster.request(len(staying) + change.provision)
            if change.release:
                self._cluster.decommission(change.release)
        except AnabranchError as error:
            # The flow goes on as it is: whoever decided finds the same executors in the next batch.
            logger.warning("batch %d: %s", decision.batch, error)
            return str(error)
        return None

"""Which hosts run the flow, which cannot be reached, are coming or are to go; and what each was told to work on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.model.cluster import Executor, Homes, SlotId
from anabranch.sim.cluster import Host
from anabranch.sim.failures import HostEvent


class Roster:
    """Hosts from moment to moment. Events say when they fail, are cut off and return; policies ask and release."""

    def __init__(self, hosts: Sequence[Host], running: int, events: Iterable[HostEvent]) -> None:
        """Begin with the first so many of the hosts."""
        self.all = {host.name: host for host in hosts}
        self.running = [host.name for host in hosts[:running]]
        self.leaving: tuple[str, ...] = ()
        """Hosts that get no slots: they are to go."""
        self.going: set[str] = set()
        """Those of them that have no slots any more, and go once the copies that they hold are elsewhere."""
        self._events = sorted(events)
        self._away: dict[str, float] = {}
        """Hosts that cannot be reached, and since when."""
        self._coming: list[tuple[float, str]] = []

    @property
    def reachable(self) -> tuple[str, ...]:
        """The hosts that run and can be reached."""
        return tuple(name for name in self.running if name not in self._away)

    @property
    def staying(self) -> tuple[str, ...]:
        """Those of them that are not to go."""
        return tuple(name for name in self.reachable if name not in self.leaving and name not in self.going)

    @property
    def coming(self) -> tuple[str, ...]:
        """Hosts that were asked for and are not there yet."""
        return tuple(name for _, name in self._coming)

    @property
    def spare(self) -> tuple[str, ...]:
        """Hosts that could be asked for."""
        taken = {*self.running, *self._away, *self.coming}
        return tuple(name for name in self.all if name not in taken)

    def list_executors(self) -> list[Executor]:
        """Return the hosts that are reached, as policies know them."""
        return [self.all[name].as_executor(is_leaving=name in self.leaving) for name in self.reachable]

    # -- what happens ------------------------------------------------------------------------------------------------

    def apply_events(self, until: float) -> list[str]:
        """Let happen what is due; return the hosts that failed, with their memory."""
        failed = []
        while self._events and self._events[0].at_seconds <= until:
            event = self._events.pop(0)
            if event.change == "return":
                self._away.pop(event.host, None)
            else:
                self._away.setdefault(event.host, event.at_seconds)
                if event.change == "fail":
                    failed.append(event.host)
        for moment, name in [one for one in self._coming if one[0] <= until]:
            self._coming.remove((moment, name))
            self.running.append(name)
        return failed

    def find_next_loss(self, until: float, serving: Collection[str]) -> float | None:
        """Return when the first of these hosts fails or is cut off before a moment."""
        there = {host for host in serving if host not in self._away}
        losses = (event for event in self._events if event.at_seconds <= until and event.change != "return")
        return next((event.at_seconds for event in losses if event.host in there), None)

    def find_last_loss(self, serving: Collection[str]) -> float | None:
        """Return since when the last of these hosts cannot be reached; None if all can."""
        return max((self._away[host] for host in serving if host in self._away), default=None)

    def list_losses(self, until: float) -> list[HostEvent]:
        """Return what hosts are lost before a moment."""
        return [event for event in self._events if event.at_seconds < until and event.change != "return"]

    def find_next_news(self) -> float | None:
        """Return when something happens next; None if nothing ever does."""
        moments = [event.at_seconds for event in self._events] + [moment for moment, _ in self._coming]
        return min(moments, default=None)

    # -- what policies want ------------------------------------------------------------------------------------------

    def ask_for(self, names: Iterable[str], ready_at: float) -> None:
        """Ask for hosts that are not there."""
        self._coming += [(ready_at, name) for name in names]

    def keep(self, names: Collection[str]) -> None:
        """Let hosts stay that were to go."""
        self.leaving = tuple(name for name in self.leaving if name not in names)
        self.going -= set(names)

    def release(self, name: str) -> None:
        """Let a host go."""
        self.keep((name,))
        self.running.remove(name)

    def cores_of(self, names: Iterable[str]) -> Mapping[str, int]:
        """Return the cores of hosts."""
        return {name: self.all[name].cores for name in names}


@dataclass(slots=True)
class Owners:
    """Which slots hosts work on as they know it themselves: one that is cut off goes on with what it was told last."""

    told: dict[str, tuple[int, tuple[SlotId, ...]]] = field(default_factory=dict)
    """What each host was told to work on, and for which attempt at a batch."""

    def tell(self, attempt: int, homes: Homes, reachable: Collection[str]) -> None:
        """Tell all hosts that are reached what an attempt wants of them; others go on with what they have."""
        slots: defaultdict[str, list[SlotId]] = defaultdict(list)
        for slot, home in homes.items():
            slots[home].append(slot)
        self.told.update({host: (attempt, tuple(slots[host])) for host in reachable})

    def forget(self, host: str) -> None:
        """A host failed: it knows nothing any more."""
        self.told.pop(host, None)

    def collect(self, attempt: int, reachable: Collection[str]) -> tuple[dict[SlotId, tuple[str, ...]], int]:
        """Return by slot the hosts that hand in its state, and how many states are refused: of another attempt."""
        writers: defaultdict[SlotId, tuple[str, ...]] = defaultdict(tuple)
        refused = 0
        for host in reachable:
            meant, slots = self.told.get(host, (attempt, ()))
            if meant != attempt:
                refused += len(slots)
                continue
            for slot in slots:
                writers[slot] += (host,)
        return dict(writers), refused

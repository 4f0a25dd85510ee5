"""Which hosts a flow keeps awake: windows of its load become moves of slots, and hosts that go or come back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch.control.decisions import ExecutorChange, HomeChange
from anabranch.control.next_change import NextChange
from anabranch.model.cluster import Executor, Home, KeptHomes, SlotId
from anabranch.model.energy import Energy
from anabranch.model.events import Sender
from anabranch.placement.elasticity import ClusterReading
from anabranch.placement.energy import (
    Board,
    EnergyDecision,
    EnergyPlan,
    FlowLoad,
    GovernorState,
    Host,
    WindowLoad,
    WindowReading,
    decide_energy,
    find_policy,
)

_SOON_SECONDS = 1.0
SENDER: Sender = "energy"


@dataclass(frozen=True, slots=True)
class _Asleep:
    """A host that was let go, and what comes back with it."""

    host: Host
    executors: int


@dataclass(frozen=True, slots=True)
class _Awaited:
    """Executors that were asked for."""

    total: int
    since: float


@dataclass(frozen=True, slots=True)
class _Going:
    """Executors that slots are leaving, and up to which rate of rows they may go."""

    executors: tuple[str, ...]
    most_rows_per_second: float
    reason: str


class EnergyUse:
    """Follows the load of a flow window by window. What it knows ends with the run: the next one begins anew.

    Hosts go in two steps: slots leave them at one boundary, their executors are released at the next, unless load has
    risen meanwhile, or as soon as nobody waits any more for what they hold. Hosts come back by asking for as many
    executors as went with them; slots follow those that come.
    """

    def __init__(self, settings: Energy, trigger_seconds: float, min_executors: int = 1) -> None:
        """``trigger_seconds`` are those from batch to batch, 0 if each begins when the one before is over."""
        self._settings = settings
        self._trigger_seconds = trigger_seconds
        self._min_executors = min_executors
        self._policy = find_policy(settings.policy)
        self._state = GovernorState()
        self._latest: EnergyDecision | None = None
        self._expected: dict[str, float | None] = {}
        self._window = WindowLoad()
        self._began: float | None = None
        self._placed: object = None
        self._places: dict[SlotId, str] = {}
        self._fewest = settings.min_hosts
        self._there: frozenset[str] = frozenset()
        self._most_executors = 0
        self._asleep: dict[str, _Asleep] = {}
        self._awaited: _Awaited | None = None
        self._going: _Going | None = None
        self._change = NextChange()
        self._homes: dict[SlotId, HomeChange] = {}

    # -- what is learned -------------------------------------------------------------------------------------------

    def see(self, reading: ClusterReading, kept: KeptHomes, wanted: int | None = None) -> None:
        """Learn what a batch did, whose slots had these homes, and at a window's end decide what it changes.

        ``wanted``: how many executors somebody else has asked for.
        """
        going = self._going.executors if self._going is not None else ()
        # Executors are listed as a batch begins: those that its decision lets slots leave stand there as before.
        staying = [one for one in reading.executors if not one.is_leaving and one.id not in going]
        self._note_hosts(staying, reading.now_seconds)
        if self._going is not None and not self._change.is_due:
            self._end_going(self._going, reading, staying)
            return
        if not self._gather(reading, staying, kept):
            return
        load = self._window.finish(reading.now_seconds - self._began, self._trigger_seconds)  # type: ignore[operator]
        mean_seconds = self._window.batch_seconds / self._window.batches
        # Slots have homes; readers, and tasks in which parts of keys meet, ran where Spark put them.
        homes = {slot: kept.homes[slot].host if slot in kept.homes else self._places[slot] for slot in load.slots}
        self._begin_window(reading.now_seconds)
        if any(not one.is_warm for one in staying) or (wanted or 0) > len(staying):
            return
        if load.slots and set(homes.values()) <= self._there:
            fitted = calibrate(load, mean_seconds, self._list_hosts(staying), homes)
            self._decide(fitted, homes, reading.now_seconds, staying, kept)

    def refuse(self) -> None:
        """Learn that the last change could not be had: the next window decides anew."""
        self._awaited = self._going = None

    def take_change(self) -> ExecutorChange | None:
        """Return what is to change about executors, once."""
        return self._change.take()

    def take_homes(self) -> dict[SlotId, HomeChange]:
        """Return which slots get other homes, once."""
        homes, self._homes = self._homes, {}
        return homes

    @property
    def is_changing(self) -> bool:
        """Whether something is decided that is not carried out yet."""
        return bool(self._homes) or self._change.is_due or self._going is not None or self._awaited is not None

    @property
    def idle_seconds(self) -> float | None:
        """After so long without rows a batch is wanted all the same; None if nothing can be decided in it."""
        if self._change.is_due or self._going is not None:
            return _SOON_SECONDS
        return self._settings.window_seconds if len(self._there) > self._fewest else None

    def show(self) -> dict[str, Any]:
        """Return what people are shown, as plain JSON data."""
        shown: dict[str, Any] = {
            "policy": self._policy.name,
            "hosts": len(self._there),
            "asleep": len(self._asleep),
            "bound_seconds": self._settings.latency_seconds,
            "changes": self._state.changes,
        }
        return shown | self._expected | ({} if self._latest is None else {"reason": self._latest.reason})

    # -- inside ----------------------------------------------------------------------------------------------------

    def _note_hosts(self, staying: Sequence[Executor], now: float) -> None:
        """See who came, under whatever name: some clusters call every host that comes back another."""
        before, self._there = self._there, frozenset(one.host for one in staying)
        self._most_executors = max(self._most_executors, len(staying))
        if len(staying) == self._most_executors:
            # All are back, be it on fewer hosts than before.
            self._asleep.clear()
        for host in sorted(self._there - before):
            stranger = next(iter(self._asleep), "") if self._awaited is not None else ""
            self._asleep.pop(host if host in self._asleep else stranger, None)
        awaited = self._awaited
        if awaited is not None and not self._change.is_due:
            is_overdue = now - awaited.since >= self._settings.restart_seconds
            if is_overdue or sum(one.is_usable for one in staying) >= awaited.total:
                self._awaited = None

    def _end_going(self, going: _Going, reading: ClusterReading, staying: Sequence[Executor]) -> None:
        """Let executors go that have no slots any more, or keep them if load has come back since."""
        self._going = None
        self._begin_window(reading.now_seconds)
        present = [one for one in reading.executors if one.id in going.executors]
        if not present:
            return
        ids = tuple(one.id for one in present)
        if reading.offered_rows_per_second > going.most_rows_per_second:
            rate = f"{reading.offered_rows_per_second:,.0f} rows/s come, more than {going.most_rows_per_second:,.0f}"
            reason = f"{rate}: hosts that were to go are needed"
            self._change.put(ExecutorChange(keep=ids, reason=reason, sender=SENDER))
            return
        if reading.wait.executors.intersection(ids):
            self._going = going
            self._change.put(ExecutorChange(hold=ids, reason=reading.wait.reason, sender=SENDER))
            return
        kept_hosts = {one.host for one in staying}
        for host in sorted({one.host for one in present} - kept_hosts):
            own = [one for one in present if one.host == host]
            self._asleep[host] = _Asleep(self._make_host(host, own), len(own))
        reason = "; ".join(filter(None, (f"their slots have left: {going.reason}", reading.wait.reason)))
        self._change.put(ExecutorChange(release=ids, reason=reason, sender=SENDER))

    def _gather(self, reading: ClusterReading, staying: Iterable[Executor], kept: KeptHomes) -> bool:
        """Take a batch into the window; return whether that is over. It begins anew when slots or executors change."""
        placed = (kept.executors, frozenset(one.id for one in staying if one.is_usable))
        if self._began is None or placed != self._placed or self.is_changing:
            self._placed = placed
            self._begin_window(reading.now_seconds)
            return False
        self._window.add(reading.measures, rows=reading.rows, batch_seconds=reading.batch_seconds)
        host_of = {one.id: one.host for one in reading.executors}
        self._places.update((measure.id, host_of.get(measure.executor, measure.host)) for measure in reading.measures)
        return reading.now_seconds - self._began >= self._settings.window_seconds

    def _begin_window(self, now: float) -> None:
        self._window, self._began, self._places = WindowLoad(), now, {}

    def _make_host(self, host: str, executors: Iterable[Executor]) -> Host:
        own = [one for one in executors if one.host == host]
        memory = sum(one.memory_bytes for one in own)
        return Host(host, sum(one.cores for one in own), memory, self._settings.bandwidth)

    def _list_hosts(self, executors: Sequence[Executor]) -> list[Host]:
        return [self._make_host(host, executors) for host in sorted({one.host for one in executors})]

    def _decide(
        self,
        load: FlowLoad,
        homes: Mapping[SlotId, str],
        now: float,
        staying: Sequence[Executor],
        kept: KeptHomes,
    ) -> None:
        awake = self._list_hosts(staying)
        board = Board(awake, load, homes)
        everyone = (*awake, *(one.host for one in self._asleep.values()))
        reading = WindowReading(now, board, everyone, self._there, is_changing=self.is_changing)
        most_executors = max(Counter(one.host for one in staying).values())
        self._fewest = max(self._settings.min_hosts, math.ceil(self._min_executors / most_executors))
        before, settings = self._state, replace(self._settings, min_hosts=self._fewest)
        decision = decide_energy(self._policy, settings, before, reading)
        self._state, self._latest = decision.state, decision
        latency = board.latency_seconds()
        self._expected = {
            "utilisation": round(float(board.cpu_shares().mean()), 4),
            "latency_seconds": round(latency, 3) if math.isfinite(latency) else None,
        }
        if decision.action == "wake":
            self._wake(decision.plan, staying, now)
        elif decision.action in ("release", "balance"):
            self._move(decision, load, staying, kept)
            if not self.is_changing:
                # What people pinned is in the way, and will be until they or the load change.
                self._state = replace(before, low_windows=0, in_vain_at_rows=load.rows)

    def _wake(self, plan: EnergyPlan, staying: Sequence[Executor], now: float) -> None:
        woken = plan.awake - self._there
        more = min(sum(self._asleep[host].executors for host in sorted(woken)), self._most_executors - len(staying))
        self._awaited = _Awaited(len(staying) + more, now)
        reason = f"{plan.reason}: {len(woken)} come back"
        self._change.put(ExecutorChange(more, reason=reason, total=len(staying) + more, sender=SENDER))

    def _move(self, decision: EnergyDecision, load: FlowLoad, staying: Sequence[Executor], kept: KeptHomes) -> None:
        # What people pinned stays, and so does its host.
        pinned = {kept.homes[slot].host for slot in kept.pins if slot in kept.homes}
        stays = decision.plan.awake | pinned
        going = tuple(one.id for one in staying if one.host not in stays)
        wanted = {
            slot: host
            for slot, host in decision.plan.homes.items()
            if slot in kept.homes and slot not in kept.pins and host != kept.homes[slot].host
        }
        usable = [one for one in staying if one.is_usable and one.host in stays]
        self._homes = choose_executors(wanted, usable, kept.homes, decision.plan.reason)
        if decision.action != "release" or not going:
            return
        rate = (1 + self._settings.headroom) * load.rows / load.seconds
        self._going = _Going(going, max(rate, 1.0), decision.reason)
        self._change.put(ExecutorChange(offload=going, reason=decision.reason, sender=SENDER))


def calibrate(load: FlowLoad, batch_seconds: float, hosts: Sequence[Host], homes: Mapping[SlotId, str]) -> FlowLoad:
    """Return the load with what a batch took beside what its slots did, the same for each level."""
    explained = Board(hosts, load, homes).batch_seconds()
    return replace(load, level_seconds=max(0.0, batch_seconds - explained) / load.levels)


def choose_executors(
    wanted: Mapping[SlotId, str], executors: Sequence[Executor], before: Mapping[SlotId, Home], reason: str
) -> dict[SlotId, HomeChange]:
    """Return homes on the executors of the hosts that slots go to: of each, the one with the fewest of their level."""
    of_level = Counter((level, home.executor) for (level, slot), home in before.items() if (level, slot) not in wanted)
    changes = {}
    for (level, slot), host in sorted(wanted.items()):
        own = [(of_level[level, one.id], place, one) for place, one in enumerate(executors) if one.host == host]
        if not own:
            continue
        _, _, chosen = min(own, key=lambda candidate: candidate[:2])
        of_level[level, chosen.id] += 1
        why = f"from {before[level, slot].host} to {host}, executor {chosen.id}: {reason}"
        changes[level, slot] = HomeChange(chosen.id, host, why, SENDER)
    return changes

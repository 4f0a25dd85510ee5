"""Where the slots of a batch are at home: what the manifest says, who is there, and what people want."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from anabranch.control.decisions import HomeChange
from anabranch.control.manual_overrides import CommandRefused
from anabranch.model.cluster import ChoosesHomes, Executor, Home, Homes, KeptHomes, Pin, SettledHomes, SlotId, SlotLoads

_SLOTS_TOLD = 8


def find_usable(executors: Sequence[Executor]) -> tuple[Executor, ...]:
    """Return the executors that slots may be sent to; if none is warm, all that are not leaving."""
    usable = tuple(executor for executor in executors if executor.is_usable)
    return usable or tuple(executor for executor in executors if not executor.is_leaving)


def settle_homes(
    slots: Sequence[SlotId],
    executors: Sequence[Executor],
    before: KeptHomes,
    application: str,
    loads: SlotLoads,
    choose: ChoosesHomes,
) -> SettledHomes:
    """Return a home for each slot; none if there is no executor.

    Homes of an application that is over become those of the same host. What people want comes first, as long as it
    can be had.
    """
    usable = {executor.id: executor for executor in find_usable(executors)}
    if not usable:
        return SettledHomes(KeptHomes(application), {})
    wanted = before if before.application == application else _follow_hosts(before, usable, application)
    pins = {slot: pin for slot, pin in wanted.pins.items() if slot in slots and any(map(pin.admits, usable.values()))}
    there = {slot: id for slot, id in wanted.executors.items() if slot in slots and id in usable}
    pinned = _place_pinned(pins, there, usable)
    free = [slot for slot in slots if slot not in pinned]
    choice = choose(free, tuple(usable.values()), loads, there | pinned)
    chosen = {slot: usable[id] for slot, id in (dict(choice.homes) | pinned).items() if slot in slots and id in usable}
    homes = {slot: Home(executor.id, executor.host) for slot, executor in sorted(chosen.items())}
    changes: defaultdict[tuple[int, str], dict[SlotId, Home]] = defaultdict(dict)
    for slot, home in homes.items():
        if before.homes.get(slot) != home or before.application != application:
            why = _explain(slot, before, executors, application, choice.reason, slot in pins)
            changes[slot[0], why][slot] = home
    moved_bytes = {about: _count_moved(before, moved, loads) for about, moved in changes.items()}
    return SettledHomes(KeptHomes(application, homes, pins), dict(changes), moved_bytes)


def count_moved_bytes(changes: Mapping[SlotId, HomeChange], kept: KeptHomes, loads: SlotLoads) -> dict[SlotId, int]:
    """Return by slot the state that changes let go elsewhere; where only a host is wanted, that is not known yet."""
    wanted = {slot: Home(one.executor, one.host) for slot, one in changes.items() if one.executor is not None}
    return {slot: _count_moved(kept, {slot: home}, loads) for slot, home in wanted.items()}


def change_homes(kept: KeptHomes, changes: Mapping[SlotId, HomeChange]) -> KeptHomes:
    """Return the homes of the next batch, as far as they can be told at the end of this one."""
    homes, pins = dict(kept.homes), dict(kept.pins)
    for slot, change in changes.items():
        pins.pop(slot, None)
        if change.is_pinned:
            pins[slot] = Pin(change.executor, change.host)
        if change.executor is not None:
            homes[slot] = Home(change.executor, change.host)
    return replace(kept, homes=homes, pins=pins)


def find_home_change(place: str | None, executors: Sequence[Executor]) -> HomeChange:
    """Return what people want of a slot's home: an executor or a host, or, for None, whatever the policy chooses.

    Raises ``CommandRefused`` if there is no such executor or host, or slots cannot be sent there.
    """
    if place is None:
        return HomeChange(None, "", "its home is the policy's to choose", "ctl")
    found = next((executor for executor in executors if executor.id == place), None)
    if found is not None:
        _refuse_unusable(found)
        return HomeChange(found.id, found.host, f"is at home on executor {found.id} on {found.host}", "ctl", True)
    of_host = [executor for executor in executors if executor.host == place]
    if not of_host:
        known = ", ".join(f"{executor.id} on {executor.host}" for executor in executors) or "none"
        msg = f"there is no executor and no host {place!r}; the executors are {known}"
        raise CommandRefused(msg)
    if not any(executor.is_usable for executor in of_host):
        _refuse_unusable(of_host[0])
    return HomeChange(None, place, f"is at home on host {place}", "ctl", True)


def name_homes(homes: Mapping[SlotId, Home]) -> str:
    """Return a few homes in words, and how many there are besides."""
    told = [f"slot {slot} → executor {home.executor} on {home.host}" for (_, slot), home in sorted(homes.items())]
    more = f" and {len(told) - _SLOTS_TOLD} more" if len(told) > _SLOTS_TOLD else ""
    return ", ".join(told[:_SLOTS_TOLD]) + more


def list_homes(level: int, kept: KeptHomes) -> Iterator[dict[str, object]]:
    """Yield the homes of a level's slots as plain JSON data, in their order."""
    for (of_level, slot), home in sorted(kept.homes.items()):
        if of_level == level:
            pin = kept.pins.get((level, slot))
            told = {"slot": slot, "executor": home.executor, "host": home.host}
            yield told | ({} if pin is None else {"pinned": "host" if pin.executor is None else "executor"})


def _follow_hosts(before: KeptHomes, usable: Mapping[str, Executor], application: str) -> KeptHomes:
    """Return homes on the hosts of before, for copies of state may be there; ids of executors mean others now."""
    homes: dict[SlotId, Home] = {}
    # By level, because its slots run at the same time.
    taken: Counter[tuple[int, str]] = Counter()
    for (level, slot), home in sorted(before.homes.items()):
        own = [(taken[level, id], order, id) for order, id in enumerate(usable) if usable[id].host == home.host]
        if own:
            _, _, id = min(own)
            taken[level, id] += 1
            homes[level, slot] = Home(id, home.host)
    return KeptHomes(application, homes, {slot: Pin(None, pin.host) for slot, pin in before.pins.items()})


def _place_pinned(pins: Mapping[SlotId, Pin], there: Homes, usable: Mapping[str, Executor]) -> dict[SlotId, str]:
    placed: dict[SlotId, str] = {}
    taken = Counter(there.values())
    for slot, pin in sorted(pins.items()):
        admitted = [(taken[id], order, id) for order, id in enumerate(usable) if pin.admits(usable[id])]
        is_there = slot in there and pin.admits(usable[there[slot]])
        placed[slot] = there[slot] if is_there else min(admitted)[-1]
        taken[placed[slot]] += not is_there
    return placed


def _explain(
    slot: SlotId, before: KeptHomes, executors: Sequence[Executor], application: str, reason: str, is_pinned: bool
) -> str:
    pin, old = before.pins.get(slot), before.homes.get(slot)
    if pin is not None and not is_pinned:
        return f"{pin}, where people put it, is gone or leaving; {reason}"
    if pin is not None:
        return f"people put it on {pin}"
    if old is None or before.application != application:
        return reason
    now = next((executor for executor in executors if executor.id == old.executor), None)
    if now is None:
        return f"executor {old.executor} on {old.host} is gone; {reason}"
    return f"executor {old.executor} on {old.host} is leaving; {reason}" if now.is_leaving else reason


def _count_moved(before: KeptHomes, homes: Mapping[SlotId, Home], loads: SlotLoads) -> int:
    """Return the state of slots that had another home before: that of a new one lies nowhere yet."""
    moved = (slot for slot, home in homes.items() if before.homes.get(slot, home) != home)
    return sum(loads.slots[slot].state_bytes for slot in moved if slot in loads.slots)


def _refuse_unusable(executor: Executor) -> None:
    if executor.is_leaving:
        msg = f"executor {executor.id} on {executor.host} is leaving; choose one that stays"
        raise CommandRefused(msg)
    if not executor.is_warm:
        msg = f"executor {executor.id} on {executor.host} has just come and is warming up; try again in a moment"
        raise CommandRefused(msg)

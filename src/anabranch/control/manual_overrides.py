"""What people tell a running flow about keys, slots, strategies and settings, checked and turned into routes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import polars as pl

from anabranch.balancing.level import check_planner
from anabranch.control.commands import Command
from anabranch.control.decide.copied_inputs import copy_smaller_inputs
from anabranch.control.decide.moved_state import estimate_moved_bytes
from anabranch.control.decisions import Proposal
from anabranch.control.observe.loads import OperatorLoads
from anabranch.control.operators import ControlledOperator
from anabranch.errors import AnabranchError, FlowError, name_alternatives
from anabranch.model import RoutingTable
from anabranch.model.balance import AUTO, CONDITIONS, Balance, BalanceTrigger, NamedStrategy, Routing
from anabranch.model.routes import MOST_SLOTS
from anabranch.routing import hash_keys
from anabranch.routing.bases.drawn import DrawnRoute
from anabranch.routing.keys import KeyBatch
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import check_named, goes_by_keys, make_strategy, places_rows
from anabranch.state.inspect import read_text

_TEXTS = ("planner", "protocol", "oversized")
_NUMBERS: dict[str, type[int] | type[float]] = {"tolerance": float, "sample_rate": float, "fewest_rows_a_slot": int}
_TRIGGER_NUMBERS: dict[str, type[int] | type[float]] = {
    **dict.fromkeys(CONDITIONS, float),
    "every_rows": int,
    "smallest_improvement": float,
    "cool_down_seconds": float,
    "cool_down_batches": int,
}
SETTINGS: tuple[str, ...] = (
    "balance",
    *(field.name for field in fields(Balance) if field.name in (*_NUMBERS, *_TEXTS)),
    *_TRIGGER_NUMBERS,
)
"""What people may set while a flow runs."""
NEVER = "never"
"""An imbalance that no slots reach, for people and for JSON, which has no word for infinity."""


class CommandRefused(FlowError):
    """A command cannot be carried out; the flow goes on as before."""


def note_for_all(
    chosen: Sequence[ControlledOperator], command: Command, *, seen_batch: int, begun_batch: int
) -> list[str]:
    """Note an override for every operator, or, if one refuses it, for none; return what will happen.

    ``seen_batch`` is the last batch that is over, ``begun_batch`` the last one of which it is decided what changes at
    its end.
    """
    before = [(operator, operator.balancer.routing, len(operator.overrides)) for operator in chosen]
    try:
        return [_note(operator, command, max(seen_batch, begun_batch), seen_batch + 1) for operator in chosen]
    except AnabranchError:
        for operator, routing, overrides in before:
            operator.balancer.routing = routing
            del operator.overrides[overrides:]
        raise


def _note(operator: ControlledOperator, command: Command, batch: int, seed: int) -> str:
    name = operator.facts.name
    if operator.facts.is_ahead:
        msg = f"{name} has its source's partitions as its slots; keys go where the partitioner puts them"
        raise CommandRefused(msg)
    if command.action == "set":
        operator.balancer.routing = change_setting(operator.balancer.routing, command.arguments)
        return f"{name}: {', '.join(f'{setting} is {value}' for setting, value in command.arguments.items())}"
    if operator.phases is None:
        msg = f"{name} has not run yet; try again after the first batch"
        raise CommandRefused(msg)
    if operator.phases.earlier is not None:
        msg = f"{name} is in the midst of a change: open windows end first; try again later"
        raise CommandRefused(msg)
    proposal = _propose(operator, command, operator.newest_override(operator.coming or operator.phases.routes), seed)
    operator.overrides.append(replace(proposal, sender="ctl"))
    moved = f"; about {proposal.moved_bytes:,.0f} bytes of state move" if proposal.moved_bytes else ""
    return f"{name}: {proposal.reason}{moved}; takes effect after batch {batch + len(operator.overrides)}"


def _propose(operator: ControlledOperator, command: Command, routes: Routes, seed: int) -> Proposal:
    given, facts = command.arguments, operator.facts
    if command.action == "slots":
        count = _count(given.get("count"), most=MOST_SLOTS)
        return operator.balancer.resize(operator.loads, routes, count)
    if command.action == "strategy":
        return _propose_strategy(operator, given, routes, seed)
    if isinstance(routes.base, DrawnRoute):
        msg = f"{facts.name} deals its rows to a {routes.base.label}, whatever their keys; there is no key to move"
        raise CommandRefused(msg)
    key = _read_key(str(given.get("key", "")), facts.key_types)
    if command.action == "move":
        wanted: list[int] = [_count(given.get("slot"), least=0)]
    elif command.action == "split":
        wanted = [_count(slot, least=0) for slot in given.get("slots", [])]
        if not facts.splittable:
            msg = f"{facts.name} keeps every key whole; it can be moved, not split"
            raise CommandRefused(msg)
    else:
        wanted = []
    return place_key(routes, key, str(given.get("key")), wanted, operator.loads)


def _propose_strategy(operator: ControlledOperator, given: Mapping[str, Any], routes: Routes, seed: int) -> Proposal:
    facts = operator.facts
    named = NamedStrategy(str(given.get("name")), **given.get("options", {}))
    check_named(named)
    strategy = None if named.name == AUTO else make_strategy(named.name, **named.options)
    draws = facts.join is not None and facts.join.draws
    if strategy is not None and places_rows(strategy) and not draws:
        msg = (
            f"{facts.name} has no numbers drawn for its rows, by which {named.name} places them; "
            f'only a join whose flow says routing="{named.name}" or the like from its first batch on has them'
        )
        raise CommandRefused(msg)
    if not facts.key_types and (strategy is None or goes_by_keys(strategy)):
        msg = f"{facts.name} joins by no key, so rows are dealt to slots; {named.name} goes by keys"
        raise CommandRefused(msg)
    # Powers that the flow has already follow the slots; those that are given now must fit them.
    Routing().going_by(named).check_slots(routes.slots)
    if strategy is not None and strategy.splits_keys and not facts.spreadable:
        msg = f"{facts.name} keeps every key whole; {named.name} spreads a key over slots"
        if facts.splittable:
            msg = f"{facts.name} can split single keys; {named.name} would spread all of them over slots"
        raise CommandRefused(msg)
    return operator.balancer.switch(named, operator.loads, routes, np.random.default_rng(seed))


def place_key(
    routes: Routes, key: int, label: str, slots: Sequence[int], loads: OperatorLoads | None = None
) -> Proposal:
    """Return the routes with a key on the given slots, in equal shares; on none of them, it follows its base route."""
    table, reason = _place(routes, key, label, slots)
    placed = copy_smaller_inputs(routes.with_table(table), routes, None if loads is None else loads.join)
    return Proposal(placed, reason, estimate_moved_bytes(loads, routes, placed))


def _place(routes: Routes, key: int, label: str, slots: Sequence[int]) -> tuple[RoutingTable, str]:
    strangers = [slot for slot in slots if slot >= routes.slots]
    if strangers:
        msg = f"there is no slot {strangers[0]}; there are {routes.slots}, from 0 to {routes.slots - 1}"
        raise CommandRefused(msg)
    if len(set(slots)) != len(slots):
        msg = f"the slots {list(slots)} name one of them twice"
        raise CommandRefused(msg)
    if not slots:
        if not len(routes.table.owners(key)):
            msg = f"key {label} is neither moved nor split"
            raise CommandRefused(msg)
        return routes.table.without([key]), f"key {label} goes home, whole"
    kept = routes.table.without([key])
    home = None if routes.needs_values else int(routes.home_slots(KeyBatch(np.array([key], np.uint64)))[0])
    if list(slots) == [home]:
        return kept, f"key {label} goes home to slot {home}"
    placed = kept.overlaid(RoutingTable.of({key: {slot: 1 / len(slots) for slot in slots}}))
    where = f"slot {slots[0]}" if len(slots) == 1 else f"slots {', '.join(map(str, slots))}"
    return placed, f"key {label} goes to {where}"


def _count(given: Any, least: int = 1, most: int | None = None) -> int:
    try:
        number = int(given)
    except (TypeError, ValueError):
        number = least - 1
    if number < least or (most is not None and number > most):
        msg = f"{given!r} is not a number from {least} {'on' if most is None else f'to {most:,}'}"
        raise CommandRefused(msg)
    return number


def _read_key(text: str, types: Mapping[str, pl.DataType]) -> int:
    """Return the hash of a key that is given as text; several columns are separated by commas."""
    parts = [text] if len(types) == 1 else [part.strip() for part in text.split(",")]
    if len(parts) != len(types):
        msg = f"the key {text!r} has {len(parts)} parts; the operator is keyed by {', '.join(types)}"
        raise CommandRefused(msg)
    columns = []
    for part, (name, dtype) in zip(parts, types.items(), strict=True):
        value = read_text(part, dtype)
        if value[0] is None:
            msg = f"{part!r} cannot be a value of {name}, which is {dtype}"
            raise CommandRefused(msg)
        columns.append(value.alias(name))
    return int(hash_keys(pl.DataFrame(columns), list(types))[0])


def change_setting(routing: Routing, given: Mapping[str, Any]) -> Routing:
    """Return the routing with other settings; raise ``CommandRefused`` that names those that exist.

    A condition of the trigger that is set to ``none`` no longer counts, and others stay as they are.
    """
    balance = routing.balance or Balance()
    changed: dict[str, Any] = {}
    triggered: dict[str, Any] = {}
    for name, value in given.items():
        if name == "balance":
            if str(value).lower() not in ("on", "off"):
                msg = f"balance is {value!r}; it can be on or off"
                raise CommandRefused(msg)
            if str(value).lower() == "off":
                return replace(routing, balance=None)
        elif name in _TRIGGER_NUMBERS:
            triggered[name] = _read_trigger(name, value)
        elif name == "sample_rate" and str(value).lower() == AUTO:
            changed[name] = AUTO
        elif name in _NUMBERS:
            changed[name] = _read_number(name, value, _NUMBERS[name])
        elif name in _TEXTS:
            changed[name] = str(value)
        else:
            msg = f"there is no setting {name!r}; {name_alternatives(name, SETTINGS)}"
            raise CommandRefused(msg)
    if "planner" in changed:
        check_planner(changed["planner"])
    if triggered:
        changed["trigger"] = replace(balance.trigger or BalanceTrigger(), **triggered)
    return replace(routing, balance=replace(balance, **changed))


def list_settings(balance: Balance | None) -> dict[str, Any]:
    """Return what ``change_setting`` can change, as it is; conditions of the trigger that are not set are left out."""
    if balance is None:
        return {"balance": "off"}
    plain = {name: getattr(balance, name) for name in SETTINGS if name in _NUMBERS or name in _TEXTS}
    trigger = {name: getattr(balance.planning, name) for name in _TRIGGER_NUMBERS}
    return plain | {name: NEVER if value == math.inf else value for name, value in trigger.items() if value is not None}


def _read_trigger(name: str, value: Any) -> int | float | None:
    if name in CONDITIONS and (value is None or str(value).lower() == "none"):
        return None
    never = name == "imbalance_above" and str(value).lower() == NEVER
    return math.inf if never else _read_number(name, value, _TRIGGER_NUMBERS[name])


def _read_number(name: str, value: Any, kind: type[int] | type[float]) -> int | float:
    wanted = "whole number" if kind is int else "number"
    try:
        number = kind(value)
        if isinstance(value, bool) or (kind is int and number != float(value)):
            raise ValueError(wanted)
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"{name} is {value!r}, which is no {wanted}"
        raise CommandRefused(msg) from error
    return number

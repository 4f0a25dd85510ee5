"""People's wishes about keys and settings, checked and turned into routes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from anabranch.balancing.level import check_planner
from anabranch.control.decide.balancer import OperatorLoads, Proposal
from anabranch.control.decide.moved_state import estimate_moved_bytes
from anabranch.errors import FlowError, name_alternatives
from anabranch.model import RoutingTable
from anabranch.model.balance import AUTO, CONDITIONS, Balance, BalanceTrigger, Routing
from anabranch.routing.keys import KeyBatch
from anabranch.routing.routes import Routes

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


class WishRefused(FlowError):
    """A command cannot be carried out; the flow goes on as before."""


def place_key(
    routes: Routes, key: int, label: str, slots: Sequence[int], loads: OperatorLoads | None = None
) -> Proposal:
    """Return the routes with a key on the given slots, in equal shares; on none of them, it follows its base route."""
    table, reason = _place(routes, key, label, slots)
    placed = routes.with_table(table)
    return Proposal(placed, reason, estimate_moved_bytes(loads, routes, placed))


def _place(routes: Routes, key: int, label: str, slots: Sequence[int]) -> tuple[RoutingTable, str]:
    strangers = [slot for slot in slots if slot >= routes.slots]
    if strangers:
        msg = f"there is no slot {strangers[0]}; there are {routes.slots}, from 0 to {routes.slots - 1}"
        raise WishRefused(msg)
    if len(set(slots)) != len(slots):
        msg = f"the slots {list(slots)} name one of them twice"
        raise WishRefused(msg)
    if not slots:
        if not len(routes.table.owners(key)):
            msg = f"key {label} is neither moved nor split"
            raise WishRefused(msg)
        return routes.table.without([key]), f"key {label} goes home, whole"
    kept = routes.table.without([key])
    home = None if routes.needs_values else int(routes.home_slots(KeyBatch(np.array([key], np.uint64)))[0])
    if list(slots) == [home]:
        return kept, f"key {label} goes home to slot {home}"
    placed = kept.overlaid(RoutingTable.of({key: {slot: 1 / len(slots) for slot in slots}}))
    where = f"slot {slots[0]}" if len(slots) == 1 else f"slots {', '.join(map(str, slots))}"
    return placed, f"key {label} goes to {where}"


def change_setting(routing: Routing, given: Mapping[str, Any]) -> Routing:
    """Return the routing with other settings; raise ``WishRefused`` that names those that exist.

    A condition of the trigger that is set to ``none`` no longer counts, and others stay as they are.
    """
    balance = routing.balance or Balance()
    changed: dict[str, Any] = {}
    triggered: dict[str, Any] = {}
    for name, value in given.items():
        if name == "balance":
            if str(value).lower() not in ("on", "off"):
                msg = f"balance is {value!r}; it can be on or off"
                raise WishRefused(msg)
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
            raise WishRefused(msg)
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
        raise WishRefused(msg) from error
    return number

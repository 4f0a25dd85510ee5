"""People's wishes about keys and settings, checked and turned into routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from anabranch.balancing.level import check_planner
from anabranch.control.balancer import Proposal
from anabranch.errors import FlowError
from anabranch.model import RoutingTable
from anabranch.model.balance import Balance, Routing
from anabranch.routing.keys import KeyBatch
from anabranch.routing.routes import Routes

_NUMBERS = {"tolerance": float, "sample_rate": float, "fewest_rows_a_slot": int}
_TEXTS = ("planner", "protocol")


class WishRefused(FlowError):
    """A command cannot be carried out; the flow goes on as before."""


def place_key(routes: Routes, key: int, label: str, slots: Sequence[int]) -> Proposal:
    """Return the routes with a key on the given slots, in equal shares; on none of them, it follows its base route."""
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
        return Proposal(routes.with_table(routes.table.without([key])), f"key {label} goes home, whole", 0.0)
    kept = routes.table.without([key])
    home = None if routes.needs_values else int(routes.home_slots(KeyBatch(np.array([key], np.uint64)))[0])
    if list(slots) == [home]:
        return Proposal(routes.with_table(kept), f"key {label} goes home to slot {home}", 0.0)
    placed = kept.overlaid(RoutingTable.of({key: {slot: 1 / len(slots) for slot in slots}}))
    where = f"slot {slots[0]}" if len(slots) == 1 else f"slots {', '.join(map(str, slots))}"
    return Proposal(routes.with_table(placed), f"key {label} goes to {where}", 0.0)


def change_setting(routing: Routing, given: Mapping[str, Any]) -> Routing:
    """Return the routing with other settings; raise ``WishRefused`` that names those that exist."""
    balance = routing.balance or Balance()
    changed: dict[str, Any] = {}
    for name, value in given.items():
        if name == "balance":
            if str(value).lower() not in ("on", "off"):
                msg = f"balance is {value!r}; it can be on or off"
                raise WishRefused(msg)
            if str(value).lower() == "off":
                return replace(routing, balance=None)
            continue
        if name not in _NUMBERS and name not in _TEXTS:
            known = ", ".join(("balance", *(f.name for f in fields(Balance) if f.name in (*_NUMBERS, *_TEXTS))))
            msg = f"there is no setting {name!r}; there are {known}"
            raise WishRefused(msg)
        try:
            changed[name] = _NUMBERS[name](value) if name in _NUMBERS else str(value)
        except (TypeError, ValueError) as error:
            msg = f"{name} is {value!r}, which is no number"
            raise WishRefused(msg) from error
    if "planner" in changed:
        check_planner(changed["planner"])
    return replace(routing, balance=replace(balance, **changed))

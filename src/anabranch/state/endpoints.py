"""The sources and sinks that a checkpoint knows: each has a number for its life, by which everything else names it.

``endpoints/<epoch>.json`` is written by a driver that found them changed, before its first batch; the newest counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from anabranch.errors import CheckpointError
from anabranch.model.identities import Identity
from anabranch.state.checksums import check_document, seal_document
from anabranch.state.store import Store

ENDPOINTS = "endpoints"
FORMAT_VERSION = 1

Role = Literal["source", "sink"]

_FILE = re.compile(rf"{ENDPOINTS}/(\d+)\.json")
_NAME_PARTS = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A source or sink as a checkpoint knows it."""

    number: int
    name: str
    identity: Identity
    gone: bool = False
    """A source that was dropped, or a sink that the flow has no longer: its number is not given again."""

    def __str__(self) -> str:
        return f"{self.name!r} ({self.identity})"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"number": self.number, "name": self.name, "identity": self.identity.to_json(), "gone": self.gone}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Endpoint:
        """Read what ``to_json`` wrote."""
        return cls(data["number"], data["name"], Identity.from_json(data["identity"]), data["gone"])


@dataclass(frozen=True, slots=True)
class Endpoints:
    """All sources and sinks of a checkpoint's life."""

    sources: tuple[Endpoint, ...] = ()
    sinks: tuple[Endpoint, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "format_version": FORMAT_VERSION,
            "sources": [source.to_json() for source in self.sources],
            "sinks": [sink.to_json() for sink in self.sinks],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Endpoints:
        """Read what ``to_json`` wrote; raise ``CheckpointError`` for another format version."""
        if data.get("format_version") != FORMAT_VERSION:
            msg = (
                f"the list of sources and sinks has format {data.get('format_version')}; this version reads format "
                f"{FORMAT_VERSION}: install a newer anabranch"
            )
            raise CheckpointError(msg)
        return cls(*(tuple(map(Endpoint.from_json, data[role])) for role in ("sources", "sinks")))


@dataclass(frozen=True, slots=True)
class Written:
    """A source or sink as a flow is written now."""

    identity: Identity
    name: str | None = None
    formerly: str | None = None
    """What it was called in the checkpoint, if it is the same under another name or in another place."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Which of a checkpoint's sources or sinks those of a flow are."""

    numbers: tuple[int, ...]
    """Of those of the flow, in the order in which they are written."""
    known: tuple[Endpoint, ...]
    """What the checkpoint knows from now on."""
    notes: tuple[str, ...] = ()
    """What a person should hear: what is new, gone, or called otherwise."""


def load_endpoints(store: Store) -> Endpoints | None:
    """Return what the newest driver wrote, or None if the checkpoint is new or from before there were such files."""
    epochs = [int(match[1]) for entry in store.list(ENDPOINTS) if (match := _FILE.fullmatch(entry.name))]
    if not epochs:
        return None
    file = _file(max(epochs))
    return Endpoints.from_json(check_document(store.read(file), f"{store.url}/{file}"))


def store_endpoints(store: Store, endpoints: Endpoints, epoch: int) -> None:
    """Let these count from now on."""
    store.create(_file(epoch), seal_document(endpoints.to_json()))


def number_first(role: Role, written: Sequence[Written]) -> Matched:
    """Number the sources or sinks of a checkpoint's first run.

    Sources by what they are: which rows come first among those of equal time must not depend on the order in which
    the flow names its sources. Sinks as they are written.
    """
    order = list(range(len(written)))
    if role == "source":
        order.sort(key=lambda place: _rank(written[place]))
    return _finish(role, (), {place: None for place in order}, written)


def fill_in(role: Role, written: Sequence[Written]) -> Matched:
    """Take the sources or sinks of a checkpoint that only numbered them as those that are written now, in order."""
    return _finish(role, (), dict.fromkeys(range(len(written))), written)


def match(role: Role, known: Sequence[Endpoint], written: Sequence[Written], drop: Collection[str] = ()) -> Matched:
    """Find the sources or sinks of a flow among those of its checkpoint, by what they are.

    Raises ``CheckpointError`` if a source is gone that ``drop`` does not name: its rows would silently stop, or, if it
    is somewhere else now, be read again.
    """
    here = {endpoint.number: endpoint for endpoint in known if not endpoint.gone}
    _check_drops(role, known, drop)
    found: dict[int, Endpoint | None] = {}
    for place, one in enumerate(written):
        former = _named(here.values(), one.formerly) if one.formerly is not None else None
        if former is not None and former.identity.kind == one.identity.kind:
            found[place] = here.pop(former.number)
    for rule in _RULES:
        for place, one in enumerate(written):
            fitting = [endpoint for endpoint in here.values() if place not in found and rule.fits(endpoint, one)]
            rivals = [other for other in range(len(written)) if other not in found and other != place]
            contested = rule.alone and any(rule.fits(endpoint, written[r]) for endpoint in fitting for r in rivals)
            if fitting and not contested and not (rule.alone and len(fitting) > 1):
                found[place] = here.pop(fitting[0].number)
    new = {place: None for place in range(len(written)) if place not in found}
    if role == "source":
        _refuse_missing(here.values(), [written[place] for place in new], drop)
    return _finish(role, known, {**found, **new}, written, gone={*here})


@dataclass(frozen=True, slots=True)
class _Rule:
    """A reason to take a source or sink for one that the checkpoint knows."""

    fits: Callable[[Endpoint, Written], bool]
    alone: bool = False
    """Whether it says nothing where several fit."""


def _same_all(known: Endpoint, one: Written) -> bool:
    return known.identity == one.identity


def _same_place(known: Endpoint, one: Written) -> bool:
    same = known.identity.kind == one.identity.kind
    return same and bool({*known.identity.places} & {*one.identity.places})


def _same_name(known: Endpoint, one: Written) -> bool:
    placeless = not one.identity.lasting or not one.identity.places
    return placeless and known.identity.kind == one.identity.kind and known.name == one.name


def _same_details(known: Endpoint, one: Written) -> bool:
    placeless = not one.identity.lasting or not one.identity.places
    same = known.identity.kind == one.identity.kind and known.identity.details == one.identity.details
    return placeless and same and one.name in (None, known.name)


_RULES = (
    _Rule(lambda known, one: _same_all(known, one) and known.name == one.name),
    _Rule(_same_all),
    _Rule(_same_place, alone=True),
    _Rule(_same_name),
    # What lies in memory has other places in another process: then the order in which it is written must do.
    _Rule(_same_details),
)


def _finish(
    role: Role,
    known: Sequence[Endpoint],
    found: Mapping[int, Endpoint | None],
    written: Sequence[Written],
    gone: Collection[int] = (),
) -> Matched:
    """Give numbers and names to what is new, and say what changed."""
    after = {endpoint.number: endpoint for endpoint in known}
    first = not known
    notes = []
    for number in sorted(gone):
        after[number] = replace(after[number], gone=True)
        notes.append(_say_gone(role, after[number]))
    numbers: dict[int, int] = {}
    for place, before in found.items():
        one = written[place]
        if before is None:
            number = 1 + max(after, default=-1)
            after[number] = Endpoint(number, _free_name(one, after.values()), one.identity)
            if not first:
                notes.append(_say_new(role, after[number]))
        else:
            number = before.number
            after[number] = replace(before, identity=one.identity, name=one.name or before.name)
            if after[number].name != before.name:
                notes.append(f"{role} {before.name!r} is called {after[number].name!r} from now on")
        numbers[place] = number
    return Matched(
        tuple(numbers[place] for place in range(len(written))),
        tuple(after[number] for number in sorted(after)),
        tuple(notes),
    )


def _rank(one: Written) -> tuple[str, str, tuple[str, ...], list[tuple[str, str]]]:
    places = one.identity.places if one.identity.lasting else ()
    return one.name or "", one.identity.kind, places, sorted(one.identity.details.items())


def _free_name(one: Written, taken: Iterable[Endpoint]) -> str:
    """Return the given name, or one made of the last part of its place: ``readings`` for ``/data/readings``."""
    if one.name is not None:
        return one.name
    used = {endpoint.name for endpoint in taken}
    last = one.identity.places[0].rstrip("/").rsplit("/", maxsplit=1)[-1] if one.identity.places else ""
    wanted = _NAME_PARTS.sub("-", last if one.identity.lasting else one.identity.kind).strip("-") or one.identity.kind
    number, name = 1, wanted
    while name in used:
        number += 1
        name = f"{wanted}-{number}"
    return name


def _named(endpoints: Iterable[Endpoint], name: str) -> Endpoint | None:
    return next((endpoint for endpoint in endpoints if endpoint.name == name), None)


def _check_drops(role: Role, known: Sequence[Endpoint], drop: Collection[str]) -> None:
    strangers = [name for name in drop if _named(known, name) is None]
    if strangers:
        there = ", ".join(repr(endpoint.name) for endpoint in known if not endpoint.gone) or "none"
        msg = f"cannot drop the {role} {strangers[0]!r}: the checkpoint knows no such {role}; it has {there}"
        raise CheckpointError(msg)


def _refuse_missing(missing: Iterable[Endpoint], new: Sequence[Written], drop: Collection[str]) -> None:
    lost = [endpoint for endpoint in missing if endpoint.name not in drop]
    if not lost:
        return
    one = lost[0]
    beside = ""
    if new:
        called = ", ".join(f"{w.name!r} ({w.identity})" if w.name else str(w.identity) for w in new)
        beside = (
            f", and the flow reads {called}, which is new. If that is the same data under another name or in another "
            f"place, say so: read(…, formerly={one.name!r}), and it goes on where it was. If not"
        )
    else:
        beside = ". If it is to be left out from now on"
    msg = (
        f"this checkpoint has read the source {one}, which the flow does not read any more{beside}, drop it: "
        f"--drop-source {one.name} of anabranch run, or drop_sources=[{one.name!r}]; what it brought stays in the state"
    )
    raise CheckpointError(msg)


def _say_new(role: Role, one: Endpoint) -> str:
    what = "read from where it says to start" if role == "source" else "written from this batch on"
    return f"{role} {one} is new in this checkpoint: it is {what}"


def _say_gone(role: Role, one: Endpoint) -> str:
    if role == "source":
        return f"source {one} is dropped: what it brought stays in the state, and where it stood is forgotten"
    return f"sink {one} is not in the flow any more: what was published there stays there"


def _file(epoch: int) -> str:
    return f"{ENDPOINTS}/{epoch:08d}.json"

"""The mark that a place bears: whose results it holds, up to which batch; it changes with the rows, at once."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from anabranch.connectors.sink_ownership import ResultsLost, refuse_newer
from anabranch.errors import SinkError

OnLoss = Literal["stop", "republish", "ignore"]
"""What to do when a place lost results: stop the flow, publish again what the checkpoint still has, or go on."""
NOTHING = -1
"""The batch of a mark under which nothing was published yet."""

logger = logging.getLogger("anabranch")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a place says about the last batch that was published to it."""

    flow: str
    batch: int
    epoch: int
    """Of the driver that published it."""
    store: str
    """A random text that is made with the mark: another one means that this is not the place it was."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place as a flow's sink knows it."""

    name: str
    flow: str
    on_loss: OnLoss = "stop"


@dataclass(frozen=True, slots=True)
class Publication:
    """A batch on its way to a place."""

    batch: int
    epoch: int
    rebuilding: bool = False
    """Whether earlier batches were asked for because the place lost them; some may be in no checkpoint any more."""

    @classmethod
    def of(cls, batch: int, context: Mapping[str, Any]) -> Publication:
        """Read a publication from what ``Sink.publish`` is given."""
        return cls(batch, int(context.get("driver_epoch", context["epoch"])), bool(context.get("rebuilding")))


def check_on_loss(on_loss: str) -> OnLoss:
    """Return the word if it is one; raise ``SinkError`` with those that are."""
    for known in get_args(OnLoss):
        if on_loss == known:
            return known  # type: ignore[no-any-return]
    msg = f"on_loss is one of {', '.join(get_args(OnLoss))}, found {on_loss!r}"
    raise SinkError(msg)


def claim(mark: Mark | None, place: Place, last_batch: int | None, *, absence_is_loss: bool = False) -> Mark | None:
    """Return the mark that a place is to bear for this flow, None if it stays as it is.

    Raises ``SinkError`` if the place holds another flow's results, later batches than the checkpoint, or fewer than
    were published: a store that was emptied or set back. ``absence_is_loss`` says that a mark cannot be missing once
    batches were published; elsewhere a sink may have been added to a flow.
    """
    known = NOTHING if last_batch is None else last_batch
    if mark is None:
        if known > NOTHING:
            if absence_is_loss and place.on_loss != "ignore":
                _refuse_absence(place, known)
                return None
            logger.warning(
                "%s has no mark of the flow %r: it is taken as new, without what batches up to %d gave",
                place.name,
                place.flow,
                known,
            )
        return Mark(place.flow, NOTHING, 0, secrets.token_hex(8))
    if mark.flow != place.flow:
        if mark.batch == NOTHING:
            return Mark(place.flow, NOTHING, 0, mark.store)
        msg = (
            f"{place.name} holds results of the flow {mark.flow!r}, this one is {place.flow!r}; "
            f"write somewhere else, or delete them, and their mark, if they are not wanted"
        )
        raise SinkError(msg)
    refuse_newer(place.name, mark.batch, last_batch)
    if NOTHING < mark.batch < known - 1:
        if place.on_loss == "ignore":
            logger.warning("%s lacks batches %d to %d: the flow goes on", place.name, mark.batch + 1, known - 1)
            return Mark(place.flow, NOTHING, mark.epoch, mark.store)
        _refuse_loss(place, f"ends with batch {mark.batch}, though batches up to {known} were committed")
    return None


def is_due(mark: Mark | None, place: Place, given: Publication, store: str | None) -> bool:
    """Say whether a batch is still to be published; raise ``SinkError`` if the place is not what it was.

    ``store`` is the store that this driver published to before, None if it did not yet. Where lost results are to be
    published again, the error is ``ResultsLost``.
    """
    if mark is None:
        lost_since = None if given.batch == 0 or given.rebuilding else 0
    elif mark.flow != place.flow:
        msg = f"{place.name} belongs to the flow {mark.flow!r} now, this one is {place.flow!r}; write somewhere else"
        raise SinkError(msg)
    elif mark.epoch > given.epoch:
        msg = (
            f"{place.name} was written by a newer driver of {place.flow!r} (epoch {mark.epoch}, batch {mark.batch}), "
            f"this one has epoch {given.epoch} and must stop; see who else runs the flow"
        )
        raise SinkError(msg)
    elif store not in (None, mark.store) and not given.rebuilding and place.on_loss != "ignore":
        lost_since = 0
    elif mark.batch >= given.batch:
        return False
    else:
        gap = NOTHING < mark.batch < given.batch - 1 and not given.rebuilding
        lost_since = mark.batch + 1 if gap else None
    if lost_since is None or place.on_loss == "ignore":
        return True
    found = "its mark is gone" if mark is None else f"it ends with batch {mark.batch} (store {mark.store})"
    if place.on_loss == "republish":
        msg = f"{place.name} lost results that were published before batch {given.batch}: {found}"
        raise ResultsLost(msg, lost_since)
    _refuse_loss(place, f"lost what was published before batch {given.batch}: {found}")
    return True


def next_mark(mark: Mark | None, place: Place, given: Publication) -> Mark:
    """Return the mark that goes with a batch's rows."""
    return Mark(place.flow, given.batch, given.epoch, mark.store if mark else secrets.token_hex(8))


def _refuse_absence(place: Place, known: int) -> None:
    what = f"has no mark of the flow {place.flow!r}, though batches up to {known} were committed"
    if place.on_loss == "republish":
        _refuse_loss(place, what)
        return
    msg = (
        f"{place.name} {what}. If this sink is new in the flow, start once with on_loss='ignore': it begins with the "
        f"next batch, and the option may go again. If it held results before, it was emptied, or is another server: "
        f"restore it. With on_loss='republish' it gets what the checkpoint keeps (kept_batches), in both cases"
    )
    raise SinkError(msg)


def _refuse_loss(place: Place, what: str) -> None:
    if place.on_loss == "republish":
        logger.warning("%s %s: what the checkpoint keeps is published again with the next batch", place.name, what)
        return
    msg = (
        f"{place.name} {what}; was it emptied, or set back to an older copy? Restore it, or set on_loss='republish' to "
        f"publish again what the checkpoint keeps (kept_batches), or on_loss='ignore' to go on without (a new sink)"
    )
    raise SinkError(msg)

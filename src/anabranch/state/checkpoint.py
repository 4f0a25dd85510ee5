"""The commit log of a flow: one manifest a batch, created once, never overwritten."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from anabranch.errors import CheckpointError, Fenced, StateDamaged
from anabranch.state.epochs import check_epoch
from anabranch.state.manifest import INITIAL_BATCH, Manifest, plain_json
from anabranch.state.store import AlreadyExists, Store

COMMITS = "commits"
DEFAULT_KEPT_BATCHES = 10

_COMMIT_FILE = re.compile(rf"{COMMITS}/(-?\d+)\.json")


def commit_file(batch: int) -> str:
    """Return the name of a batch's manifest: ``commits/000000000017.json``; ``commits/-1.json`` for initial state."""
    return f"{COMMITS}/{batch:012d}.json" if batch >= 0 else f"{COMMITS}/{batch}.json"


class Checkpoint:
    """Commits and loads manifests.

    The list of batches is read once: later, this object knows of its own commits, and learns of another driver's
    when it tries to commit the same batch.
    """

    def __init__(self, store: Store, kept_batches: int = DEFAULT_KEPT_BATCHES) -> None:
        self.store = store
        self.kept_batches = kept_batches
        self._batches: list[int] | None = None
        self._latest: Manifest | None = None

    def batches(self) -> list[int]:
        """Return the committed batches, rising."""
        if self._batches is None:
            names = [_COMMIT_FILE.fullmatch(entry.name) for entry in self.store.list(COMMITS)]
            self._batches = sorted(int(match[1]) for match in names if match)
        return list(self._batches)

    def latest(self) -> Manifest | None:
        """Return the newest manifest, or None before the first commit."""
        batches = self.batches()
        if not batches:
            return None
        if self._latest is None or self._latest.batch != batches[-1]:
            self._latest = self.load(batches[-1])
        return self._latest

    def load(self, batch: int) -> Manifest:
        """Return a batch's manifest; raise ``CheckpointError`` if there is none, ``StateDamaged`` if it is broken."""
        file = commit_file(batch)
        try:
            return Manifest.decode(self.store.read(file), file)
        except FileNotFoundError as error:
            kept = self.batches()
            there = f"there are batches {kept[0]} to {kept[-1]}" if kept else "there are none"
            msg = f"no manifest of batch {batch} in {self.store.url}; {there}"
            raise CheckpointError(msg) from error
        except StateDamaged as error:
            earlier = [known for known in self.batches() if known < batch]
            later = [known for known in self.batches() if known > batch]
            if later:
                advice = "later batches do not need it"
            elif earlier:
                advice = f"to go on: anabranch state rollback --to {earlier[-1]}"
            else:
                advice = "restore it from a copy, or start a new checkpoint"
            msg = f"{error}; {advice}"
            raise StateDamaged(msg) from error

    def find_replay(self, batch: int, start_offset: Any, end_offset: Any) -> Manifest | None:
        """Return the manifest if the batch was committed before, or None if it is new.

        Raises ``CheckpointError`` if it was committed with other offsets: then Spark's checkpoint is not the one
        that belongs to this state.
        """
        if batch not in self.batches():
            return None
        latest = self.latest()
        committed = latest if latest is not None and latest.batch == batch else self.load(batch)
        _check_offsets(committed, start_offset, end_offset)
        return committed

    def commit(self, manifest: Manifest) -> Manifest:
        """Make a batch exist, and return the manifest that stands.

        It is another one if a driver that was replaced committed the same batch, from the same offsets, just before:
        then its files count and those of this attempt don't. Raises ``Fenced`` if a newer driver is at work.
        """
        check_epoch(self.store, manifest.epoch)
        self._check_order(manifest)
        standing = manifest.without_sources_before(manifest.batch - self.kept_batches + 1)
        try:
            self.store.create(commit_file(standing.batch), standing.encode())
        except AlreadyExists:
            standing = self._take_existing(standing)
        # Once more: a driver that slept since the first look may have filled a place that is long swept. Stopping
        # after a commit is safe, for the newer driver publishes whatever stands.
        check_epoch(self.store, manifest.epoch)
        if self._batches is not None and standing.batch not in self._batches:
            self._batches.append(standing.batch)
        self._latest = standing
        return standing

    def forget(self, batches: Iterable[int]) -> None:
        """Take batches out of the list, after their manifests were removed."""
        gone = set(batches)
        self._batches = [batch for batch in self.batches() if batch not in gone]
        if self._latest is not None and self._latest.batch in gone:
            self._latest = None

    def _check_order(self, manifest: Manifest) -> None:
        latest = self.latest()
        # The latest batch may be tried again; whether it stands already is for ``create`` to say.
        fitting = (INITIAL_BATCH, 0) if latest is None else (latest.batch, latest.batch + 1)
        if manifest.batch not in fitting:
            msg = (
                f"batch {manifest.batch} cannot follow {latest.batch if latest else 'nothing'} in {self.store.url}; "
                "Spark's checkpoint and this one have drifted apart: restore both from the same moment"
            )
            raise CheckpointError(msg)

    def _take_existing(self, wanted: Manifest) -> Manifest:
        existing = self.load(wanted.batch)
        if existing.epoch > wanted.epoch:
            msg = (
                f"batch {wanted.batch} was committed by epoch {existing.epoch}, this driver has epoch {wanted.epoch}; "
                "another driver owns the checkpoint now"
            )
            raise Fenced(msg)
        _check_offsets(existing, wanted.start_offset, wanted.end_offset)
        return existing


def _check_offsets(committed: Manifest, start_offset: Any, end_offset: Any) -> None:
    found = {"start": committed.start_offset, "end": committed.end_offset}
    asked = plain_json({"start": start_offset, "end": end_offset})
    if found != asked:
        msg = (
            f"batch {committed.batch} was committed with offsets {found}, but Spark now gives it {asked}; "
            "Spark's own checkpoint was deleted or replaced: restore it, or start with a new checkpoint directory"
        )
        raise CheckpointError(msg)

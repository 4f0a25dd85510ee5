"""Hand a committed batch to its sinks, in order, as often as it takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.connectors.sink_ownership import ResultsLost, TakenOver
from anabranch.engine.faults import reach
from anabranch.errors import SinkError
from anabranch.model import Sink, StagedFile
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.manifest import Manifest

logger = logging.getLogger("anabranch")


class Publisher:
    """Publishes what a manifest names; sinks make a second time harmless."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        sinks: Mapping[int, Sink],
        context: Mapping[str, Any],
        check_lease: Callable[[], None],
    ) -> None:
        self._checkpoint = checkpoint
        self._check_lease = check_lease
        self._sinks = sinks
        self._context = context

    def publish(self, manifest: Manifest) -> None:
        """Make the batch visible in every sink. A sink without rows in this batch hears of it too."""
        for index, sink in self._sinks.items():
            try:
                self._publish_or_rebuild(index, sink, manifest)
            except SinkError as error:
                # Only here is it known that there is a batch: sinks say the same at the start of a flow.
                msg = f"{error}; batch {manifest.batch} is committed, and its publication goes on at the next start"
                raise SinkError(msg) from error
            reach("between-sinks", manifest.batch)

    def _publish_or_rebuild(self, index: int, sink: Sink, manifest: Manifest) -> None:
        try:
            self._publish_to(index, sink, manifest)
        except ResultsLost as lost:
            self._rebuild(index, sink, manifest, lost)
        except TakenOver:
            # Whoever still has the lease is the newest: it was an older driver that woke up.
            self._check_lease()
            self._publish_to(index, sink, manifest)

    def _publish_to(self, index: int, sink: Sink, manifest: Manifest, *, rebuilding: bool = False) -> None:
        context = {**self._context, "epoch": manifest.epoch, "flow": manifest.flow, "rebuilding": rebuilding}
        staged = manifest.sinks.get(index, ())
        sink.publish(manifest.batch, [(file, self._path(file)) for file in staged], context)

    def _rebuild(self, index: int, sink: Sink, manifest: Manifest, lost: ResultsLost) -> None:
        """Publish again what the checkpoint keeps of the batches that a sink's place lost, then the one at hand."""
        kept = [batch for batch in self._checkpoint.batches() if lost.since <= batch < manifest.batch]
        first = kept[0] if kept else manifest.batch
        gone = f"; batches {lost.since} to {first - 1} are kept no longer and stay lost" if first > lost.since else ""
        logger.warning("%s: publishing batches %d to %d again%s", lost, first, manifest.batch, gone)
        for batch in kept:
            self._publish_to(index, sink, self._checkpoint.load(batch), rebuilding=True)
        self._publish_to(index, sink, manifest, rebuilding=True)

    def _path(self, file: StagedFile) -> str:
        store = self._checkpoint.store
        path = store.local_path(file.file)
        return str(path) if path is not None else f"{store.url}/{file.file}"

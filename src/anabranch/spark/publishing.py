"""Hand a committed batch to its sinks, in order, as often as it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.model import Sink, StagedFile
from anabranch.spark.faults import reach
from anabranch.state.manifest import Manifest
from anabranch.state.store import Store


class Publisher:
    """Publishes what a manifest names; sinks make a second time harmless."""

    def __init__(self, store: Store, sinks: Mapping[int, Sink], context: Mapping[str, Any]) -> None:
        self._store = store
        self._sinks = sinks
        self._context = context

    def publish(self, manifest: Manifest) -> None:
        """Make the batch visible in every sink. A sink without rows in this batch hears of it too."""
        context = {**self._context, "epoch": manifest.epoch, "flow": manifest.flow}
        for index, sink in self._sinks.items():
            staged = manifest.sinks.get(index, ())
            sink.publish(manifest.batch, [(file, self._path(file)) for file in staged], context)
            reach("between-sinks", manifest.batch)

    def _path(self, file: StagedFile) -> str:
        path = self._store.local_path(file.file)
        return str(path) if path is not None else f"{self._store.url}/{file.file}"

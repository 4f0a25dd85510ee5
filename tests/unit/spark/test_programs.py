"""Programs in a worker: what was imported for them stays out of the collector's way."""

from __future__ import annotations

import gc
import sys
import weakref

from anabranch.spark.programs import freeze_imports


def test_garbage_is_collected_and_imports_are_not_looked_at() -> None:
    freeze_imports(len(sys.modules))
    assert gc.get_freeze_count() > 10_000

    class Cycle:
        def __init__(self) -> None:
            self.own = self

    dropped = weakref.ref(Cycle())
    freeze_imports(len(sys.modules))
    gc.collect()
    assert dropped() is None

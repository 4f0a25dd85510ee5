"""Flows that run: the graph, with start and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from anabranch.model import BatchProgress
from anabranch.query.graph import FlowGraph
from anabranch.spark.driver import Driver
from anabranch.spark.session import local_session, refuse_connect
from anabranch.spark.settings import make_settings


class Flow(FlowGraph):
    """A keyed stream job: read, transform, key, aggregate, write; then run it on Spark."""

    def start(
        self,
        checkpoint: str,
        *,
        spark: SparkSession | None = None,
        on_progress: Callable[[BatchProgress], None] | None = None,
        **settings: Any,
    ) -> Handle:
        """Start the flow in the background and return a handle.

        Without a session, a local one is started. ``settings`` are those of ``RunSettings``: trigger, drain, slots …
        """
        checked = make_settings(checkpoint=str(checkpoint), **settings)
        if spark is not None:
            refuse_connect(spark)
        driver = Driver(self, checked, spark if spark is not None else local_session(), on_progress)
        driver.start()
        return Handle(driver)

    def run(
        self,
        checkpoint: str,
        *,
        spark: SparkSession | None = None,
        on_progress: Callable[[BatchProgress], None] | None = None,
        **settings: Any,
    ) -> list[BatchProgress]:
        """Run the flow until it ends, or until Ctrl-C, which lets the running batch finish; return its progress."""
        handle = self.start(checkpoint, spark=spark, on_progress=on_progress, **settings)
        try:
            handle.wait()
        except KeyboardInterrupt:
            handle.stop()
        return handle.progress


class Handle:
    """A running flow."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def stop(self, *, drain: bool = False, timeout_seconds: float | None = None) -> None:
        """End after the running batch; ``drain`` fires first what is still open."""
        self._driver.stop(drain, timeout_seconds)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end and say whether it came; raise what made the flow fail."""
        return self._driver.wait(timeout_seconds)

    @property
    def active(self) -> bool:
        """Whether the flow still runs."""
        return self._driver.active

    @property
    def progress(self) -> list[BatchProgress]:
        """What every batch of this run did."""
        return list(self._driver.progress)

    def exception(self) -> BaseException | None:
        """Return what made the flow fail, or None."""
        return self._driver.error

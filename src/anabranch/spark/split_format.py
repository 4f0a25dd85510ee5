"""The Python data source that puts a flow's splits into Structured Streaming's offsets, and into nothing else.

Spark starts several processes that import this module, and one of them plans splits: what planning needs is imported
there alone, and the others, half a second of processor time each, are spared it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from anabranch.spark.split_source import SplitPlanning

FORMAT = "anabranch-splits"
ROW_SCHEMA = "source int, kind string, payload binary"
"""The row shape of every source: blocks of rows that Spark read. Splits are in the log, not in rows."""

BLOCK = "block"


class SplitReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{"entry": n}``, numbers of the split log."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        # Spark pickles readers, and planning has a lock: it is made where it is needed.
        self._made: SplitPlanning | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"entry": self._planning().before_first}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"entry": self._planning().next_after(start["entry"])}

    def prepareForTriggerAvailableNow(self) -> None:
        self._planning().bound()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one partition without rows: the driver finds the splits in the log, by the offsets."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str, bytes]]:
        return iter(())

    def _planning(self) -> SplitPlanning:
        if self._made is None:
            from anabranch.spark.split_source import SplitPlanning

            self._made = SplitPlanning(self._options)
        return self._made


class SplitDataSource(DataSource):
    """``spark.readStream.format("anabranch-splits")``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ROW_SCHEMA

    def streamReader(self, schema: Any) -> SplitReader:
        return SplitReader(dict(self.options))

"""The streaming query that makes a flow's batches: its rows, its trigger, its part of the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.engine.settings import AVAILABLE_NOW, CONTINUOUS, ONCE, RunSettings
from anabranch.errors import CheckpointError
from anabranch.eventtime.durations import parse_duration
from anabranch.model import Source
from anabranch.query.nodes import Readable
from anabranch.spark.dataframes import SparkRows, SparkSource, rebind
from anabranch.spark.session import active_session
from anabranch.spark.split_format import FORMAT
from anabranch.spark.split_source import ControlFolder, NoSplits, register
from anabranch.state.store import Store

RETAINED = "spark.sql.streaming.minBatchesToRetain"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@dataclass(frozen=True, slots=True)
class FlowQuery:
    """How Structured Streaming is asked for the batches of a flow."""

    spark: SparkSession
    sources: Mapping[int, Readable]
    """By their number in the checkpoint."""
    settings: RunSettings
    store: Store
    control: ControlFolder

    @property
    def reads_spark_streams(self) -> bool:
        """Whether Spark itself brings rows in every batch."""
        return any(isinstance(source, SparkSource) and source.streaming for source in self.sources.values())

    @property
    def reads_static_frames(self) -> bool:
        """Whether the first batch has rows that no later one has."""
        return any(isinstance(source, SparkSource) and not source.streaming for source in self.sources.values())

    def put_sources(self) -> None:
        """Leave the sources where the process that plans splits finds them."""
        with active_session(self.spark):
            register(self.spark)
        self.control.put_sources({number: _stand_in(source) for number, source in self.sources.items()})

    def start(
        self, name: str, on_batch: Callable[[DataFrame, int], None], *, only_drain: bool = False
    ) -> StreamingQuery:
        """Start the query; with ``only_drain``, it brings no more splits, but the drain that was asked for."""
        with active_session(self.spark):
            # A batch that the checkpoint keeps can be gone back to only as long as Spark knows it, too.
            kept = max(int(str(self.spark.conf.get(RETAINED, "100"))), self.settings.kept_batches + 1)
            self.spark.conf.set(RETAINED, str(kept))
            self._write_logs_without_processes()
            self._check_spark_checkpoint()
            rows = self._read_splits(only_drain)
            # By their numbers: Spark knows its own sources by their order in the query.
            for number, source in sorted(self.sources.items()):
                if isinstance(source, SparkSource) and source.streaming:
                    rows = rows.union(rebind(source.packed(number), self.spark))
            writer = (
                rows.writeStream.foreachBatch(on_batch)
                .option("checkpointLocation", self._spark_checkpoint())
                .queryName(name)
            )
            trigger = self.settings.trigger
            if trigger in (AVAILABLE_NOW, ONCE):
                return writer.trigger(availableNow=True).start()
            interval = "0 seconds" if trigger == CONTINUOUS else f"{parse_duration(trigger) // 1000} milliseconds"
            return writer.trigger(processingTime=interval).start()

    def find_spark_rows(self, frame: DataFrame, batch: int) -> SparkRows | None:
        """Return the rows of a batch that Spark itself reads: those of its streams, at first also static ones."""
        rows = rebind(frame, self.spark) if self.reads_spark_streams else None
        if batch == 0:
            for number, source in sorted(self.sources.items()):
                if isinstance(source, SparkSource) and not source.streaming:
                    static = rebind(source.packed(number), self.spark)
                    rows = static if rows is None else rows.union(static)
        return None if rows is None else SparkRows(rows)

    def _read_splits(self, only_drain: bool) -> DataFrame:
        settings = self.settings
        most_entries = "0" if only_drain else "1" if settings.trigger == ONCE else ""
        return (
            self.spark.readStream.format(FORMAT)
            .option("checkpoint", self.store.url)
            .option("control", self.control.path)
            .option("drain", "true" if settings.drain and not self.reads_spark_streams else "false")
            .option("most_entries", most_entries)
            .load()
        )

    def _write_logs_without_processes(self) -> None:
        """On a local disk, have Spark's logs written by the file manager that starts two processes a file, not ten.

        Hadoop asks ``readlink`` and ``chmod`` about local files, by processes. What the two managers promise there is
        the same: a temporary file, a look whether the name is taken, a rename. A user's own choice stands.
        """
        if self.store.local_path("spark") is not None and self.spark.conf.get(FILE_MANAGER, None) is None:
            self.spark.conf.set(FILE_MANAGER, LOCAL_FILE_MANAGER)

    def _check_spark_checkpoint(self) -> None:
        """Raise ``CheckpointError`` if Spark cannot reach an object store: its way there is another than state's."""
        if self.store.local_path("spark") is not None:
            return
        jvm: Any = self.spark._jvm
        place = self._spark_checkpoint()
        try:
            path = jvm.org.apache.hadoop.fs.Path(place)
            path.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf()).exists(path)
        except Py4JJavaError as error:
            version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
            reason = str(error.java_exception.toString()).splitlines()[0]
            msg = (
                f"Spark cannot keep its part of the checkpoint at {place}: {reason}; it goes there through Hadoop: "
                f"start Spark with the store's library (S3: --packages org.apache.hadoop:hadoop-aws:{version}) and "
                "with spark.hadoop.fs.* settings that lead to the same place as the credentials in the environment"
            )
            raise CheckpointError(msg) from None

    def _spark_checkpoint(self) -> str:
        path = self.store.local_path("spark")
        return str(path) if path is not None else f"{self.store.url.replace('s3://', 's3a://')}/spark"


def _stand_in(source: Readable) -> Source:
    return NoSplits() if isinstance(source, SparkSource) else source  # type: ignore[return-value]

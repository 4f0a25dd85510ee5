"""The Yahoo Streaming Benchmark's Flink job, with Flink's Kafka connector from Maven Central."""

from __future__ import annotations

from pathlib import Path

from benchmarks.servers.jars import FLINK_CONNECTOR
from benchmarks.shared.peers.flink_java import SETTINGS, prepare_job

__all__ = ["KAFKA_SETTINGS", "SETTINGS", "SHADED_IN", "prepare_command"]

_SOURCES = sorted(Path(__file__).parent.glob("*.java"))
SHADED_IN = "org.apache.flink.kafka.shaded."
"""What goes before the packages of the Kafka client in Flink's connector."""
# Larger fetches than the defaults, as for the other systems.
KAFKA_SETTINGS = {
    "fetch.min.bytes": "1",
    "max.partition.fetch.bytes": "10485760",
    "max.poll.records": "5000",
    "receive.buffer.bytes": "1048576",
    "check.crcs": "false",
}


def prepare_command(cache_dir: Path, memory: str) -> list[str]:
    """Return the command that runs the job, fetching the connector and compiling it when that was not done yet."""
    return prepare_job("ysb", _SOURCES, "benchmarks.YsbJob", cache_dir, memory, (FLINK_CONNECTOR.fetch(),))

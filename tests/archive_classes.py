"""Write the classes that a flow on Spark or a Kafka broker loads into an archive: a JVM that maps it starts sooner.

Run as a script, with ``spark`` or ``kafka`` and the path of the archive. It is a matter of speed alone: where it fails,
tests run without.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.servers.jars import BROKER, ServerMissing
from benchmarks.servers.kafka import KafkaServer
from contracts.database_sinks import read_committed
from lab.drivers import DRIVER_ENVIRONMENT, SCRIPT, write_input
from quick_jvm import SHORT_LIVED, writes_classes
from servers.kafka import KafkaBroker

PATIENCE_SECONDS = 120.0


def main() -> None:
    """Let a JVM write what it loads, and put that in place."""
    # Brokers run in folders of their own.
    kind, archive = sys.argv[1], Path(sys.argv[2]).resolve()
    unfinished = archive.with_name(f"{archive.name}.{os.getpid()}")
    ended = {"spark": archive_spark, "kafka": archive_kafka}[kind](unfinished)
    if ended and unfinished.is_file():
        unfinished.replace(archive)
    else:
        unfinished.unlink(missing_ok=True)
        print(f"There is no archive of {kind}'s classes: JVMs of tests start without, and slower.", file=sys.stderr)


def archive_spark(path: Path) -> bool:
    """Run a short flow; say whether its JVM ended by itself."""
    with tempfile.TemporaryDirectory() as folder:
        write_input(Path(folder), files=2, rows=20, seed=1)
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **DRIVER_ENVIRONMENT, "UNDER_TEST_JVM": f"{SHORT_LIVED} {writes_classes(path)}"},
        )
        # The JVM ends, and writes, after the driver's Python.
        return wait_for_group(process)


class ArchivingBroker(KafkaBroker):
    """A broker that writes its classes when it is stopped."""

    archive: Path

    def jvm_options(self) -> list[str]:
        """Return those of a broker without an archive, and the one that writes."""
        return [*KafkaServer.jvm_options(self), writes_classes(self.archive)]


def archive_kafka(path: Path) -> bool:
    """Run a broker that does what tests ask of theirs; say whether it ended in order."""
    try:
        BROKER.find()
    except ServerMissing:
        return False
    broker = ArchivingBroker()
    broker.archive = path
    with broker:
        broker.create_topic("archived")
        broker.produce("archived", [b"message"])
        read_committed(broker.servers, "archived")
        broker.stop()
        return "ERROR" not in broker.log


def wait_for_group(leader: subprocess.Popen[bytes]) -> bool:
    """Wait until no process of the group is left; end those that do not end by themselves, and say that there were."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            leader.poll()
            os.killpg(leader.pid, 0)
            time.sleep(0.1)
        os.killpg(leader.pid, signal.SIGKILL)
        return False
    return True


if __name__ == "__main__":
    main()

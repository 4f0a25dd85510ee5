"""A Kafka broker of one's own: one node, KRaft, on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.bench.servers.jars import BROKER, ServerMissing
from anabranch.errors import AnabranchError

START_SECONDS = 90.0
STOP_SECONDS = 20.0
CLUSTER_ID = "QW5hYnJhbmNoVGVzdHMwMQ"
SASL_USER, SASL_PASSWORD = "reader", "a-secret-of-the-tests"
SMALL_HEAP_MB = 256

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl_port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl_port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.min.session.timeout.ms=500
log.retention.ms=-1
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.segment.delete.delay.ms=500
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=1
background.threads=2
"""


class BrokerError(AnabranchError):
    """A broker of one's own does not do what it was asked for."""


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens to at the moment."""
    taken = [socket.socket() for _ in range(count)]
    try:
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]
    finally:
        for one in taken:
            one.close()


@dataclass
class KafkaServer:
    """A broker process that can be stopped, killed, paused, and started again at the same ports with its data.

    A folder that another process made before is used with its topics, at new ports.
    """

    folder: Path
    heap_mb: int = SMALL_HEAP_MB
    ports: list[int] = field(default_factory=lambda: free_ports(3))
    process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """``host:port`` without security."""
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def sasl_servers(self) -> str:
        """``host:port`` that wants ``SASL_USER`` and ``SASL_PASSWORD`` (SASL_PLAINTEXT, mechanism PLAIN)."""
        return f"127.0.0.1:{self.ports[1]}"

    @property
    def log(self) -> str:
        """What the broker printed."""
        return (self.folder / "broker.log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, formatting its folder the first time, and wait until it answers."""
        if self.process is not None:
            msg = "the broker runs already"
            raise BrokerError(msg)
        properties = self._configure()
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._java("kafka.Kafka", str(properties)), stdout=log, stderr=log, cwd=self.folder
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                msg = f"the Kafka broker does not answer; it printed:\n{self.log[-4000:]}"
                raise BrokerError(msg)
            time.sleep(0.1)

    def stop(self) -> None:
        """End it in order; at once if that takes too long."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stop its clock: connections stay open, nothing answers."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused broker go on."""
        self._running().send_signal(signal.SIGCONT)

    def admin(self) -> Any:
        """Return a ``confluent_kafka.admin.AdminClient``."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers})

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic and wait until it is there; ``config`` has ``_`` for ``.`` in the settings' names."""
        from confluent_kafka.cimpl import NewTopic

        settings = {name.replace("_", "."): value for name, value in config.items()}
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)
        wait_for(lambda: topic in admin.list_topics(timeout=10).topics)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(30)
        wait_for(lambda: topic not in admin.list_topics(timeout=10).topics)

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            msg = "the broker does not run"
            raise BrokerError(msg)
        return self.process

    def _configure(self) -> Path:
        """Write the settings anew, since ports may have changed; format the folder if that was not done yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        properties.write_text(
            _PROPERTIES.format(
                port=self.ports[0],
                sasl_port=self.ports[1],
                controller_port=self.ports[2],
                folder=self.folder,
                user=SASL_USER,
                password=SASL_PASSWORD,
            )
        )
        if (self.folder / "data" / "meta.properties").exists():
            return properties
        command = self._java(
            "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(properties)
        )
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        if outcome.returncode != 0:
            msg = f"formatting the broker's folder failed:\n{outcome.stdout}{outcome.stderr}"
            raise BrokerError(msg)
        return properties

    def _java(self, main: str, *arguments: str) -> list[str]:
        java = shutil.which("java") if "JAVA_HOME" not in os.environ else f"{os.environ['JAVA_HOME']}/bin/java"
        if java is None:
            msg = "there is no Java for the Kafka broker; install Java 17"
            raise ServerMissing(msg)
        return [
            java,
            f"-Xmx{self.heap_mb}m",
            "-XX:+UseSerialGC",
            # A broker of tests lives for minutes: the slow, thorough compiler is not worth its time.
            *(["-XX:TieredStopAtLevel=1"] if self.heap_mb <= SMALL_HEAP_MB else []),
            "-Dorg.apache.logging.log4j.level=WARN",
            "-cp",
            f"{BROKER.find()}/*",
            main,
            *arguments,
        ]

    def _answers(self) -> bool:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", self.ports[0])) != 0:
                return False
        try:
            return bool(self.admin().list_topics(timeout=2).brokers)
        except Exception:  # confluent_kafka is imported where it is used, and so is its exception
            return False


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until the broker has done what it was asked for."""
    deadline = time.monotonic() + 30.0
    while not condition():
        if time.monotonic() > deadline:
            msg = "the broker does not do what it was asked for"
            raise BrokerError(msg)
        time.sleep(0.05)

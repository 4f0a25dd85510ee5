"""A Kafka broker of one's own: one node, KRaft, on loopback."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anabranch.lab.ports import LOOPBACK, find_free_ports
from benchmarks.servers.jars import BROKER, ServerMissing
from benchmarks.servers.processes import ServerError, ServerProcess

CLUSTER_ID = "QW5hYnJhbmNoVGVzdHMwMQ"
SASL_USER, SASL_PASSWORD = "reader", "a-secret-of-the-tests"
SMALL_HEAP_MB = 256
_PATIENCE_SECONDS = 90.0
_formatted: dict[str, bytes] = {}
"""What a formatted folder holds, once this process has formatted one."""

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


@dataclass
class KafkaServer(ServerProcess):
    """A broker; a folder that another process made before is used with its topics, at new ports."""

    heap_mb: int = SMALL_HEAP_MB
    ports: list[int] = field(default_factory=lambda: find_free_ports(3), kw_only=True)

    def __post_init__(self) -> None:
        self.port = self.ports[0]

    @property
    def servers(self) -> str:
        """``host:port`` without security."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def sasl_servers(self) -> str:
        """``host:port`` that wants ``SASL_USER`` and ``SASL_PASSWORD`` (SASL_PLAINTEXT, mechanism PLAIN)."""
        return f"{LOOPBACK}:{self.ports[1]}"

    def command(self) -> list[str]:
        """Return the command that runs the broker."""
        return self._java("kafka.Kafka", str(self.folder / "server.properties"))

    def prepare(self) -> None:
        """Write the settings anew, since ports may have changed; format the folder if that was not done yet."""
        properties, data = self.folder / "server.properties", self.folder / "data"
        properties.write_text(self.properties())
        if (data / "meta.properties").exists():
            return
        if not _formatted:
            format_it = ("format", "--cluster-id", CLUSTER_ID, "--config", str(properties))
            self.run(*self._java("kafka.tools.StorageTool", *format_it))
            _formatted.update({path.name: path.read_bytes() for path in data.iterdir()})
        # Every broker is node 1 of its own cluster: what was written for one serves all, without another JVM.
        data.mkdir(exist_ok=True)
        for name, content in _formatted.items():
            (data / name).write_bytes(content)

    def properties(self) -> str:
        """Return the broker's settings; of two lines for one setting, the later counts."""
        return _PROPERTIES.format(
            port=self.port,
            sasl_port=self.ports[1],
            controller_port=self.ports[2],
            folder=self.folder,
            user=SASL_USER,
            password=SASL_PASSWORD,
        )

    def jvm_options(self) -> list[str]:
        """Return what its JVM is started with, besides its classes."""
        return [
            f"-Xmx{self.heap_mb}m",
            "-XX:+UseSerialGC",
            # A broker of tests lives for minutes: the slow, thorough compiler is not worth its time.
            *(["-XX:TieredStopAtLevel=1"] if self.heap_mb <= SMALL_HEAP_MB else []),
            "-Dorg.apache.logging.log4j.level=WARN",
        ]

    def answers(self) -> bool:
        """Say whether the broker takes requests."""
        if not super().answers():
            return False
        try:
            return bool(self.admin().list_topics(timeout=2).brokers)
        except Exception:  # confluent_kafka is imported where it is used, and so is its exception
            return False

    def admin(self) -> Any:
        """Return a ``confluent_kafka.admin.AdminClient``."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers})

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic and wait until it is there; ``config`` has ``_`` for ``.`` in the settings' names."""
        from confluent_kafka.cimpl import NewTopic

        settings = {name.replace("_", "."): value for name, value in config.items()}
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(_PATIENCE_SECONDS)
        wait_for(lambda: topic in admin.list_topics(timeout=10).topics)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(_PATIENCE_SECONDS)
        wait_for(lambda: topic not in admin.list_topics(timeout=10).topics)

    def _java(self, main: str, *arguments: str) -> list[str]:
        java = shutil.which("java") if "JAVA_HOME" not in os.environ else f"{os.environ['JAVA_HOME']}/bin/java"
        if java is None:
            msg = "there is no Java for the Kafka broker; install Java 17"
            raise ServerMissing(msg)
        return [java, *self.jvm_options(), "-cp", f"{BROKER.find()}/*", main, *arguments]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until the broker has done what it was asked for."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            msg = "the broker does not do what it was asked for"
            raise ServerError(msg)
        time.sleep(0.05)

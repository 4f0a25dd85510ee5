"""A topic of a cluster, and whether two of them are one, however their servers were named."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.connectors.kafka_topics.cluster import LiveCluster, OutOfReach
from anabranch.connectors.kafka_topics.connection import KafkaConnection
from anabranch.errors import SourceError


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, by its name and the servers that have it."""

    connection: KafkaConnection
    name: str

    def __str__(self) -> str:
        return f"the topic {self.name} of {self.connection.servers}"

    def is_same(self, other: Topic) -> bool:
        """Say whether both are one; servers are asked only where the names are equal and the addresses are not."""
        if self.name != other.name:
            return False
        if self._addresses() & other._addresses():
            return True
        own, others = self._id(), other._id()
        return own is not None and own == others

    def _addresses(self) -> set[str]:
        return {address.rpartition("://")[2].lower() for address in self.connection.servers.split(",")}

    def _id(self) -> str | None:
        try:
            facts = LiveCluster(self.connection).topics([self.name]).get(self.name)
        except (OutOfReach, SourceError):
            # Whoever wants to use the topic will say so.
            return None
        return None if facts is None else facts.id

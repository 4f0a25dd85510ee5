"""Where a Kafka source stands: the next offset of every partition, as plain data in the split log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anabranch.connectors.kafka.cluster import TopicPart


@dataclass(slots=True)
class Position:
    """A position, taken apart."""

    next: dict[TopicPart, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    """Topic → the id it had when it was read last."""
    row_bytes: dict[str, float] = field(default_factory=dict)
    """Topic → the size of a message, from a sample of its first ones."""

    def knows(self, topic: str) -> bool:
        """Say whether the topic was read from before."""
        return topic in self.ids

    def forget_offsets(self, topic: str) -> list[tuple[int, int]]:
        """Forget how far a topic was read, and return it: (partition, next offset)."""
        parts = sorted(part for part in self.next if part.topic == topic)
        return [(part.number, self.next.pop(part)) for part in parts]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "topics": {
                topic: {
                    "id": self.ids[topic],
                    "row_bytes": self.row_bytes.get(topic),
                    "next": {
                        str(part.number): offset for part, offset in sorted(self.next.items()) if part.topic == topic
                    },
                }
                for topic in sorted(self.ids)
            }
        }

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> Position:
        """Read what ``to_json`` wrote; None is the very start."""
        position = cls()
        for topic, facts in (data or {}).get("topics", {}).items():
            position.ids[topic] = facts["id"]
            if facts["row_bytes"] is not None:
                position.row_bytes[topic] = facts["row_bytes"]
            for number, offset in facts["next"].items():
                position.next[TopicPart(topic, int(number))] = offset
        return position

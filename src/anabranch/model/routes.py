"""Where keys go."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_BUCKETS = 512


@dataclass(frozen=True, slots=True)
class BucketMap:
    """Bucket → slot for one stateful level; ``slot_of[b]`` is the owner of bucket b."""

    slots: int
    slot_of: tuple[int, ...]

    @property
    def buckets(self) -> int:
        return len(self.slot_of)

    @classmethod
    def even(cls, slots: int, buckets: int = DEFAULT_BUCKETS) -> BucketMap:
        """Deal the buckets to the slots in turn."""
        return cls(slots, tuple(bucket % slots for bucket in range(buckets)))

"""How many messages of each partition the next batch takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

PartT = TypeVar("PartT", bound=tuple[str, int])


def share_out(waiting: Mapping[PartT, int], most: int | None) -> dict[PartT, int]:
    """Return how many messages each partition gives, at most ``most`` together, as evenly as they can.

    What small partitions leave goes to the others. The remainder of a division goes to those that have the most
    waiting, so that none is passed over for ever.
    """
    if most is None or sum(waiting.values()) <= most:
        return dict(waiting)
    granted: dict[PartT, int] = {}
    left = most
    by_size = sorted(waiting, key=lambda part: (waiting[part], part))
    for place, part in enumerate(by_size):
        share = left // (len(by_size) - place)
        granted[part] = min(waiting[part], share)
        left -= granted[part]
    for part in sorted(waiting, key=lambda part: (-waiting[part], part)):
        extra = min(left, waiting[part] - granted[part])
        granted[part] += extra
        left -= extra
    return granted

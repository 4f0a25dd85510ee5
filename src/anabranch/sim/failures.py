"""What happens to hosts, and when; drawn by a generator that is passed in, so that a seed tells the whole story."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anabranch.sim.cluster import SimulationError

HostChange = Literal["fail", "cut", "return"]
"""*fail*: the host is gone, with its memory. *cut*: nobody reaches it, and it keeps its memory. *return*: it is there
again, empty after it failed, with old copies after it was cut off."""


@dataclass(frozen=True, slots=True, order=True)
class HostEvent:
    """Something happens to a host."""

    at_seconds: float
    host: str
    change: HostChange


def draw_waves(
    rng: np.random.Generator, hosts: Sequence[str], sizes: Sequence[int], start_seconds: float, between_seconds: float
) -> tuple[HostEvent, ...]:
    """Return failures of so many hosts at once, one wave after another; no host comes back."""
    if sum(sizes) > len(hosts):
        msg = f"{sum(sizes)} of {len(hosts)} hosts cannot fail; give as many as there are at most"
        raise SimulationError(msg)
    order = [hosts[int(place)] for place in rng.permutation(len(hosts))[: sum(sizes)]]
    moments = [start_seconds + wave * between_seconds for wave, size in enumerate(sizes) for _ in range(size)]
    return tuple(sorted(HostEvent(moment, host, "fail") for moment, host in zip(moments, order, strict=True)))


def draw_history(
    rng: np.random.Generator,
    hosts: Sequence[str],
    *,
    seconds: float,
    mean_seconds_between: float,
    mean_seconds_away: float,
    cut_share: float = 0.3,
) -> tuple[HostEvent, ...]:
    """Return failures at random moments, each host back some time later; a share of them is only cut off."""
    events: list[HostEvent] = []
    away_until = dict.fromkeys(hosts, 0.0)
    now = 0.0
    while (now := now + float(rng.exponential(mean_seconds_between))) < seconds:
        present = [host for host in hosts if away_until[host] <= now]
        if not present:
            continue
        host = present[int(rng.integers(len(present)))]
        back = now + float(rng.exponential(mean_seconds_away))
        away_until[host] = back
        events.append(HostEvent(now, host, "cut" if rng.random() < cut_share else "fail"))
        events.append(HostEvent(back, host, "return"))
    return tuple(sorted(events))

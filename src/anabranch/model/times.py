"""The time that a batch runs under."""

from __future__ import annotations

from dataclasses import dataclass

BEGINNING_OF_TIME = -(2**62)
"""A watermark that closes nothing, in microseconds."""

END_OF_TIME = 2**62
"""A watermark that closes everything, in microseconds: what a drain uses."""


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """What one stateful operator must know about time in one batch; all in microseconds.

    A row whose window ended at or before ``closed_us`` is late. After the batch's rows are in,
    windows that end at or before ``fire_us`` are emitted and dropped. The first hop has both equal;
    a hop fed by windows that fire in this same batch has the previous batch's watermark as ``closed_us``.
    Windows that end at or before ``fired_us``, the ``fire_us`` of the previous batch, were emitted already:
    panes of sliding windows and fragments of sessions outlive the first window they were part of.
    """

    batch: int
    closed_us: int = BEGINNING_OF_TIME
    fire_us: int = BEGINNING_OF_TIME
    now_us: int = 0
    fired_us: int = BEGINNING_OF_TIME

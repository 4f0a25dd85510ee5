"""How many executors a flow wants, and when it changes its mind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from anabranch.model.loads import LoadError
from anabranch.model.named_settings import check_names, read_number

SMALLEST_IMPROVEMENT = 0.01
_SHARES = ("target", "upper", "lower", "memory")


@dataclass(frozen=True, slots=True)
class Elasticity:
    """Between how many executors a flow grows and shrinks, and what makes it.

    What counts is the share of the executors' cores that the rows take that *come*, with what they cost: not what
    cores do, which cannot be more than all they have.

    Examples:
        >>> elastic = ab.Elasticity(min_executors=2, max_executors=20, target=0.5)
        >>> elastic.target, elastic.upper, elastic.lower
        (0.5, 0.8, 0.4)
        >>> ab.Elasticity(target=0.9)
        Traceback (most recent call last):
        ...
        anabranch.model.loads.LoadError: lower 0.4, target 0.9 and upper 0.8 must rise in this order; \
a flow is brought to its target when it leaves what is between the other two
    """

    target: float = 0.6
    """The share of their cores that executors are to be busy with, after every change of their number."""
    upper: float = 0.8
    """Above this share there are too few executors."""
    lower: float = 0.4
    """Below this share there are too many."""
    imbalance: float = 0.05
    """Slots get other homes when the standard deviation of the executors' shares is above this, by default also those
    of flows that neither grow nor shrink. At the default target, four executors of which one has 15 % more to do than
    the mean are just there."""
    smallest_improvement: float = SMALLEST_IMPROVEMENT
    """By how much the busier of two executors must at least get less to do when a slot moves between them, as a part of
    what an executor has to do in the mean."""
    min_executors: int = 1
    max_executors: int = 100
    slots_per_executor: int | None = None
    """Slots of a subquery, and tasks that read, for each executor; its cores, if nobody says."""
    cores_per_executor: float | None = None
    """What an executor has of the processors, as 0.5 of one: to be said where a quota gives it less than the cores for
    tasks that Spark knows of, as limits in Kubernetes may."""
    memory_mb_per_executor: float | None = None
    """What an executor has of memory for state and blocks, which are Python's, in MiB; None: what Spark's settings give
    Python, that is ``spark.executor.pyspark.memory`` or the overhead. Standalone clusters limit neither: there, memory
    counts only if it is said."""
    memory: float = 0.7
    """The share of that memory that executors may fill; more, and there are too few of them."""
    catch_up_seconds: float = 60.0
    """Within so long, rows that wait at the sources are to be worked off, by executors busy up to ``upper``."""
    cool_down_seconds: float = 30.0
    """So long after it grew, a flow does not grow again: executors must have come, and be seen working."""
    samples_up: int = 2
    """So many batches in a row must show that there are too few executors; one may be chance."""
    samples_down: int = 5
    """So many batches in a row must show that there are too many …"""
    seconds_down: float = 120.0
    """… for at least so long, since the flow last changed as well."""

    def __post_init__(self) -> None:
        for name in _SHARES:
            share = getattr(self, name)
            if not 0 < share <= 1:
                msg = f"{name} is {share}; it is a share of what executors have: give a number above 0 and at most 1"
                raise LoadError(msg)
        if not self.lower < self.target < self.upper:
            msg = f"lower {self.lower:g}, target {self.target:g} and upper {self.upper:g} must rise in this order; "
            msg += "a flow is brought to its target when it leaves what is between the other two"
            raise LoadError(msg)
        if not 1 <= self.min_executors <= self.max_executors:
            msg = f"min_executors is {self.min_executors} and max_executors {self.max_executors}; "
            msg += "give at least 1, and no fewer at most than at least"
            raise LoadError(msg)
        if self.slots_per_executor is not None and self.slots_per_executor < 1:
            msg = f"slots_per_executor is {self.slots_per_executor}; give at least 1, or None for an executor's cores"
            raise LoadError(msg)
        if self.cores_per_executor is not None and not 0 < self.cores_per_executor < math.inf:
            msg = f"cores_per_executor is {self.cores_per_executor}; give a number above 0, or None for Spark's own"
            raise LoadError(msg)
        if self.memory_mb_per_executor is not None and not 0 < self.memory_mb_per_executor < math.inf:
            msg = f"memory_mb_per_executor is {self.memory_mb_per_executor}; give a number above 0, "
            msg += "or None for what Spark's settings say"
            raise LoadError(msg)
        for name in ("samples_up", "samples_down"):
            if getattr(self, name) < 1:
                msg = f"{name} is {getattr(self, name)}; a decision needs at least 1 batch"
                raise LoadError(msg)
        if not 0 < self.catch_up_seconds < math.inf:
            msg = f"catch_up_seconds is {self.catch_up_seconds}; give a number above 0"
            raise LoadError(msg)
        for name in ("imbalance", "smallest_improvement", "cool_down_seconds", "seconds_down"):
            if not getattr(self, name) >= 0:
                msg = f"{name} is {getattr(self, name)}; give 0 for none"
                raise LoadError(msg)

    @classmethod
    def from_names(cls, given: Mapping[str, Any]) -> Elasticity:
        """Return settings that are given by name, as flow files give them; raise ``LoadError`` if one is no setting."""
        known = {one.name: str(one.type) for one in fields(cls)}
        check_names(given, known)
        read: dict[str, Any] = {
            name: value if value is None else read_number(name, value, is_whole="int" in known[name])
            for name, value in given.items()
        }
        return cls(**read)

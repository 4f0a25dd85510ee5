"""Why a plan leaves slots above their limits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing.goals import ROUNDING
from anabranch.balancing.planners.problem import Problem


def describe_shortfall(problem: Problem, loads_after: NDArray[np.float64]) -> str:
    """Return which slots stay above their limits, by how much and why; nothing when none does."""
    over = np.flatnonzero(loads_after > problem.limits + ROUNDING * problem.means.max(initial=0.0))
    if not len(over):
        return ""
    loads = problem.loads
    worst = over[np.argmax(loads_after[over] - problem.limits[over])]
    shown = ", ".join(str(slot) for slot in over[:5].tolist()) + (" …" if len(over) > 5 else "")
    found = (
        f"{'slot' if len(over) == 1 else 'slots'} {shown} {'stays' if len(over) == 1 else 'stay'} above the limit: "
        f"slot {worst} carries {loads_after[worst]:.6g}, its limit is {problem.limits[worst]:.6g}"
    )
    unlisted = np.zeros(len(loads_after))
    if loads.unlisted is not None:
        unlisted[: len(loads.unlisted)] = loads.unlisted
    if (unlisted > problem.limits)[over].any():
        return f"{found}; keys that are not listed make up more than that, so move buckets"
    if loads.splittable is not None and not loads.splittable.all():
        count = int((~loads.splittable).sum())
        return f"{found}; {count} {'key' if count == 1 else 'keys'} may not be split"
    return f"{found}; keys are moved whole by this planner, so take mnrt or qmmp, which split them"

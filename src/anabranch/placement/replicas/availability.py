"""How likely a flow goes on from memory when hosts fail: by looking at every set of hosts that could."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.model.cluster import Homes
from anabranch.model.loads import LoadError
from anabranch.placement.replicas.plan import StandingReplicas

Bools = NDArray[np.bool_]
MOST_SETS = 3_000_000
"""More sets of failed hosts are not looked at one by one."""


def list_copies(hosts: Sequence[str], homes: Homes, replicas: StandingReplicas) -> Bools:
    """Return by slot (row) and host (column) whether there is a copy, the slot's own included."""
    places = {host: place for place, host in enumerate(hosts)}
    copies = np.zeros((len(homes), len(hosts)), np.bool_)
    for row, (slot, home) in enumerate(sorted(homes.items())):
        copies[row, [places[host] for host in (home, *replicas.get(slot, ()))]] = True
    return copies


def list_failures(hosts: int, failures: int) -> Bools:
    """Return every set of so many failed hosts, one a row."""
    sets = math.comb(hosts, failures)
    if sets > MOST_SETS:
        msg = (
            f"{failures} of {hosts} hosts can fail in {sets:,} ways, more than {MOST_SETS:,}; draw some of them instead"
        )
        raise LoadError(msg)
    failed = np.zeros((sets, hosts), np.bool_)
    chosen = np.fromiter(
        itertools.chain.from_iterable(itertools.combinations(range(hosts), failures)), np.int64, sets * failures
    ).reshape(sets, failures)
    np.put_along_axis(failed, chosen, True, axis=1)
    return failed


def find_survived(copies: Bools, failed: Bools) -> Bools:
    """Return for each set of failed hosts whether every slot has a copy left: a strict flow needs them all."""
    survived = np.ones(len(failed), np.bool_)
    for hosts in np.unique(copies, axis=0):
        # One set of hosts at a time: slots often share theirs.
        survived &= ~failed[:, hosts].all(axis=1)
    return survived


def find_availability(copies: Bools, failures: int) -> float:
    """Return the part of all sets of so many failed hosts after which every slot has a copy left."""
    return float(find_survived(copies, list_failures(copies.shape[1], failures)).mean())

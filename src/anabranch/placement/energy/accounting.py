"""How the paper on energy accounts for what is saved: by traffic, and by constant power a host."""

from __future__ import annotations

from anabranch.model.loads import LoadError


def saved_by_traffic(changed: int, paths: int, cost_seconds: float, rows: float, watts: float) -> float:
    """Return the joules that are saved when of all paths between hosts some become paths within one: (d/n)·W·M·P.

    ``cost_seconds`` is what a row costs between hosts, in time; computing costs the same before and after. Energy of
    hosts as such, which the paper leaves out, is not in it.
    """
    if not 0 <= changed <= paths or paths < 1:
        msg = f"{changed} of {paths} paths between hosts change; give no more than there are, and at least one path"
        raise LoadError(msg)
    return changed / paths * cost_seconds * rows * watts


def saved_by_hosts(hosts: int, released: int, rate_change: float) -> float:
    """Return the share of energy that a row takes less if every host draws the same whatever it does.

    ``rate_change`` is how many more rows pass, as a share. At an equal rate, 2 of 16 hosts save 12.5 % and no more.
    """
    if not 0 <= released < hosts or rate_change <= -1:
        msg = f"{released} of {hosts} hosts are released at {1 + rate_change:g} × the rate; somebody must do the work"
        raise LoadError(msg)
    return 1 - (1 - released / hosts) / (1 + rate_change)

"""Whether this machine can have hosts of its own."""

from __future__ import annotations

from anabranch.lab.errors import LabError
from anabranch.lab.namespaces import find_hindrance, host_network

SOME_MBIT = 100.0


def find_what_is_missing() -> str | None:
    """Say why there can be no hosts here, also where that shows only when one is made."""
    hindrance = find_hindrance()
    if hindrance is not None:
        return hindrance
    try:
        with host_network(1) as network:
            network.limit(SOME_MBIT)
    except LabError as error:
        return str(error)
    return None

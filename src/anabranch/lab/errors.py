"""What the lab raises."""

from __future__ import annotations

from anabranch.errors import AnabranchError


class LabError(AnabranchError):
    """This machine cannot give what was asked for: hosts, a limit of a wire, a free port, a cluster that starts."""

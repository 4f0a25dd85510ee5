"""The flow's time in a manifest: by the watermark's place among the flow's watermarks, not by its node.

Nodes are numbered anew when a stateless step is added, which a checkpoint must survive.
"""

from __future__ import annotations

from typing import Any

from anabranch.eventtime.watermarks import FlowTime
from anabranch.query.nodes import Watermark
from anabranch.query.plan import Plan
from anabranch.state.manifest import Manifest


def load_time(plan: Plan, manifest: Manifest | None) -> FlowTime:
    """Return what was known of time after a batch, by watermark node."""
    if manifest is None:
        return FlowTime()
    return FlowTime.from_json(manifest.watermarks).renamed(dict(enumerate(_watermark_nodes(plan))))


def store_time(plan: Plan, time: FlowTime) -> dict[str, Any]:
    """Return what a manifest keeps of a flow's time."""
    return time.renamed({node: place for place, node in enumerate(_watermark_nodes(plan))}).to_json()


def _watermark_nodes(plan: Plan) -> list[int]:
    return [node.id for node in plan.nodes.values() if isinstance(node.operation, Watermark)]

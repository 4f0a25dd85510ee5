"""Where a flow runs and how much at a time: homes of slots, numbers of executors, sizes of batches."""

from anabranch.placement.admission import AdmissionState, BatchTiming, admit, begin_admission, measure_offered
from anabranch.placement.elasticity import (
    ClusterReading,
    ElasticDecision,
    ElasticState,
    decide_size,
    read_cluster,
)
from anabranch.placement.homes import HomeMove, HomePlan, choose_homes, follow_loads, measure_slots, plan_homes

__all__ = [
    "AdmissionState",
    "BatchTiming",
    "ClusterReading",
    "ElasticDecision",
    "ElasticState",
    "HomeMove",
    "HomePlan",
    "admit",
    "begin_admission",
    "choose_homes",
    "decide_size",
    "follow_loads",
    "measure_offered",
    "measure_slots",
    "plan_homes",
    "read_cluster",
]

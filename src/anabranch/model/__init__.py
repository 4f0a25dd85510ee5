"""The vocabulary: frozen data that every other room speaks."""

from anabranch.model.columns import BATCH, BUCKET, HASH, ORDER, SEEN, TIME, WINDOW, WINDOW_END, WINDOW_START
from anabranch.model.operations import (
    Aggregate,
    AggregateSpec,
    Column,
    DistinctSpec,
    Fired,
    Kernel,
    OperatorSpec,
    Prepared,
    Standing,
    TopKSpec,
    WindowSpec,
)
from anabranch.model.progress import BatchProgress
from anabranch.model.routes import BucketMap, RouteError, RoutingTable, Share
from anabranch.model.runs import RunReader, RunRef, RunWriter, SlotState
from anabranch.model.splits import Admission, PlannedSplits, ReadOutcome, Sink, Source, Split, SplitPlanner, StagedFile
from anabranch.model.times import BEGINNING_OF_TIME, END_OF_TIME, OperatorTime

__all__ = [
    "BATCH",
    "BEGINNING_OF_TIME",
    "BUCKET",
    "END_OF_TIME",
    "HASH",
    "ORDER",
    "SEEN",
    "TIME",
    "WINDOW",
    "WINDOW_END",
    "WINDOW_START",
    "Admission",
    "Aggregate",
    "AggregateSpec",
    "BatchProgress",
    "BucketMap",
    "Column",
    "DistinctSpec",
    "Fired",
    "Kernel",
    "OperatorSpec",
    "OperatorTime",
    "PlannedSplits",
    "Prepared",
    "ReadOutcome",
    "RouteError",
    "RoutingTable",
    "RunReader",
    "RunRef",
    "RunWriter",
    "Share",
    "Sink",
    "SlotState",
    "Source",
    "Split",
    "SplitPlanner",
    "StagedFile",
    "Standing",
    "TopKSpec",
    "WindowSpec",
]

"""Test a flow without Spark: rows and the clock in your hands, a batch at a time, in milliseconds."""

from anabranch.engine.faults import MOMENTS, Killed
from anabranch.testing.tester import Batch, FlowTester

__all__ = ["MOMENTS", "Batch", "FlowTester", "Killed"]

"""A small flow on disk, for tests of commands that read flows."""

from __future__ import annotations

from pathlib import Path

FLOW = """\
flow: low-voltage
sources:
  readings: {files: {path: readings, format: json, schema: {sensor: Int64, ts: Datetime(ms), volts: Float64}}}
streams:
  alerts:
    from: readings
    steps:
      - key_by: sensor
      - watermark: {column: ts, delay: 2s}
      - window: 10s
      - agg: {readings: count, lowest: {min: volts}}
    to: {parquet: alerts}
"""


def write_flow(folder: Path, run: str = "") -> Path:
    """Write a flow with an empty folder of readings; ``run`` is the text of its run section."""
    (folder / "readings").mkdir(exist_ok=True)
    flow = folder / "flow.yaml"
    flow.write_text(FLOW + (f"run: {run}\n" if run else ""), encoding="utf-8")
    return flow

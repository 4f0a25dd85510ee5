"""Sinks to servers in flow files: named like the Python functions, and shown without passwords."""

from __future__ import annotations

from pathlib import Path

from anabranch.cli.loading import load

FLOW = """
flow: alerts
sources:
  readings:
    files: {path: readings/, format: json, schema: {sensor: Int64, ts: Datetime(ms), volts: Float64}}
streams:
  windows:
    from: readings
    steps:
      - watermark: {column: ts, delay: 2s}
      - key_by: sensor
      - window: 10s
      - agg: {lowest: {min: volts}}
    to:
      - postgres: {url: "postgresql://me:hush@db/results", table: alerts, keys: [sensor, window_start]}
      - mariadb: {url: "mariadb://me:hush@db/results", table: alerts, keys: [sensor, window_start], batch_column: batch}
      - redis_hashes:
          url: "redis://:hush@cache/0"
          key: "alert:{sensor}:{window_start:ms}"
          index: ["sensor:{sensor}", "{window_start:ms}"]
      - delta: {path: lake/alerts, partition_by: sensor}
      - kafka_topic: {servers: "kafka:9092", topic: alerts, key: sensor, options: {sasl.password: hush}}
"""


def test_flow_files_name_sinks_to_servers_and_show_no_passwords(tmp_path: Path) -> None:
    (tmp_path / "readings").mkdir()
    (tmp_path / "flow.yaml").write_text(FLOW)
    graph = load(str(tmp_path / "flow.yaml")).graph
    graph.check()
    assert [sink.label for sink in graph.sinks] == [
        "postgres postgresql://db/results alerts (upsert by sensor, window_start)",
        "mariadb mariadb://db/results alerts (upsert by sensor, window_start)",
        "redis redis://cache/0 alert:{sensor}:{window_start:ms}",
        f"delta {tmp_path}/lake/alerts (append)",
        "kafka kafka:9092 alerts (json)",
    ]
    assert "hush" not in graph.explain() + "".join(map(repr, graph.sinks))

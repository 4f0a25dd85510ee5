"""Low voltage per sensor, in windows of five seconds: the same flow as flow.yaml, in Python.

anabranch run examples/low_voltage/flow.py --checkpoint examples/low_voltage/output/state --trigger 1s
"""

from __future__ import annotations

from pathlib import Path

import anabranch as ab

OUTPUT = Path(__file__).parent / "output"

flow = ab.Flow("low-voltage")
(
    flow.read(
        ab.generate(
            50_000,
            # Few sensors send most of the readings: sensor 0 alone about one in seven.
            keys=ab.zipf(20_000, 1.1),
            columns=("sensor", "ts", "volts"),
            # Around 230 V; each sensor has a mean of its own.
            values=ab.GeneratedValues(mean=230.0, sigma=4.0, key_sigma=6.0),
            disorder="2s",
            seed=7,
        )
    )
    .with_columns(low="CAST(volts < 207 AS BIGINT)")
    .key_by("sensor")
    .watermark("ts", delay="2s")
    .window("5s")
    .agg(readings=ab.count(), low_readings=ab.sum("low"), lowest=ab.min("volts"), mean=ab.mean("volts"))
    .filter("low_readings > 0")
    .write(ab.parquet(OUTPUT / "alerts"))
)

if __name__ == "__main__":
    flow.run(checkpoint=str(OUTPUT / "state"), trigger="1s")

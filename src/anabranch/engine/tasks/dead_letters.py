"""Rows that cannot be used, as the dead-letter sink gets them."""

from __future__ import annotations

import polars as pl

from anabranch.connectors.formats.json_texts import write_json_rows

DEAD_LETTER_SCHEMA: dict[str, pl.DataType] = {"source": pl.String(), "reason": pl.String(), "payload": pl.String()}
_PAYLOAD_BYTES = 4096


def bury_rows(frame: pl.DataFrame, where: str, reason: str) -> pl.DataFrame:
    """Return a dead letter a row: where it came, why it cannot go on, and the row as JSON, of whatever types it is."""
    return pl.DataFrame({"payload": write_json_rows(frame).str.slice(0, _PAYLOAD_BYTES)}).select(
        pl.lit(where).alias("source"), pl.lit(reason).alias("reason"), "payload"
    )


def bury_texts(where: str, rejected: tuple[tuple[str, str], ...]) -> pl.DataFrame:
    """Return a dead letter a (reason, text) of what could not even be read as a row."""
    return pl.DataFrame(
        {
            "source": [where] * len(rejected),
            "reason": [reason for reason, _ in rejected],
            "payload": [text for _, text in rejected],
        },
        schema=DEAD_LETTER_SCHEMA,
    )

"""What must hold of every reader and writer of messages: quick tests try some cases, soak runs many."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import numpy as np

from anabranch.connectors.kafka import avro_blocks
from anabranch.connectors.kafka.avro_values import AvroValues, columns_of
from anabranch.connectors.kafka.messages import Messages, join_values
from formats import avro
from formats.differences import same


def messages_of(values: list[bytes]) -> Messages:
    return Messages("t", 0, join_values(values), np.arange(len(values)))


def check_avro(case: avro.Case, *, compiled: bool) -> None:
    """Compare with a decoder that knows nothing but the specification."""
    text = json.dumps(case.schema)
    with patch.object(avro_blocks, "FEWEST_MESSAGES", 0 if compiled else 10**9):
        decoded = AvroValues(columns_of(text), text).decode(messages_of(case.messages))
    expected: list[dict[str, Any]] = []
    faulty: list[int] = []
    for index, message in enumerate(case.messages):
        try:
            expected.append(avro.Decoder(message).record(case.schema))
        except avro.Malformed:
            faulty.append(index)
    assert [index for index, _ in decoded.faults] == faulty, decoded.faults
    assert same(decoded.frame.rows(named=True), expected)

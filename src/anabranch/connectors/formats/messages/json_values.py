"""Messages that hold one JSON object each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from anabranch.connectors.formats.declared_json import walk_placed_lines
from anabranch.connectors.formats.fixed_layout_json import parse_placed_lines
from anabranch.connectors.formats.json_rows import check_json_schema, parse_each_value, read_doubts
from anabranch.connectors.formats.messages.decoders import Decoded
from anabranch.connectors.formats.messages.messages import Messages, ScatteredValues
from anabranch.connectors.formats.messages.schema_registries import strip_headers
from anabranch.connectors.formats.number_lines import WORTH_COMPILED_CODE_BYTES
from anabranch.connectors.formats.usual_json import parse_usual_lines


@dataclass(frozen=True, slots=True)
class JsonValues:
    """JSON, read by the same rules as JSON lines in files; behind the registry's five bytes if there is one."""

    schema: Mapping[str, pl.DataType]
    has_registry: bool = False
    name: str = "json"

    def check(self) -> None:
        """Raise ``FlowError`` for types that JSON has no form for."""
        check_json_schema(self.schema)

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows; all messages are parsed at once, and one by one only if some are faulty."""
        if self.has_registry:
            stripped, faults = strip_headers(messages)
            return _decode_each(stripped, self.schema, faults)
        pieces = messages.values_in.pieces
        is_much = sum(len(piece.memory) for piece in pieces) >= WORTH_COMPILED_CODE_BYTES
        if is_much or isinstance(messages.values_in, ScatteredValues):
            frame = parse_placed_lines(pieces, lambda: messages.text, self.schema)
            if frame is not None:
                return Decoded(frame)
        walked = walk_placed_lines(pieces, lambda: messages.text, self.schema) if is_much else None
        if walked is not None:
            frame, malformed = read_doubts(walked, self.schema)
            return Decoded(frame, [(int(walked.doubt_places[doubt]), reason) for doubt, reason in malformed])
        # A value with a line end in it would be two lines.
        if messages.text.count(b"\n") == len(messages):
            frame = parse_usual_lines(messages.text, self.schema)
            if frame is not None and frame.height == len(messages):
                return Decoded(frame)
        return _decode_each(messages.values(), self.schema, {})


def _decode_each(values: Sequence[bytes], schema: Mapping[str, pl.DataType], known: dict[int, str]) -> Decoded:
    places = [index for index in range(len(values)) if index not in known]
    frame, found = parse_each_value([values[index] for index in places], schema)
    faults = dict(known) | {places[index]: reason for index, reason in found}
    return Decoded(frame, sorted(faults.items()))

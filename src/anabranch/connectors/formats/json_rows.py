"""JSON lines to frames of a declared schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import polars as pl

from anabranch.connectors.formats.declared_json import WalkedLines, walk_text
from anabranch.connectors.formats.exact_json import read_exactly
from anabranch.connectors.formats.fixed_layout_json import parse_fixed_layout_lines
from anabranch.connectors.formats.number_lines import WORTH_COMPILED_CODE_BYTES
from anabranch.connectors.formats.rejects import set_faulty_lines_apart, shorten_raw, sieve_lines
from anabranch.connectors.formats.schemas import whole_type
from anabranch.connectors.formats.text_values import is_leaf_type
from anabranch.connectors.formats.uniform_json import parse_uniform_lines
from anabranch.connectors.formats.usual_json import parse_usual_lines
from anabranch.errors import FlowError
from anabranch.model import ReadOutcome

_UNIFORM_FROM_BYTES = 64 * 1024
_BLANKS = b" \t\r\n"


def check_json_schema(schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` for types that JSON text has no form for, alone or within others."""
    for column, kind in schema.items():
        if not _has_form(whole_type(kind)):
            msg = (
                f"column {column!r} is declared as {kind}, which JSON lines cannot hold; "
                f"declare pl.String or pl.Int64 and convert it with with_columns"
            )
            raise FlowError(msg)


def parse_json_lines(text: bytes, schema: Mapping[str, pl.DataType]) -> ReadOutcome:
    """Parse JSON lines; rows that are no JSON object or hold a value of another type are rejected.

    Missing fields become null, fields that are not declared are ignored, of a field that comes twice the first counts,
    blank lines are skipped. An integer is accepted for a float column and any value for a string column (as its JSON
    text); ``1.0`` is no integer. Times are ISO 8601 text or whole numbers since 1970 in the column's own unit.
    """
    if len(text) >= WORTH_COMPILED_CODE_BYTES:
        frame = parse_fixed_layout_lines(text, schema)
        walked = walk_text(text, schema) if frame is None else None
        if walked is not None:
            frame, faults = read_doubts(walked, schema)
            return ReadOutcome(frame, tuple((reason, shorten_raw(walked.doubts[doubt])) for doubt, reason in faults))
    else:
        frame = parse_uniform_lines(text, schema) if len(text) >= _UNIFORM_FROM_BYTES else None
    frame = parse_usual_lines(text, schema) if frame is None else frame
    if frame is not None:
        return ReadOutcome(frame)
    lines = [line + b"\n" for line in text.split(b"\n") if line.strip(_BLANKS)]
    return sieve_lines(lines, partial(_read_quickly, schema=schema), partial(read_exactly, schema=schema))


def read_doubts(walked: WalkedLines, schema: Mapping[str, pl.DataType]) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Return the rows of all lines, and which doubts are malformed, with the reasons."""
    if not walked.doubts:
        return walked.frame, []
    frame, faults = parse_each_value(walked.doubts, schema)
    malformed = {doubt for doubt, _ in faults}
    return walked.put_in(frame, [doubt for doubt in range(len(walked.doubts)) if doubt not in malformed]), faults


def parse_each_value(
    values: Sequence[bytes], schema: Mapping[str, pl.DataType]
) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Return the rows of the texts that hold one JSON object each, and place and reason of every other text.

    A text may have line ends between its tokens; one that is blank is malformed here.
    """
    lines = [value + b"\n" for value in values]
    return set_faulty_lines_apart(lines, partial(_read_quickly, schema=schema), partial(read_exactly, schema=schema))


def _read_quickly(lines: Sequence[bytes], schema: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    text = b"".join(lines)
    frame = parse_usual_lines(text, schema) if text.count(b"\n") == len(lines) else None
    return frame if frame is not None and frame.height == len(lines) else None


def _has_form(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.List | pl.Array):
        return _has_form(whole_type(kind.inner))
    if isinstance(kind, pl.Struct):
        return all(_has_form(whole_type(field.dtype)) for field in kind.fields)
    return isinstance(kind, pl.Null) or is_leaf_type(kind)

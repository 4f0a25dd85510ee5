"""Protobuf messages of random types and values, and what they hold by google.protobuf's own means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import strategies as st

from formats.damage import damaged

_KINDS = descriptor_pb2.FieldDescriptorProto
_FOLDER = TemporaryDirectory(prefix="anabranch-protobuf-")
"""Gone when the process ends."""
_SCALARS: dict[str, tuple[int, st.SearchStrategy[Any]]] = {
    "i32": (_KINDS.TYPE_INT32, st.integers(-(2**31), 2**31 - 1)),
    "i64": (_KINDS.TYPE_SINT64, st.integers(-(2**63), 2**63 - 1)),
    "u32": (_KINDS.TYPE_UINT32, st.integers(0, 2**32 - 1)),
    "u64": (_KINDS.TYPE_FIXED64, st.integers(0, 2**64 - 1)),
    "flag": (_KINDS.TYPE_BOOL, st.booleans()),
    "real": (_KINDS.TYPE_DOUBLE, st.floats()),
    "small": (_KINDS.TYPE_FLOAT, st.floats(width=32)),
    "text": (_KINDS.TYPE_STRING, st.text(max_size=6)),
    "raw": (_KINDS.TYPE_BYTES, st.binary(max_size=6)),
}


@cache
def describe(syntax: str) -> str:
    """Return the name of a message type with every kind of field: single, repeated, nested, enums, times, maps."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{syntax}.proto", package=syntax, syntax=syntax, dependency=["google/protobuf/timestamp.proto"]
    )
    mode = file.enum_type.add(name="Mode")
    mode.value.add(name="OFF", number=0)
    mode.value.add(name="ON", number=1)
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=_KINDS.TYPE_INT32, label=_KINDS.LABEL_OPTIONAL)
    row = file.message_type.add(name="Row")
    for number, (name, (kind, _)) in enumerate(_SCALARS.items()):
        row.field.add(name=name, number=number + 1, type=kind, label=_KINDS.LABEL_OPTIONAL)
        row.field.add(name=f"many_{name}", number=number + 31, type=kind, label=_KINDS.LABEL_REPEATED)
    messages = {"inner": f".{syntax}.Inner", "at": ".google.protobuf.Timestamp"}
    for number, (name, type_name) in enumerate(messages.items()):
        kind = {"type": _KINDS.TYPE_MESSAGE, "type_name": type_name}
        row.field.add(name=name, number=number + 61, label=_KINDS.LABEL_OPTIONAL, **kind)
        row.field.add(name=f"many_{name}", number=number + 71, label=_KINDS.LABEL_REPEATED, **kind)
    row.field.add(
        name="mode", number=81, type=_KINDS.TYPE_ENUM, type_name=f".{syntax}.Mode", label=_KINDS.LABEL_OPTIONAL
    )
    entry = row.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_KINDS.TYPE_STRING, label=_KINDS.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_KINDS.TYPE_INT32, label=_KINDS.LABEL_OPTIONAL)
    row.field.add(
        name="counts",
        number=82,
        type=_KINDS.TYPE_MESSAGE,
        type_name=f".{syntax}.Row.CountsEntry",
        label=_KINDS.LABEL_REPEATED,
    )
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    path = Path(_FOLDER.name) / f"{syntax}.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString())
    return f"{path}:{syntax}.Row"


@dataclass(frozen=True)
class Case:
    """A message type, and messages of it of which some are damaged."""

    value_schema: str
    messages: list[bytes]


SECONDS = st.integers(-62_135_596_800, 253_402_300_799) | st.sampled_from([2**62, -(2**63), 253_402_300_800])
NANOS = st.integers(0, 999_999_999) | st.sampled_from([-1, 10**9])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    from anabranch.connectors.formats.messages.protobuf_values import load_message

    value_schema = describe(draw(st.sampled_from(["proto2", "proto3"])))
    message_class = load_message(value_schema)
    made = []
    for _ in range(draw(st.integers(1, 3))):
        message = message_class()
        for name, (_, values) in _SCALARS.items():
            if draw(st.booleans()):
                setattr(message, name, draw(values))
            getattr(message, f"many_{name}").extend(draw(st.lists(values, max_size=2)))
        if draw(st.booleans()):
            message.inner.x = draw(st.integers(-9, 9))
        if draw(st.booleans()):
            message.at.seconds, message.at.nanos = draw(SECONDS), draw(NANOS)
        if draw(st.booleans()):
            message.mode = draw(st.integers(0, 1))
        for key, value in draw(st.dictionaries(st.text(max_size=2), st.integers(-9, 9), max_size=2)).items():
            message.counts[key] = value
        made.append(draw(damaged(message.SerializeToString())))
    return Case(value_schema, made)


def has_bad_text(message: Any) -> bool:
    """Say whether a text is none: the library hands out bytes for such ones of the older syntax."""
    texts = [message.text, *message.many_text, *message.counts]
    return any(isinstance(text, bytes) for text in texts)

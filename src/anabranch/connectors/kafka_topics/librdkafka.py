"""The C library inside of confluent-kafka, called directly.

Through the Python client every message becomes an object, and making one takes longer than fetching and parsing a small
JSON message. The library itself hands out thousands of messages in one call; ``message_memory`` copies their values.
Only documented functions and the documented layout of ``rd_kafka_message_t`` are used, which its versions keep stable.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.connectors.kafka_topics.connection import load_confluent_kafka
from anabranch.errors import SourceError

_CONSUMER = 1
_ERROR_TEXT_BYTES = 512

_Pointer = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_version_str": (ctypes.c_char_p, []),
    "rd_kafka_err2str": (ctypes.c_char_p, [ctypes.c_int]),
    "rd_kafka_last_error": (ctypes.c_int, []),
    "rd_kafka_conf_new": (_Pointer, []),
    "rd_kafka_conf_destroy": (None, [_Pointer]),
    "rd_kafka_conf_set": (
        ctypes.c_int,
        [_Pointer, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t],
    ),
    "rd_kafka_new": (_Pointer, [ctypes.c_int, _Pointer, ctypes.c_char_p, ctypes.c_size_t]),
    "rd_kafka_poll": (ctypes.c_int, [_Pointer, ctypes.c_int]),
    "rd_kafka_topic_new": (_Pointer, [_Pointer, ctypes.c_char_p, _Pointer]),
    "rd_kafka_consume_start": (ctypes.c_int, [_Pointer, ctypes.c_int32, ctypes.c_int64]),
    "rd_kafka_consume_stop": (ctypes.c_int, [_Pointer, ctypes.c_int32]),
    "rd_kafka_consume_batch": (
        ctypes.c_ssize_t,
        [_Pointer, ctypes.c_int32, ctypes.c_int, _Pointer, ctypes.c_size_t],
    ),
    "rd_kafka_query_watermark_offsets": (
        ctypes.c_int,
        [_Pointer, ctypes.c_char_p, ctypes.c_int32, _Pointer, _Pointer, ctypes.c_int],
    ),
    "rd_kafka_message_destroy": (None, [_Pointer]),
    "rd_kafka_message_timestamp": (ctypes.c_int64, [_Pointer, _Pointer]),
}


@cache
def load_librdkafka() -> Any | None:
    """Return the library that confluent-kafka brought, or None where it is built in or of an unknown kind."""
    kafka = load_confluent_kafka()
    package = Path(kafka.__file__).parent
    places = [package.with_name("confluent_kafka.libs"), package / ".dylibs"]
    for path in (file for place in places if place.is_dir() for file in sorted(place.glob("librdkafka*"))):
        try:
            library = ctypes.CDLL(str(path))
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError):
            continue
        # Another copy than the client's own would do, but would not be the version that was tested with it.
        if library.rd_kafka_version_str().decode() == kafka.libversion()[0]:
            return library
    return None


def address_of(function: Any) -> int:
    """Return where a function of the library lies, for compiled code to call."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


class Client:
    """A consumer of the library's plain kind: it reads partitions from given offsets and knows no groups."""

    def __init__(self, library: Any, settings: Mapping[str, Any]) -> None:
        self._library = library
        text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        configuration = library.rd_kafka_conf_new()
        for name, value in settings.items():
            given = str(value).lower() if isinstance(value, bool) else str(value)
            if library.rd_kafka_conf_set(configuration, name.encode(), given.encode(), text, len(text)) != 0:
                library.rd_kafka_conf_destroy(configuration)
                # The library's own text may repeat the value, which may be a password.
                msg = f"the Kafka client does not accept {name!r} in options; see librdkafka's list of settings"
                raise SourceError(msg)
        self._client = library.rd_kafka_new(_CONSUMER, configuration, text, len(text))
        if not self._client:
            library.rd_kafka_conf_destroy(configuration)
            msg = "the Kafka client cannot be made from options; look at security.protocol, sasl.* and ssl.*"
            raise SourceError(msg)
        self._topics: dict[str, int] = {}

    def start(self, topic: str, number: int, offset: int) -> None:
        """Begin to fetch a partition from an offset on."""
        if self._library.rd_kafka_consume_start(self._topic(topic), number, offset) != 0:
            reason = self.describe(self._library.rd_kafka_last_error())
            msg = f"topic {topic}, partition {number} cannot be read from offset {offset}: {reason}"
            raise SourceError(msg)

    def stop(self, topic: str, number: int) -> None:
        """End fetching a partition, and drop what was fetched of it."""
        self._library.rd_kafka_consume_stop(self._topic(topic), number)

    def take(self, topic: str, number: int, pointers: NDArray[np.uint64], wait_ms: int) -> int:
        """Fill an array with pointers to messages, which the caller must free, and return how many there are."""
        self._library.rd_kafka_poll(self._client, 0)
        taken = self._library.rd_kafka_consume_batch(
            self._topic(topic), number, wait_ms, pointers.ctypes.data, len(pointers)
        )
        return max(0, int(taken))

    def watermarks(self, topic: str, number: int, wait_ms: int) -> tuple[int, int] | None:
        """Return the offsets of the oldest message and behind the last, None if the cluster does not say."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        failed = self._library.rd_kafka_query_watermark_offsets(
            self._client, topic.encode(), number, ctypes.byref(low), ctypes.byref(high), wait_ms
        )
        return None if failed else (low.value, high.value)

    def describe(self, error: int) -> str:
        """Return an error in words."""
        return str(self._library.rd_kafka_err2str(error).decode())

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            self._topics[name] = self._library.rd_kafka_topic_new(self._client, name.encode(), None)
        return self._topics[name]

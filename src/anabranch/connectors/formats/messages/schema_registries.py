"""Schema registries, and the header that serialisers which use one put before a value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from anabranch.connectors.formats.messages.messages import Messages
from anabranch.connectors.retry import ServerAway, insist
from anabranch.errors import FlowError, SinkError, SourceError

HEADER_BYTES = 5
"""A zero, and the number of the schema in four bytes."""


class UnknownSchema(SourceError):
    """A schema that a message names is not in the registry, or is no Avro: the message is at fault."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Where a schema registry is; its settings show in no text, as passwords are among them."""

    place: str
    settings: tuple[tuple[str, str], ...] = field(repr=False)
    patience_seconds: float = 300.0

    def schema(self, number: int) -> dict[str, Any]:
        """Return an Avro schema by its number; the schemas that it refers to stand in it."""
        found = self._insist(lambda client: client.get_schema(number), f"schema {number}")
        return self._complete(found)

    def latest(self, subject: str) -> dict[str, Any]:
        """Return the newest Avro schema of a subject."""
        found = self._insist(lambda client: client.get_latest_version(subject), f"subject {subject!r}")
        return self._complete(found.schema)

    def check(self) -> None:
        """Raise ``SourceError`` if it does not answer."""
        self._insist(lambda client: client.get_subjects(), "its subjects", patience_seconds=10.0)

    def register(self, subject: str, schema: Mapping[str, Any]) -> bytes:
        """Return the header of values with this Avro schema, which is made known if it is new.

        Raise ``SinkError`` if it is refused, ``ServerAway`` if there is no answer.
        """
        client = _client(self.settings)
        from confluent_kafka.schema_registry import Schema

        try:
            number = client.register_schema(subject, Schema(json.dumps(schema), "AVRO"))
        except Exception as error:  # the client's own errors and those of its HTTP library, whichever that is
            reason = getattr(error, "error_message", None) or type(error).__name__
            if not 400 <= getattr(error, "http_status_code", 0) < 500:
                raise ServerAway(f"the schema registry {self.place}: {reason}") from None
            msg = f"the schema registry {self.place} refuses the schema of {subject}: {reason}"
            raise SinkError(msg) from None
        return b"\0" + int(number).to_bytes(4, "big")

    def _complete(self, schema: Any) -> dict[str, Any]:
        if schema.schema_type != "AVRO":
            msg = f"the schema registry {self.place} has a schema of type {schema.schema_type} where Avro is expected"
            raise UnknownSchema(msg)
        described = json.loads(schema.schema_str)
        referred = {
            reference.name: self._complete(
                self._insist(
                    lambda client, wanted=reference: client.get_version(wanted.subject, wanted.version).schema,
                    f"subject {reference.subject!r}",
                )
            )
            for reference in schema.references or ()
        }
        completed: dict[str, Any] = _inline(described, referred) if referred else described
        return completed

    def _insist(self, ask: Any, what: str, patience_seconds: float | None = None) -> Any:
        client = _client(self.settings)
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        def attempt() -> Any:
            try:
                return ask(client)
            except SchemaRegistryError as error:
                if 400 <= error.http_status_code < 500 and error.http_status_code != 429:
                    kind = UnknownSchema if error.http_status_code == 404 else SourceError
                    msg = (
                        f"the schema registry {self.place} does not give {what}: {error.error_message}; "
                        f"look at the subject's name and at the user's rights"
                    )
                    raise kind(msg) from None
                raise ServerAway(f"status {error.http_status_code}") from None
            except Exception as error:  # the client's own errors and those of its HTTP library, whichever that is
                raise ServerAway(type(error).__name__) from None

        return insist(
            f"the schema registry {self.place}",
            self.patience_seconds if patience_seconds is None else patience_seconds,
            attempt,
            error=SourceError,
            advice="bring it back and start the flow again: nothing is lost",
        )


def make_registry(given: str | Mapping[str, Any] | None, patience_seconds: float) -> Registry | None:
    """Return the registry at a URL, or with the settings of ``confluent_kafka``'s client."""
    if given is None:
        return None
    settings = {"url": given} if isinstance(given, str) else {name: str(value) for name, value in given.items()}
    url = settings.get("url", "")
    if not re.match(r"https?://", url):
        msg = (
            "registry needs the URL of a schema registry, as text or as 'url' among its settings (http:// or https://)"
        )
        raise FlowError(msg)
    login = re.match(r"(https?://)([^/@]+)@(.*)", url)
    if login:
        # A URL with a password in it would show up in the client's own errors.
        settings["url"] = f"{login[1]}{login[3]}"
        settings.setdefault("basic.auth.user.info", login[2])
    return Registry(settings["url"], tuple(sorted(settings.items())), patience_seconds)


def strip_headers(messages: Messages) -> tuple[list[bytes], dict[int, str]]:
    """Return the values without the registry's header, and the faults of those that have none."""
    values: list[bytes] = []
    faults: dict[int, str] = {}
    for index, value in enumerate(messages.values()):
        fault = find_header_fault(value)
        if fault is not None:
            faults[index] = fault
        values.append(value[HEADER_BYTES:])
    return values, faults


def find_header_fault(value: bytes) -> str | None:
    """Say why a value has no header of a schema registry; None if it has one."""
    if len(value) < HEADER_BYTES or value[0] != 0:
        return "no header of a schema registry (a zero byte and the schema's number) before the value"
    return None


@cache
def _client(settings: tuple[tuple[str, str], ...]) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        msg = "a schema registry needs more packages; install them with: pip install 'anabranch[kafka]'"
        raise SourceError(msg) from error
    return SchemaRegistryClient(dict(settings))


def _inline(schema: Any, referred: dict[str, Any]) -> Any:
    """Put schemas in the places of their names, each at its first use: later ones may go by the name."""
    if isinstance(schema, str):
        return _inline(referred.pop(schema), referred) if schema in referred else schema
    if isinstance(schema, list):
        return [_inline(part, referred) for part in schema]
    if isinstance(schema, dict):
        return {
            key: _inline(part, referred) if key in ("type", "items", "values", "fields") else part
            for key, part in schema.items()
        }
    return schema

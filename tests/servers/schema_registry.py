"""A small schema registry over HTTP: the requests that readers and writers make, kept in memory.

It stands in for Confluent's, which no package manager of these tests offers; its answers have that one's form.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class SchemaRegistry:
    """Schemas by their numbers, and the numbers of each subject's versions."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    failures_left: int = 0
    """How many of the next requests are answered with status 503."""
    login: str | None = None
    """``user:password`` that requests must bring, if any."""

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        """Add a version to a subject and return the schema's number."""
        number = 100 + len(self.schemas)
        self.schemas[number] = {"schema": json.dumps(schema), **more}
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str) -> tuple[int, Any]:
        """Return the status and the body of the answer to a request."""
        if self.failures_left:
            self.failures_left -= 1
            return 503, {"error_code": 50003, "message": "not now"}
        if path == "/subjects":
            return 200, sorted(self.subjects)
        if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
            found = self.schemas.get(int(match[1]))
            return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
        if match := re.fullmatch(r"/subjects/([^/]+)/versions/(\w+)", path):
            numbers = self.subjects.get(match[1], [])
            version = len(numbers) if match[2] == "latest" else int(match[2])
            if not 1 <= version <= len(numbers):
                return 404, {"error_code": 40401, "message": "Subject not found"}
            number = numbers[version - 1]
            return 200, {"subject": match[1], "version": version, "id": number, **self.schemas[number]}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """Run a registry on loopback while the block runs."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(*registry.answer(self.path.split("?")[0]))

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            match = re.fullmatch(r"/subjects/([^/]+)/versions", self.path.split("?")[0])
            if match is None or registry.failures_left:
                self._reply(*registry.answer(self.path))
            else:
                number = registry.register(match[1], json.loads(given["schema"]))
                self._reply(200, {"id": number, "version": 1, "subject": match[1], **given})

        def _reply(self, status: int, body: Any) -> None:
            if registry.login is not None and not self._is_let_in():
                status, body = 401, {"error_code": 401, "message": "Unauthorized"}
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _is_let_in(self) -> bool:
            wanted = base64.b64encode((registry.login or "").encode()).decode()
            return self.headers.get("Authorization") == f"Basic {wanted}"

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

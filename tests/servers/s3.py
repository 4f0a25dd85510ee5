"""A server of the tests' own that speaks S3: moto's, in a process of its own, with objects in its memory.

It answers one request after the other, so that "if there is none" is looked at and done in one step, as S3 does it.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from typing import Any

from servers.programs import SkippedWhereMissing

USER, PASSWORD, REGION = "anabranch", "a-secret-of-the-tests", "us-east-1"

_PROGRAM = """\
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

serve = DomainDispatcherApplication(create_backend_app)
def overwrite(environ, start):
    environ.pop("HTTP_IF_NONE_MATCH", None)
    return serve(environ, start)
run_simple("127.0.0.1", int(sys.argv[1]), overwrite if sys.argv[2] == "overwrites" else serve, threaded=False)
"""


@dataclass
class S3Server(SkippedWhereMissing):
    """A store that keeps objects while it runs; one that ``overwrites`` hears of no conditions, as some stores do."""

    overwrites: bool = False

    @property
    def endpoint(self) -> str:
        """Where it is asked."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What tells ``obstore``, and Spark, where the store is and who asks."""
        return {
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": PASSWORD,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def spark_settings(self) -> dict[str, str]:
        """What Hadoop's file system must be told besides: buckets are not names of hosts."""
        return {
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }

    def command(self) -> list[str]:
        """Return the command that runs the server."""
        return [sys.executable, "-c", _PROGRAM, str(self.port), "overwrites" if self.overwrites else "keeps"]

    def child_options(self) -> dict[str, Any]:
        """Return what its processes are started with."""
        # Credentials of whoever runs the tests are none of its business.
        return {"env": {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}}

    def answers(self) -> bool:
        """Say whether the server takes requests."""
        if not super().answers():
            return False
        try:
            self._ask("GET", "")
        except OSError:
            return False
        return True

    def make_bucket(self) -> str:
        """Make a bucket, and return its URL."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self._ask("PUT", name)
        return f"s3://{name}"

    def _ask(self, method: str, path: str) -> None:
        # A proxy that the user's environment names leads away from this machine.
        ask = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        ask.open(urllib.request.Request(f"{self.endpoint}/{path}", method=method), timeout=10).close()

"""A server that speaks S3, on a host of a lab: moto's, with objects in its memory."""

from __future__ import annotations

import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

if __name__ == "__main__":
    # One request after the other, so that "if there is none" is looked at and done in one step, as S3 does it.
    serve = DomainDispatcherApplication(create_backend_app)
    run_simple(sys.argv[1], int(sys.argv[2]), serve, threaded=False)

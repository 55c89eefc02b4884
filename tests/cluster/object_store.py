"""An S3 server on loopback: moto's, in a process of its own.

It needs the packages of the extra `s3-server`. It serves one request at a time, so that a conditional
put (If-None-Match) is atomic, as S3 promises. Credentials and address are in the environment, where a
query finds them.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager

from processes import wait_until

MISSING = [name for name in ("moto", "flask", "obstore") if not importlib.util.find_spec(name)]
BUCKET = "disasters"

_SERVER = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
application = DomainDispatcherApplication(create_backend_app)
run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=False)
"""


@contextmanager
def object_store() -> Iterator[str]:
    """The URI of an empty bucket, while the server runs."""
    port = _free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    before = dict(os.environ)
    try:
        assert wait_until(lambda: _answers(port), 60, step=0.1), "the S3 server does not answer"
        address = f"http://127.0.0.1:{port}"
        make = urllib.request.Request(f"{address}/{BUCKET}", method="PUT", data=b"")
        urllib.request.urlopen(make).close()
        os.environ |= {
            "AWS_ACCESS_KEY_ID": "disaster",
            "AWS_SECRET_ACCESS_KEY": "disaster",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT": address,
            "AWS_ALLOW_HTTP": "true",
        }
        yield f"s3://{BUCKET}/checkpoint"
    finally:
        os.environ.clear()
        os.environ |= before
        server.kill()
        server.wait()


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True

"""A Spark session that prints nothing on the screen.

Java writes to its standard error before anyone can set its log level. While the session starts, that
is a file; everything this process prints still goes to the screen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def java_errors_to(path: Path) -> Iterator[None]:
    """Processes started in the block get `path` as their standard error."""
    sys.stderr.flush()
    screen = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(screen, 2)
        os.close(screen)

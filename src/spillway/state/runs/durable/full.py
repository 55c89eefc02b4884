"""The error of a tier without space."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from spillway.errors import StateError


@contextmanager
def naming_full_disk(kind: str, where: str) -> Iterator[None]:
    """Turns "no space left" into an error that says which tier is full and what to do."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise StateError(
            f"the {kind} tier at {where} is full",
            detail=(
                f"{problem.strerror or problem}; the query stopped without data loss and "
                "restarts from the last committed batch"
            ),
            hint="free space there, or choose a larger location with "
            + {
                "memory": ".adapt(memory=..., memory_dir=...)",
                "disk": ".adapt(disk_dir=...)",
            }.get(kind, "the checkpointLocation option or .adapt(durable=...)")
            + ", then start the query again",
        ) from problem

"""Names of files in a checkpoint: each contains its attempt, and the epoch of its start.

A sweep uses the epoch: it deletes only unnamed files of older epochs, because attempts of its own epoch
are still running.
"""

from __future__ import annotations

import re
import uuid

_ATTEMPT = re.compile(r"-e(\d+)\.[0-9a-f]{12}(?:\.\d+)?\.\w+$")


def new_attempt(epoch: int) -> str:
    """Returns a name for an attempt that no other attempt has."""
    return f"e{epoch}.{uuid.uuid4().hex[:12]}"


def epoch_of(name: str) -> int:
    """Returns the epoch of the start that made a file; 0 if its name has none.

    Example:
        >>> epoch_of("000000004-1-e7.0123456789ab.json"), epoch_of("orphan.arrow")
        (7, 0)
        >>> epoch_of("000000004-1-0-m3.0-e7.0123456789ab.1.arrow")
        7
    """
    found = _ATTEMPT.search(name)
    return int(found.group(1)) if found else 0

"""Names of files in a checkpoint: each belongs to one attempt, and tells the epoch of its start.

The epoch is what a sweep goes by: it deletes unnamed files of older epochs only, because the attempts of
its own are still running.
"""

from __future__ import annotations

import re
import uuid

#: How the name of a file ends that has not got its own name yet.
PARTIAL = ".partial"
_PARTIAL = re.compile(r"^(.+)\.[0-9a-f]+\.partial$")
_ATTEMPT = re.compile(r"-e(\d+)\.[0-9a-f]{12}(?:\.\d+)?\.\w+$")


def new_attempt(epoch: int) -> str:
    """Returns a name for an attempt that no other attempt has."""
    return f"e{epoch}.{uuid.uuid4().hex[:12]}"


def partial_name(name: str) -> str:
    """Returns a name for a file until it is whole; random, since process ids are not unique."""
    return f"{name}.{uuid.uuid4().hex}{PARTIAL}"


def whole_name(name: str) -> str | None:
    """Returns the name that a partial file would get; None for other files.

    Example:
        >>> whole_name("metadata.json.0aff.partial"), whole_name("metadata.json")
        ('metadata.json', None)
    """
    found = _PARTIAL.match(name)
    return found.group(1) if found else None


def epoch_of(name: str) -> int:
    """Returns the epoch of the start that made a file; 0 if its name tells none.

    Example:
        >>> epoch_of("000000004-1-e7.0123456789ab.json"), epoch_of("orphan.arrow")
        (7, 0)
        >>> epoch_of("000000004-1-0-m3.0-e7.0123456789ab.1.arrow")
        7
    """
    found = _ATTEMPT.search(name)
    return int(found.group(1)) if found else 0

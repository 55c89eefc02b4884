"""Names of files: each contains its attempt, and the epoch of its start.

A sweep uses the epoch: it deletes only unnamed files of older epochs, because attempts of its own epoch
are still running.

A local tier also has *excerpts*: some rows of a run, for one slot (state/runs/store.py). An excerpt has
the name of its run and the number of its slot.
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
    """Returns the epoch of the start that made a file; 0 if its name has none.

    Example:
        >>> epoch_of("000000004-1-e7.0123456789ab.json"), epoch_of("orphan.arrow")
        (7, 0)
        >>> epoch_of("000000004-1-0-m3.0-e7.0123456789ab.1.arrow")
        7
    """
    found = _ATTEMPT.search(name)
    return int(found.group(1)) if found else 0


def excerpt_name(run: str, slot: int) -> str:
    """Returns the name of the excerpt that a slot has of a run."""
    return f"{run}~{slot}"


def run_of(name: str) -> str:
    """Returns the run of a local file: the run itself, an excerpt, or either while it is written.

    Example:
        >>> run_of("4-1.arrow"), run_of("4-1.arrow~3"), run_of(".4-1.arrow~3.0123456789ab")
        ('4-1.arrow', '4-1.arrow', '4-1.arrow')
    """
    whole = name[1:].rpartition(".")[0] if name.startswith(".") else name
    return whole.partition("~")[0]


def slot_of_excerpt(name: str) -> int | None:
    """Returns the slot of an excerpt; None for any other file.

    Example:
        >>> slot_of_excerpt("4-1.arrow~3"), slot_of_excerpt("4-1.arrow")
        (3, None)
    """
    slot = name.partition("~")[2]
    return int(slot) if slot.isdigit() else None

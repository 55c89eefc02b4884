"""Files of attempts that died before anybody heard of them.

The name of a file begins with the number of its batch. A batch that is committed has said which files
it keeps. So a file of an earlier batch that no manifest names belongs to nobody; one of the running
batch, or of a name that tells no batch, may still be needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def batch_of(name: str) -> int | None:
    """The batch that a file was written in, by its name.

    Example:
        >>> batch_of("000000004-1-0-0-e7.0123456789ab.arrow"), batch_of("lock")
        (4, None)
    """
    # A file that is being written has a dot in front and the process behind.
    first = name.rpartition("/")[2].removeprefix(".").partition("-")[0]
    return int(first) if first.isdigit() else None


def orphans(names: Iterable[str], named: Collection[str], before: int) -> list[str]:
    """The files of batches before `before` that nothing names."""
    found = []
    for name in names:
        batch = batch_of(name)
        whole = name[1:].rpartition(".")[0] if name.startswith(".") else name
        if batch is not None and batch < before and whole not in named:
            found.append(name)
    return found

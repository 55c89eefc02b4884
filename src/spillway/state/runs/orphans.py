"""Finds files of attempts that died before they reported.

The name of a file begins with the number of its batch. After a commit, the manifests name all files that
the batch keeps. So a file of an earlier batch that no manifest names is garbage. A file of the running
batch, or one without a batch in its name, may still be needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def batch_of(name: str) -> int | None:
    """The batch of a file, from its name.

    Example:
        >>> batch_of("000000004-1-0-0-e7.0123456789ab.arrow"), batch_of("lock")
        (4, None)
    """
    # The name of a partial file begins with a dot and ends with the process id.
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

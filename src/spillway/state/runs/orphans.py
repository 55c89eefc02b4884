"""Finds files that nobody needs: of attempts that died, and local copies for slots that left the host.

The name of a file begins with the number of its batch. After a commit, the manifests name all files that
the batch keeps. So a file of an earlier batch that no manifest names is garbage. A file of the running
batch, or one without a batch in its name, may still be needed.

A host also has copies of runs that only slots of other hosts name, after groups moved or slots changed
hosts. So a local file stays only if a slot of this host needs it, or a move is about to bring it here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from spillway.state.runs.names import run_of, slot_of_excerpt


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
        if batch is not None and batch < before and run_of(name) not in named:
            found.append(name)
    return found


def local_orphans(
    names: Iterable[str],
    named: Mapping[int, Collection[str]],
    here: Collection[int],
    leaving: Collection[str],
    before: int,
) -> list[str]:
    """The local files of batches before `before` that no slot of this host needs.

    `named` has the runs that each slot names, `here` the slots of this host, and `leaving` the runs of
    groups that are moving. A slot that has just come here may be writing a file of any named run.
    """
    anywhere = {run for runs in named.values() for run in runs}
    whole = {run for slot in here for run in named.get(slot, ())}
    found = []
    for name in orphans(names, leaving, before):
        slot, needed = slot_of_excerpt(name), whole
        if name.startswith("."):
            needed = anywhere
        elif slot is not None:
            needed = set(named.get(slot, ()))
        if run_of(name) not in needed:
            found.append(name)
    return found

"""Removes local files that no slot of this host needs."""

from __future__ import annotations

from collections.abc import Sequence

from spillway.state.manifest.manifest import Manifest
from spillway.state.runs.orphans import local_orphans
from spillway.state.runs.store import Store

#: A slot that has not run on a host for this many batches is not there any more.
_HERE_BATCHES = 2


def sweep_local(
    store: Store, manifests: Sequence[Manifest], batch: int, *, first: bool = False
) -> None:
    """Removes local files that no slot of this host needs; `manifests` has one for each slot.

    It keeps files of this batch, which other slots of the host may be writing. In the first batch of a
    start, other slots may not have begun: all of them may be here.
    """
    named = {slot: manifest.runs().keys() for slot, manifest in enumerate(manifests)}
    leaving = {run for manifest in manifests for run in manifest.leaving_runs()}
    here = list(named) if first else store.memory.slots_since(batch - _HERE_BATCHES)
    for tier in (store.memory, store.disk):
        for name in local_orphans(tier.names(), named, here, leaving, batch):
            tier.delete(name)

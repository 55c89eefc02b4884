"""What the receiver of a move reads: slices of the sender's runs, by reference.

Every run that a manifest names is durable. So the receiver takes over the slices of a departure by name,
and copies their rows from the durable tier to its own memory (`Store.bring`). The sender has no part in
it, and may be dead. Nothing depends on this copy: a batch that does not find it reads the durable tier.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from spillway.routing.routing import HashRange, united
from spillway.state.layout.moving import Departure
from spillway.state.layout.shelf import slices
from spillway.state.runs.run import Run
from spillway.state.runs.store import Store
from spillway.state.runs.tiers import MEMORY

#: Files read at a time: an object store answers slowly, but many requests at once.
_READERS = 4


@dataclass(frozen=True)
class Fetch:
    """The rows of one run that a slot takes over."""

    run: Run
    ranges: tuple[HashRange, ...]

    @property
    def bytes(self) -> int:
        """The bytes that the slot reads: the whole file, to compare its checksum."""
        return self.run.size_bytes


def fetches(departure: Departure) -> list[Fetch]:
    """Lists what a departure has in memory, by run; what it has on disk waits until it is needed."""
    found: dict[str, tuple[Run, list[HashRange]]] = {}
    for layers in departure.streams:
        for piece in slices(layers):
            if piece.run.tier == MEMORY:
                found.setdefault(piece.run.name, (piece.run, []))[1].append(piece.range)
    return [Fetch(run, united(ranges)) for run, ranges in found.values()]


def fetch_all(wanted: Iterable[Fetch], store: Store) -> int:
    """Makes rows local that a slot takes over; returns the bytes that it wrote."""
    with ThreadPoolExecutor(_READERS) as readers:
        return sum(readers.map(lambda one: store.bring(one.run, one.ranges), wanted))

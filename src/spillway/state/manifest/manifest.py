"""Manifests: the state of one slot at one version, as a list of slices.

A stream's state in memory is a list of layers (state/layout/layers.py); what was moved out of memory is
a list of generations (state/layout/generations.py), which have layers too.

Streams are the input streams and, after them, those that the operator makes, which have names: a state
that was stored under another plan is matched by them (state/manifest/matching.py).

A manifest is small, immutable, and the only thing that gives run files a meaning. It also carries
what the slot has learned: the statistics of its groups and the selectivities that order the probes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from spillway.codec import Stored, encode
from spillway.formats import Format
from spillway.ids import NO_VERSION, SlotId, Version
from spillway.metrics.counts import Counts, of_texts, texts_of
from spillway.metrics.groups import GroupTable
from spillway.state.layout.gaps import Gaps
from spillway.state.layout.generations import Generation
from spillway.state.layout.layers import Layer
from spillway.state.layout.moving import Departure, Parked
from spillway.state.layout.spool import Spool
from spillway.state.layout.track import Track
from spillway.state.manifest.runtable import RunTable
from spillway.state.runs.run import Run, Slice

#: 7 is the first that the codec writes (docs/formats.md).
FORMAT = Format(7, 7)


@dataclass(frozen=True)
class Manifest:
    """Everything one slot knows at one version."""

    version: Version
    slot: SlotId
    #: For each stream, its layers, oldest first.
    streams: tuple[tuple[Layer, ...], ...]
    groups: GroupTable = field(default_factory=lambda: GroupTable.empty(0))
    #: What operators have counted, older batches weighing less.
    selectivity: Annotated[Counts, Stored(dict[str, tuple[float, float]], texts_of, of_texts)] = (
        field(default_factory=dict)
    )
    #: What was moved out of memory, oldest first.
    generations: tuple[Generation, ...] = ()
    #: Groups that have left for another slot, and rows that came for groups on their way here.
    departures: tuple[Departure, ...] = ()
    parked: tuple[Parked, ...] = ()
    #: The names of the made streams, which come after the input streams, and where they are not there.
    made: tuple[str, ...] = ()
    gaps: Gaps = ()
    #: Rows that wait for a later batch.
    spool: Spool = field(default_factory=Spool)
    #: Groups that another slot serves as well, from their new rows on.
    track: Track | None = None
    #: Batches in a row that left memory below its low-water mark.
    calm: int = 0
    #: Totals for people: rows and bytes in memory, and bytes on disk, per stream.
    state_rows: tuple[int, ...] = ()
    state_bytes: tuple[int, ...] = ()
    disk_rows: tuple[int, ...] = ()
    disk_bytes: tuple[int, ...] = ()

    def stacks(self) -> Iterator[tuple[Layer, ...]]:
        """All stacks of layers: of memory, of every generation, of what moves, and of what waits."""
        yield from self.streams
        for generation in self.generations:
            yield from generation.streams
        for departure in self.departures:
            yield from departure.stacks()
        for parked in self.parked:
            yield from parked.streams
        yield from self.spool.streams
        yield from self.track.streams if self.track else ()

    def runs(self) -> dict[str, Run]:
        """Every run that is named, by name."""
        return {piece.run.name: piece.run for layers in self.stacks() for piece in _slices(layers)}

    def encode(self) -> bytes:
        """The manifest as bytes, with a checksum in its first line."""
        table = RunTable()
        manifest = encode(self, table)
        return FORMAT.written(b'{"runs":%b,"manifest":%b}' % (encode(table.runs), manifest))


def empty_manifest(slot: SlotId, streams: int) -> Manifest:
    """The state before the first batch."""
    return Manifest(NO_VERSION, slot, tuple(() for _ in range(streams)))


def _slices(layers: Sequence[Layer]) -> Iterable[Slice]:
    return (piece for layer in layers for piece in layer.slices)

"""Manifests: the state of one slot at one version, as a list of slices.

A stream's state in memory is a list of layers (state/layout/layers.py). State on disk is a list of
generations (state/layout/generations.py), which have layers too.

Input streams come first, then the streams that the operator makes. Made streams have names, which
match state that another plan stored (state/manifest/matching.py).

A manifest is small and immutable, and only manifests give run files a meaning. It also carries what
the slot has learned: the statistics of its groups and the selectivities that order the probes.
"""

from __future__ import annotations

from collections.abc import Iterator
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

#: Format 7 is the first that the codec writes (docs/formats.md).
FORMAT = Format(7, 7)


@dataclass(frozen=True)
class Manifest:
    """Everything one slot knows at one version."""

    version: Version
    slot: SlotId
    #: For each stream, its layers, oldest first.
    streams: tuple[tuple[Layer, ...], ...]
    groups: GroupTable = field(default_factory=lambda: GroupTable.empty(0))
    #: Operator counts; older batches weigh less.
    selectivity: Annotated[Counts, Stored(dict[str, tuple[float, float]], texts_of, of_texts)] = (
        field(default_factory=dict)
    )
    #: State that left memory, oldest first.
    generations: tuple[Generation, ...] = ()
    #: Groups that have left for another slot, and rows for groups in transit to this one.
    departures: tuple[Departure, ...] = ()
    parked: tuple[Parked, ...] = ()
    #: The names of the made streams, which come after the input streams, and where they are
    #: missing.
    made: tuple[str, ...] = ()
    gaps: Gaps = ()
    #: Rows that wait for a later batch.
    spool: Spool = field(default_factory=Spool)
    #: Groups that another slot also serves, starting with their new rows.
    track: Track | None = None
    #: Consecutive batches that left memory below its low-water mark.
    calm: int = 0
    #: Totals for people, per stream: rows and bytes in memory, and bytes on disk.
    state_rows: tuple[int, ...] = ()
    state_bytes: tuple[int, ...] = ()
    disk_rows: tuple[int, ...] = ()
    disk_bytes: tuple[int, ...] = ()

    def stacks(self) -> Iterator[tuple[Layer, ...]]:
        """Yields all stacks of layers: memory, generations, moving groups and waiting rows."""
        yield from self.streams
        for generation in self.generations:
            yield from generation.streams
        for departure in self.departures:
            yield from departure.stacks()
        for parked in self.parked:
            yield from parked.streams
        yield from self.spool.streams
        yield from self.track.streams if self.track else ()

    def slices(self) -> Iterator[Slice]:
        """Yields every named slice."""
        return (piece for layers in self.stacks() for layer in layers for piece in layer.slices)

    def runs(self) -> dict[str, Run]:
        """Returns every named run, by name."""
        return {piece.run.name: piece.run for piece in self.slices()}

    def leaving_runs(self) -> set[str]:
        """Returns the names of the runs of groups that are leaving."""
        stacks = (layers for part in self.departures for layers in part.stacks())
        return {piece.run.name for layers in stacks for one in layers for piece in one.slices}

    def encode(self) -> bytes:
        """Encodes the manifest as bytes, with a checksum in its first line."""
        table = RunTable()
        manifest = encode(self, table)
        return FORMAT.written(b'{"runs":%b,"manifest":%b}' % (encode(table.runs), manifest))


def empty_manifest(slot: SlotId, streams: int) -> Manifest:
    """Returns the state before the first batch."""
    return Manifest(NO_VERSION, slot, tuple(() for _ in range(streams)))

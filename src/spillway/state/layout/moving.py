"""Groups in transit between two slots, and the rows that arrive for them meanwhile.

While groups move, their rows are in two parts of the state that no batch touches. The sender's
manifest has them as a *departure*, removed from everything that the slot probes, merges or expires.
The receiver's manifest has the rows that arrive meanwhile as *parked*, unprocessed. Manifests name
both, so they survive any failure, and a move can be repeated or given up until it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from spillway.state.layout.gaps import Gaps
from spillway.state.layout.generations import Generation
from spillway.state.layout.layers import Layer


@dataclass(frozen=True)
class Departure:
    """The groups of one move, as they were when they stopped taking rows."""

    move: int
    groups: tuple[int, ...]
    #: For each stream, the layers that were in memory.
    streams: tuple[tuple[Layer, ...], ...]
    #: For each stream, the bytes in memory of each group.
    sizes: tuple[tuple[int, ...], ...] = ()
    #: The groups' part on disk; it moves by name, and the slot that next needs it fetches it.
    generations: tuple[Generation, ...] = ()
    #: The names of the made streams, and where they are missing.
    made: tuple[str, ...] = ()
    gaps: Gaps = ()

    def stacks(self) -> Iterator[tuple[Layer, ...]]:
        """Yields all stacks of layers: memory and every generation."""
        yield from self.streams
        for generation in self.generations:
            yield from generation.streams


@dataclass(frozen=True)
class Parked:
    """Rows that arrived for the groups of a move: for each input stream, in arrival order."""

    move: int
    streams: tuple[tuple[Layer, ...], ...]
    bytes: int = 0

    def with_layer(self, stream: int, layer: Layer, size: int) -> Parked:
        """Returns the same with one more layer of a stream, of this many bytes."""
        streams = list(self.streams)
        streams[stream] = (*streams[stream], layer)
        return replace(self, streams=tuple(streams), bytes=self.bytes + size)


_Part = TypeVar("_Part", Departure, Parked)


def of_move(parts: Sequence[_Part], move: int) -> _Part | None:
    """Returns the part of one move, if there is one."""
    return next((part for part in parts if part.move == move), None)

"""Groups between two slots: what has left one, and what came for them meanwhile.

While groups move, their rows are in two parts of the state that no batch touches: the sender's manifest
has them as a *departure*, cut out of everything that is probed, merged or expired; the receiver's has
the rows that arrive meanwhile as *parked*, unprocessed. Both are named by manifests like any other part,
so they survive whatever dies, and a move can be repeated or given up as long as it has not ended.
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
    #: For each stream, the bytes of each of the groups in memory.
    sizes: tuple[tuple[int, ...], ...] = ()
    #: What of the groups is on disk; it moves by name, and is fetched where it is needed next.
    generations: tuple[Generation, ...] = ()
    #: The names of the made streams, and where they are not there.
    made: tuple[str, ...] = ()
    gaps: Gaps = ()

    def stacks(self) -> Iterator[tuple[Layer, ...]]:
        """All stacks of layers, of memory and of every generation."""
        yield from self.streams
        for generation in self.generations:
            yield from generation.streams


@dataclass(frozen=True)
class Parked:
    """Rows that came for the groups of a move, for each input stream in the order they came."""

    move: int
    streams: tuple[tuple[Layer, ...], ...]

    def with_layer(self, stream: int, layer: Layer) -> Parked:
        """The same with more rows of a stream."""
        streams = list(self.streams)
        streams[stream] = (*streams[stream], layer)
        return replace(self, streams=tuple(streams))


_Part = TypeVar("_Part", Departure, Parked)


def of_move(parts: Sequence[_Part], move: int) -> _Part | None:
    """The part of one move, if there is one."""
    return next((part for part in parts if part.move == move), None)

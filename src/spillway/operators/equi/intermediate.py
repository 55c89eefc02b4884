"""What a join tree stores: the rows of streams, and combinations of several as rows of their own.

A combination has the columns of its streams, one after the other in the order of the streams, whatever
shape has made it: states of the same streams are the same (plan/shape.py).

It expires with the first of its rows that does: at min(t_i + W_i). It is stored with that time less the
least window of its streams, and has that window, so that it expires like a row of them. The largest time
of its rows is not stored, but found in them when it is probed.

Known limitation: of each stream of a combination all visible columns are stored, also where an output
needs few of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillway.operators.equi.join import stream_side
from spillway.operators.equi.term import Side
from spillway.operators.input import StreamColumns
from spillway.plan.shape import state_name
from spillway.state.layout.shelf import StreamLayout


@dataclass(frozen=True)
class Stored:
    """A stored state: the rows of a stream, or combinations of several."""

    name: str
    #: The streams that it has rows of, ascending.
    members: tuple[int, ...]
    #: For each of them, where its stored columns are here.
    at: Mapping[int, Mapping[int, int]]
    side: Side
    layout: StreamLayout


def stream_stored(number: int, stream: StreamColumns) -> Stored:
    """A stream, stored as it comes."""
    at = {number: {column: column for column in range(len(stream.lanes))}}
    layout = StreamLayout(stream.name, stream.time, stream.window_us)
    return Stored(stream.name, (number,), at, stream_side(number, stream), layout)


def combined_stored(members: Sequence[int], streams: Sequence[StreamColumns]) -> Stored:
    """The combinations of some streams: the columns of each, and the time by which they expire.

    The keys are those of the first stream; of the others only what is visible is kept, and the time.
    """
    at: dict[int, dict[int, int]] = {}
    width = 0
    for member in sorted(members):
        stream = streams[member]
        kept = set(range(len(stream.visible) if at else len(stream.lanes)))
        kept |= set() if stream.time is None else {stream.time}
        at[member] = {column: width + place for place, column in enumerate(sorted(kept))}
        width += len(kept)
    first = streams[min(members)]
    times = tuple(at[m][t] for m in at if (t := streams[m].time) is not None)
    windows = [w for m in at if (w := streams[m].window_us) is not None]
    window = min(windows) if len(windows) == len(at) else None
    keys = tuple(at[min(members)][key] for key in first.keys)
    name = state_name(streams[member].name for member in at)
    side = Side("+".join(str(member) for member in at), keys, times, window)
    layout = StreamLayout(name, width if window is not None else None, window, made=True)
    return Stored(name, tuple(at), at, side, layout)


def time_columns(
    layouts: Sequence[StreamLayout], streams: Sequence[StreamColumns], made: Sequence[str]
) -> tuple[int | None, ...]:
    """Where the times are: of streams that are stored in these layouts, then of made ones by name."""
    number = {stream.name: at for at, stream in enumerate(streams)}
    combined = ([number[name] for name in one.split("+")] for one in made)
    layouts = (*layouts, *(combined_stored(members, streams).layout for members in combined))
    return tuple(layout.time_column for layout in layouts)

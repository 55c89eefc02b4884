"""What a join tree stores: rows of streams, and combinations of streams as rows.

A combination has the columns of its streams, one after the other, in the order of the streams. The
shape that made it does not matter: states of the same streams are the same (plan/shape.py).

It expires with the first of its rows: at min(t_i + W_i). The state stores that time minus the least
window of its streams, and uses that window, so the combination expires like a normal row. The probe
computes the largest time from the rows.

Known limitation: a combination stores all visible columns of each stream, even if the output needs
few.
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
class StoredState:
    """A stored state: the rows of a stream, or combinations of several streams."""

    name: str
    #: The streams whose rows it has, ascending.
    members: tuple[int, ...]
    #: For each of them, the positions of its stored columns here.
    at: Mapping[int, Mapping[int, int]]
    side: Side
    layout: StreamLayout


def stream_stored(number: int, stream: StreamColumns) -> StoredState:
    """Returns the stored form of a stream: its rows as they come."""
    at = {number: {column: column for column in range(len(stream.lanes))}}
    layout = StreamLayout(stream.name, stream.time, stream.window_us)
    return StoredState(stream.name, (number,), at, stream_side(number, stream), layout)


def combined_stored(members: Sequence[int], streams: Sequence[StreamColumns]) -> StoredState:
    """Returns the stored form of combinations: all columns, and the time of expiry.

    The keys are those of the first stream. Of the others it keeps only visible columns and the
    time.
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
    expiry = width if window is not None else None
    side = Side("+".join(str(member) for member in at), keys, times, window, expiry)
    layout = StreamLayout(name, expiry, window, made=True)
    return StoredState(name, tuple(at), at, side, layout)

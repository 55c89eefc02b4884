"""Draws of the operators under the law (spillway/testing/simulated)."""

from __future__ import annotations

from hypothesis import strategies as st

from spillway.plan.kind import ANTI, FULL, LEFT, RIGHT, SEMI, JoinKind
from spillway.plan.shape import Shape, parse
from spillway.testing.simulated.grouping import Deduped, KeyedTotals, Windowed
from spillway.testing.simulated.joins import Joined, Treed
from spillway.testing.simulated.outer import Outer
from spillway.testing.simulated.windows import Closed, Finalised, Lasting, Updated


@st.composite
def joins(draw):
    streams = draw(st.integers(2, 4))
    windowed = draw(st.booleans())
    return Joined([draw(st.integers(1, 12)) if windowed else None for _ in range(streams)])


@st.composite
def shapes(draw, streams: int) -> Shape:
    """Any tree over streams, with inner nodes of two or more children."""
    nodes: list = [f"s{at}" for at in draw(st.permutations(range(streams)))]
    while len(nodes) > 1:
        size = draw(st.integers(2, min(3, len(nodes))))
        at = draw(st.integers(0, len(nodes) - size))
        nodes[at : at + size] = [Shape(tuple(nodes[at : at + size]))]
    return nodes[0]


@st.composite
def trees(draw):
    streams = draw(st.integers(2, 4))
    windowed = draw(st.booleans())
    windows = [draw(st.integers(1, 12)) if windowed else None for _ in range(streams)]
    return Treed(windows, draw(shapes(streams)))


@st.composite
def outer_joins(draw):
    """Any kind of join of two or more streams, with or without conditions."""
    how = draw(st.sampled_from([LEFT, RIGHT, FULL, SEMI, ANTI, LEFT, ""]))
    if how:
        streams, kind = 2, JoinKind(how)
    else:
        streams = draw(st.integers(2, 4))
        others = [f"s{at}" for at in range(1, streams)]
        some = draw(st.lists(st.sampled_from(others), min_size=1, unique=True))
        kind = JoinKind(LEFT, tuple(sorted(some)))
    windowed = how != SEMI or draw(st.booleans())
    windows = [draw(st.integers(1, 12)) if windowed else None for _ in range(streams)]
    return Outer(windows, kind, draw(st.booleans()))


@st.composite
def spans(draw, kind: type[Closed]) -> Closed:
    length = draw(st.integers(1, 9))
    slide = draw(st.integers(1, length) | st.just(length))
    return kind(length, slide, draw(st.integers(-3, 9)))


#: For each operator, the ways it may be set up.
SUBJECTS = {
    "join": joins(),
    "tree": trees(),
    "outer": outer_joins(),
    "group-by": st.just(KeyedTotals()),
    "last rows": st.builds(Windowed, st.booleans(), st.integers(1, 4)),
    "within": st.builds(Windowed, st.booleans(), st.none(), st.integers(1, 9)),
    "dedup": st.just(Deduped()) | st.builds(Deduped, st.integers(1, 9), st.just(True)),
    "dedup within": st.builds(Deduped, st.integers(1, 9)),
    "windows": spans(Closed),
    "window updates": spans(Updated),
    "sessions": st.builds(Closed, st.integers(1, 6), st.none()),
    "time to live": st.builds(Lasting, st.integers(1, 6), st.none()),
    "final within": st.builds(Finalised, st.integers(1, 9), st.none()),
}
#: For each operator but the n-way join, one that is put under pressure, and the memory of its slots.
PRESSED = {
    "tree": (Treed([30] * 4, parse("((s0 s1) (s2 s3))")), 1500),
    "group-by": (KeyedTotals(), 400),
    "last rows": (Windowed(True, 3), 400),
    "within": (Windowed(True, None, 9), 300),
    "dedup": (Deduped(), 60),
    "dedup within": (Deduped(9), 90),
    "dedup every": (Deduped(9, True), 90),
    "left": (Outer([9, 9], JoinKind(LEFT)), 600),
    "optional": (Outer([9, 9, 9], JoinKind(LEFT, ("s1",)), True), 900),
    "full": (Outer([9, 5], JoinKind(FULL)), 600),
    "semi": (Outer([9, 9], JoinKind(SEMI)), 600),
    "anti": (Outer([9, 9], JoinKind(ANTI)), 600),
    "windows": (Closed(9, 9), 300),
    "hopping": (Closed(9, 4, 2), 900),
    "window updates": (Updated(9, 9), 300),
    "sessions": (Closed(3, None), 300),
    "time to live": (Lasting(3, None), 300),
    "final within": (Finalised(9, None), 300),
}

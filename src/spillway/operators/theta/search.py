"""What a visit looks for in a slot, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spillway.operators.input import StreamColumns
from spillway.operators.predicates.predicate import Predicate
from spillway.operators.theta.candidates import Positions
from spillway.routing.slices import Slicing
from spillway.state.runs.merging import Segment


@dataclass(frozen=True)
class Found:
    """Combinations that found a partner: which of them, and which rows of which run."""

    left: Positions
    run: int
    right: Positions


@dataclass(frozen=True)
class Search:
    """What combinations look for: the same for all that visit a stream in a slot."""

    streams: Sequence[StreamColumns]
    slicing: Slicing
    #: In the order of their use.
    predicates: Sequence[Predicate]
    #: The visited stream, and its rows.
    target: int
    segments: Sequence[Segment]
    #: Pairs made at a time.
    pair_rows: int
    #: For each stream, the columns that go on.
    wanted: Sequence[Sequence[int]]
    #: Skips rows of this batch and later; None: all rows count.
    before: int | None = None

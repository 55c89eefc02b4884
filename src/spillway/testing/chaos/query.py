"""The operators of a schedule, and how results become rows of the next stage."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from spillway.plan.shape import Shape, parse
from spillway.routing.intervals import Intervals
from spillway.testing.chaos.schedule import ScheduledQuery
from spillway.testing.simulated.grouping import Deduped, KeyedTotals, Windowed
from spillway.testing.simulated.joins import Aligned, Joined, Matched, Treed
from spillway.testing.simulated.rows import Row, Subject
from spillway.testing.simulated.sliced import Sliced

#: The shapes that a tree may change to, by its number of streams.
SHAPES = {
    2: ("(s0 s1)",),
    3: ("((s0 s1) s2)", "(s0 (s1 s2))", "(s0 s1 s2)", "((s0 s2) s1)"),
    4: ("((s0 s1) (s2 s3))", "(((s0 s1) s3) s2)", "((s0 s2) (s1 s3))", "(s0 s1 s2 s3)"),
}


def subjects(query: ScheduledQuery) -> list[Subject]:
    """The stages of a query."""
    return [_MADE[query.kind](query), *(_THEN[kind]() for kind in query.then)]


def row_of(result: Hashable) -> Row:
    """A result as a row of the next stage; different results have different values."""
    assert isinstance(result, tuple)
    numbers = [0 if one is None else int(one) for one in result[:4]]
    value = 0
    for number in numbers:
        value = value * 1000 + number + 10
    return Row(0, sum(numbers) % 5, 0, value)


def rows_of(query: ScheduledQuery) -> list[Callable[[Hashable], Row] | None]:
    """For each stage, the function that makes a row from a result of the stage before it."""
    return [None, *(row_of for _ in query.then)]


def shapes(query: ScheduledQuery) -> list[Shape]:
    """The shapes that slots may change to; none if the query is not a tree."""
    texts = SHAPES[len(query.windows)] if query.kind == "tree" else ()
    return [shape for text in texts if isinstance(shape := parse(text), Shape)]


def _tree(query: ScheduledQuery) -> Subject:
    shape = parse(SHAPES[len(query.windows)][query.options["shape"]])
    assert isinstance(shape, Shape)
    return Treed(query.windows, shape)


def _sliced(query: ScheduledQuery) -> Subject:
    options = query.options
    windows = [w for w in query.windows if w is not None]
    pairs = [(str(kind), int(a), int(b)) for kind, a, b in options["pairs"]]
    return Sliced(
        windows,
        pairs,
        bool(options["whole"]),
        list(options["widths"]),
        int(options["copies"]),
        interleave=int(options["interleave"]),
    )


def _aligned(query: ScheduledQuery) -> Subject:
    windows = tuple(w for w in query.windows if w is not None)
    intervals = Intervals(query.options["length"], query.options["master"], windows)
    return Aligned(windows, query.options["whole"], intervals)


_MADE: dict[str, Callable[[ScheduledQuery], Subject]] = {
    "join": lambda query: Joined(query.windows),
    "tree": _tree,
    "match": lambda query: Matched(query.windows, query.options["whole"]),
    "atr": _aligned,
    "sliced": _sliced,
    "group-by": lambda _: KeyedTotals(),
    "last-rows": lambda query: Windowed(query.options["per_row"], query.options["rows"]),
    "within": lambda query: Windowed(query.options["per_row"], None, query.windows[0]),
    "dedup": lambda query: Deduped(query.windows[0], query.options["tumbling"]),
}
_THEN: dict[str, Callable[[], Subject]] = {"group-by": KeyedTotals, "dedup": Deduped}

"""The operators of a schedule, and how results become rows of the next stage."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from zlib import crc32

from spillway.plan.kind import JoinKind
from spillway.plan.shape import Shape, parse
from spillway.policies.shape.shaping import Shaping
from spillway.routing.intervals import Intervals
from spillway.testing.chaos.schedule import ScheduledQuery
from spillway.testing.simulated.grouping import Deduped, KeyedTotals, Windowed
from spillway.testing.simulated.joins import Aligned, Joined, Matched, Treed
from spillway.testing.simulated.outer import Outer
from spillway.testing.simulated.rows import Row, Subject
from spillway.testing.simulated.sliced import Sliced
from spillway.testing.simulated.windows import Closed, Finalised, Lasting, Updated

#: The shapes that a tree may change to, by its number of streams.
SHAPES = {
    2: ("(s0 s1)",),
    3: ("((s0 s1) s2)", "(s0 (s1 s2))", "(s0 s1 s2)", "((s0 s2) s1)"),
    4: ("((s0 s1) (s2 s3))", "(((s0 s1) s3) s2)", "((s0 s2) (s1 s3))", "(s0 s1 s2 s3)"),
}


def subjects(query: ScheduledQuery) -> list[Subject]:
    """The stages of a query."""
    return [_MADE[query.kind](query), *(_THEN[kind]() for kind in query.then)]


def row_of(result: Hashable, *, timed: bool = False) -> Row:
    """A result as a row of the next stage; different results have different values, as a rule.

    Times grow with the values of the query's rows, so some results are late. Some have no key; with
    `timed`, some have no time.
    """
    assert isinstance(result, tuple)
    # Values of later stages are large; keys and times come from what the query's own rows had.
    numbers = [int(one) for one in result[:4] if one is not None and abs(one) < 1000]
    total = sum(numbers)
    key = None if total % 23 == 5 else total % 5
    time = None if timed and total % 19 == 3 else max(numbers, default=0) // 8
    return Row(0, key, time, crc32(repr(result).encode()))


def rows_of(query: ScheduledQuery) -> list[Callable[[Hashable], Row] | None]:
    """For each stage, the function that makes a row from a result of the stage before it."""
    timed = [subject.streams[0].time is not None for subject in subjects(query)]
    return [None, *(partial(row_of, timed=one) for one in timed[1:])]


def shapes(query: ScheduledQuery) -> list[Shape]:
    """The shapes that slots may change to; none if the query is not a tree."""
    told = query.kind == "tree" and query.options.get("plan") is None
    texts = SHAPES[len(query.windows)] if told else ()
    return [shape for text in texts if isinstance(shape := parse(text), Shape)]


def _tree(query: ScheduledQuery) -> Subject:
    if plan := query.options.get("plan"):
        names = tuple(f"s{at}" for at in range(len(query.windows)))
        return Treed(query.windows, Shaping(names, plan).first)
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


def _outer(query: ScheduledQuery) -> Subject:
    options = query.options
    kind = JoinKind(str(options["how"]), tuple(options["optional"]))
    return Outer(query.windows, kind, bool(options["filtered"]))


def _by_window(query: ScheduledQuery) -> Subject:
    [length], options = query.windows, query.options
    assert length is not None
    kinds: dict[str, type[Closed]] = {
        "append": Closed,
        "update": Updated,
        "lasting": Lasting,
        "final": Finalised,
    }
    return kinds[options["gives"]](length, options["slide"], options["start"])


_MADE: dict[str, Callable[[ScheduledQuery], Subject]] = {
    "join": lambda query: Joined(query.windows),
    "tree": _tree,
    "match": lambda query: Matched(query.windows, query.options["whole"]),
    "outer": _outer,
    "atr": _aligned,
    "sliced": _sliced,
    "group-by": lambda _: KeyedTotals(),
    "last-rows": lambda query: Windowed(query.options["per_row"], query.options["rows"]),
    "within": lambda query: Windowed(query.options["per_row"], None, query.windows[0]),
    "dedup": lambda query: Deduped(query.windows[0], query.options["tumbling"]),
    "windows": _by_window,
}
_THEN: dict[str, Callable[[], Subject]] = {
    "group-by": KeyedTotals,
    "dedup": Deduped,
    "dedup-within": lambda: Deduped(5),
    "tumbling": lambda: Deduped(4, tumbling=True),
    "last-rows": lambda: Windowed(per_row=True, rows=2),
    "within": lambda: Windowed(per_row=False, range=6),
}
#: The kinds of later stages, and of those with windows.
LATER = tuple(_THEN)
WINDOWS_LATER = ("windows", "hopping", "sessions", "window-updates", "lasting", "final")
_THEN |= {
    "windows": lambda: Closed(4, 4),
    "hopping": lambda: Closed(6, 4, 1),
    "sessions": lambda: Closed(2, None),
    "window-updates": lambda: Updated(6, 4),
    "lasting": lambda: Lasting(2, None),
    "final": lambda: Finalised(4, None),
}

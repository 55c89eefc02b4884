"""Predicates of a join: any condition over rows of two or more streams.

A `Predicate` is a condition (operators/predicates/conditions.py) with the streams it is over
(operators/predicates/binding.py). It filters a combination when the last of these streams joins it. What
it implies about two of several streams filters earlier (operators/predicates/implied.py).

A predicate *can fail* if it is a Python function, or SQL that can raise an error (plan/sql/failing.py).
Whatever comes before it in the user's order is its guard: see `in_order` in
operators/predicates/probing.py. If a guard is about streams that have not joined yet, the predicate is
asked twice (`guarded`): as soon as its own streams have joined, where a failure means "perhaps", and
again with its guards. So it filters early, and fails only where all its guards hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.errors import QueryError, SpillwayError
from spillway.operators.predicates.columns import NothingThere, Rows
from spillway.operators.predicates.evaluation import holds
from spillway.operators.predicates.implied import InBands
from spillway.operators.predicates.tiles import Tiles
from spillway.operators.stats import OperatorStats
from spillway.plan.sql.bands import Band, answered, equalities
from spillway.plan.sql.expression import Column
from spillway.plan.sql.failing import can_fail
from spillway.plan.sql.nodes import SqlCondition

Mask = NDArray[np.bool_]
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Predicate:
    """A condition over given streams."""

    #: Its number and its name; statistics use both.
    label: str
    streams: tuple[str, ...]
    test: Callable[..., Any] | SqlCondition | InBands
    prefilter: SqlCondition | None = None
    cost_us: float | None = None
    #: The parts of it that a sorted order can answer.
    bands: tuple[Band, ...] = field(default=())
    #: Whether these bands together are equivalent to the condition.
    answered: bool = False
    #: What must hold of two of its streams for it to hold.
    implied: tuple[Predicate, ...] = ()
    #: Other streams of its guards, which must have joined too.
    after: tuple[str, ...] = ()
    #: Whether pairs on which it fails pass: it is asked again with its guards.
    tentative: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """The streams that must have joined before it is asked."""
        return (*self.streams, *self.after)

    @cached_property
    def can_fail(self) -> bool:
        """Whether it may raise an error on some pair, so that earlier predicates must guard it."""
        if self.tentative:
            return False
        parts = (one for one in (self.test, self.prefilter) if isinstance(one, SqlCondition))
        return callable(self.test) or any(can_fail(one.root) for one in parts)

    @property
    def name(self) -> str:
        """Its name for people: the SQL text, or the name of the function."""
        return self.label.partition(":")[2] or self.label

    @property
    def sql(self) -> str | None:
        """Its SQL text, if it has any."""
        parts = (self.test, self.prefilter)
        return next((one.text for one in parts if isinstance(one, SqlCondition)), None)

    @cached_property
    def tiles(self) -> Tiles | None:
        """Its function of tiles, if it may see pairs that its prefilter excludes: only bands do."""
        if self.tentative or not isinstance(self.test, Tiles):
            return None
        banded = self.prefilter is None or answered(self.prefilter.root)
        return self.test if banded else None

    @property
    def equalities(self) -> Iterator[tuple[Column, Column]]:
        """Columns that it compares for equality in all pairs of two streams."""
        banded = {frozenset((band.left.stream, band.right.stream)) for band in self.bands}
        for part in (self.test, self.prefilter):
            if isinstance(part, SqlCondition):
                for left, right in equalities(part.root):
                    if frozenset((left.stream, right.stream)) not in banded:
                        yield left, right

    def reads(self, stream: str, columns: Sequence[str]) -> Collection[str]:
        """The columns of a stream that it reads; a function may read all."""
        if stream in self.streams and callable(self.test):
            return columns
        parts = (self.test, self.prefilter)
        read = [one for one in parts if isinstance(one, SqlCondition | InBands)]
        found = (column for one in read for column in one.columns)
        return {column.name for column in found if column.stream == stream}

    def passed(self, rows: Mapping[str, Rows], count: int) -> Mask:
        """For each candidate pair, whether it passes; the prefilter has been applied."""
        if isinstance(self.test, SqlCondition):
            return holds(self.test, rows, count)
        if isinstance(self.test, InBands):
            return self.test.may_hold(rows, count)
        return self._called(self.test, [rows[stream] for stream in self.streams], count)

    def _called(self, test: Callable[..., Any], mine: Sequence[Rows], count: int) -> Mask:
        """What a Python function says of each candidate pair."""
        try:
            found = _as_mask(test(*mine))
        except NothingThere:
            return np.zeros(count, np.bool_)
        except SpillwayError:
            raise
        except Exception as problem:
            raise QueryError(
                f"the predicate {self.name} failed: {type(problem).__name__}: {problem}",
                hint="its arguments are one object per stream, whose attributes are columns: arrays "
                "with one value per candidate pair",
            ) from problem
        if found.shape != (count,) or found.dtype != np.bool_:
            raise QueryError(
                f"the predicate {self.name} returned {found.dtype} of shape {found.shape}, not "
                f"{count} booleans",
                hint="return one boolean per candidate pair, or wrap it: sw.scalar(fn)",
            )
        for one in mine:
            if (valid := one.valid()) is not None:
                found = found & valid
        return found


def _as_mask(found: Any) -> NDArray[Any]:
    """The result of a function as an array; NULL among Arrow's booleans is false."""
    if isinstance(found, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(found.type):
        found = found.fill_null(False)
    return np.asarray(found)


def with_implied(predicates: Sequence[Predicate]) -> tuple[Predicate, ...]:
    """Predicates, each after what it implies about two of its streams."""
    return tuple(one for whole in predicates for one in (*whole.implied, whole))


def guarded(predicates: Sequence[Predicate]) -> tuple[Predicate, ...]:
    """Predicates in the user's order, twice where a guard is about streams that may join later.

    Example:
        >>> ab, bc = Predicate("0:ab", ("a", "b"), min), Predicate("1:bc", ("b", "c"), min)
        >>> [(one.label, one.after, one.tentative) for one in guarded([ab, bc])]
        [('0:ab', (), False), ('1:bc', (), True), ('1:bc, again', ('a',), False)]
    """
    found: list[Predicate] = []
    earlier: set[str] = set()
    for one in predicates:
        others = tuple(sorted(earlier.difference(one.streams)))
        if others and one.can_fail:
            found.append(replace(one, tentative=True))
            found.append(replace(one, label=_again(one), after=others))
        else:
            found.append(one)
        earlier.update(one.streams)
    return tuple(found)


def _again(predicate: Predicate) -> str:
    return f"{predicate.label}, again"


def due(predicates: Sequence[Predicate], there: Collection[str], joins: str) -> list[Predicate]:
    """The predicates that a stream completes when it joins others.

    Example:
        >>> ab, bc = Predicate("ab", ("a", "b"), min), Predicate("bc", ("b", "c"), min)
        >>> [one.label for one in due([ab, bc], {"a"}, "b")], due([ab, bc], {"a"}, "c")
        (['ab'], [])
    """
    known = {*there, joins}
    found = [one for one in predicates if joins in one.needs and known.issuperset(one.needs)]
    # With its guards, one that was to be tried first is asked once.
    sure = {one.label for one in found if one.after}
    return [one for one in found if not (one.tentative and _again(one) in sure)]


def judged(
    predicate: Predicate,
    rows: Callable[[Positions | None], tuple[Mapping[str, Rows], int]],
    count: int,
    considered: int,
    stats: OperatorStats,
) -> Positions | None:
    """Which candidates pass, counted and timed; None: all do.

    `rows` returns the columns of some of the candidates, None meaning all. `considered` is the number of
    pairs that the candidates were selected from.
    """
    since = time.perf_counter()
    if predicate.tentative:
        left = _tried(predicate, rows, None, count)
    else:
        left = _passing(predicate, rows, None)
    seconds = time.perf_counter() - since
    passed = count if left is None else len(left)
    stats.count_judged(predicate.label, considered, passed, seconds)
    return left


#: Pairs that a predicate is asked about, and where they are among the candidates.
_Of = Callable[["Positions | None"], "tuple[Mapping[str, Rows], int]"]
#: Pairs that pass together if the predicate fails on one of them.
_FEW_PAIRS = 64


def _passing(predicate: Predicate, rows: _Of, at: Positions | None) -> Positions | None:
    """Which of the candidates at the given places pass; None: all of all."""
    left = at
    if predicate.prefilter is not None:
        left = _kept(left, _where(holds(predicate.prefilter, *rows(left))))
    if left is None or len(left):
        left = _kept(left, _where(predicate.passed(*rows(left))))
    return left


def _tried(predicate: Predicate, rows: _Of, at: Positions | None, count: int) -> Positions | None:
    """The same, where candidates near one on which the predicate fails pass too."""
    try:
        return _passing(predicate, rows, at)
    except QueryError:
        if count <= _FEW_PAIRS:
            return at
        whole = np.arange(count) if at is None else at
        halves = (whole[: count // 2], whole[count // 2 :])
        found = [_tried(predicate, rows, half, len(half)) for half in halves]
        return np.concatenate([one for one in found if one is not None])


def _kept(left: Positions | None, keep: Positions | None) -> Positions | None:
    if keep is None:
        return left
    return keep if left is None else left.take(keep)


def _where(held: Mask) -> Positions | None:
    """Where a mask is set; None: everywhere."""
    found = np.flatnonzero(held)
    return None if len(found) == len(held) else found

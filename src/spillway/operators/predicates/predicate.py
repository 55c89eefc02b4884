"""Predicates of a join: any condition over rows of two or more streams.

A `Predicate` is a condition (operators/predicates/conditions.py) with the streams it is over; it is
evaluated when the last of them joins a combination. What it says of two of several streams is asked
before (operators/predicates/implied.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.errors import PlanError, QueryError, SpillwayError
from spillway.operators.predicates.columns import NothingThere, Rows
from spillway.operators.predicates.conditions import Condition
from spillway.operators.predicates.evaluation import holds
from spillway.operators.predicates.implied import InBands, between_two
from spillway.operators.stats import OperatorStats
from spillway.plan.sql.bands import Band, answered, bands_of, equalities
from spillway.plan.sql.expression import Column, Expression, columns_of, parse
from spillway.plan.sql.kinds import kind_of
from spillway.plan.sql.typed import SqlCondition, typed

Mask = NDArray[np.bool_]
Positions = NDArray[np.int64]

#: Bytes of candidate pairs, as the rows they are of, that predicates are asked of at a time.
PAIR_BYTES = 32 << 20


@dataclass(frozen=True)
class Predicate:
    """A condition over given streams."""

    #: What it is called where it is counted.
    label: str
    streams: tuple[str, ...]
    test: Callable[..., Any] | SqlCondition | InBands
    prefilter: SqlCondition | None = None
    cost_us: float | None = None
    #: What a sorted order can answer of it.
    bands: tuple[Band, ...] = field(default=())
    #: Whether they say, all together, just what the condition says.
    answered: bool = False
    #: What must hold of two of its streams for it to hold.
    implied: tuple[Predicate, ...] = ()

    @property
    def sql(self) -> str | None:
        """The SQL text in it, if there is any."""
        parts = (self.test, self.prefilter)
        return next((one.text for one in parts if isinstance(one, SqlCondition)), None)

    @property
    def equalities(self) -> Iterator[tuple[Column, Column]]:
        """Columns that it compares in all pairs of two streams, to find those that are equal."""
        banded = {frozenset((band.left.stream, band.right.stream)) for band in self.bands}
        for part in (self.test, self.prefilter):
            if isinstance(part, SqlCondition):
                for left, right in equalities(part.root):
                    if frozenset((left.stream, right.stream)) not in banded:
                        yield left, right

    def reads(self, stream: str, columns: Sequence[str]) -> Collection[str]:
        """Which columns of a stream it looks at; a function may look at all."""
        if stream in self.streams and callable(self.test):
            return columns
        parts = (self.test, self.prefilter)
        asked = [one for one in parts if isinstance(one, SqlCondition | InBands)]
        found = (column for one in asked for column in one.columns)
        return {column.name for column in found if column.stream == stream}

    def passed(self, rows: Mapping[str, Rows], count: int) -> Mask:
        """For each candidate pair, whether it stands; the prefilter has been looked at."""
        if isinstance(self.test, SqlCondition):
            return holds(self.test, rows, count)
        if isinstance(self.test, InBands):
            return self.test.may_hold(rows, count)
        mine = [rows[stream] for stream in self.streams]
        try:
            found = _as_mask(self.test(*mine))
        except NothingThere:
            return np.zeros(count, np.bool_)
        except SpillwayError:
            raise
        except Exception as problem:
            raise QueryError(
                f"the predicate {self.label} failed: {type(problem).__name__}: {problem}",
                hint="it is called with one object per stream whose attributes are columns, "
                "arrays with one value per candidate pair",
            ) from problem
        if found.shape != (count,) or found.dtype != np.bool_:
            raise QueryError(
                f"the predicate {self.label} gave {found.dtype} of shape {found.shape}, not "
                f"{count} booleans",
                hint="return one boolean per candidate pair, or wrap it: sw.scalar(fn)",
            )
        for one in mine:
            if (valid := one.valid()) is not None:
                found = found & valid
        return found


def _as_mask(found: Any) -> NDArray[Any]:
    """What a function has given as an array; of Arrow's booleans a NULL is false."""
    if isinstance(found, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(found.type):
        found = found.fill_null(False)
    return np.asarray(found)


def pairs_of(width_bytes: int, most: int) -> int:
    """How many pairs, of rows that are so wide together, are looked at at a time.

    Example:
        >>> pairs_of(16, most=32_768), pairs_of(1 << 20, most=32_768)
        (32768, 32)
    """
    return max(1, min(most, PAIR_BYTES // max(width_bytes, 1)))


def with_implied(predicates: Sequence[Predicate]) -> tuple[Predicate, ...]:
    """Predicates, each after what it says of two of its streams."""
    return tuple(one for whole in predicates for one in (*whole.implied, whole))


def due(predicates: Sequence[Predicate], there: Collection[str], joins: str) -> list[Predicate]:
    """The predicates that a stream completes when it joins others.

    Example:
        >>> ab, bc = Predicate("ab", ("a", "b"), min), Predicate("bc", ("b", "c"), min)
        >>> [one.label for one in due([ab, bc], {"a"}, "b")], due([ab, bc], {"a"}, "c")
        (['ab'], [])
    """
    known = {*there, joins}
    return [one for one in predicates if joins in one.streams and known.issuperset(one.streams)]


def judged(
    predicate: Predicate,
    rows: Callable[[Positions | None], tuple[Mapping[str, Rows], int]],
    count: int,
    considered: int,
    stats: OperatorStats,
) -> Positions | None:
    """Which of some candidates stand, counted and timed; None: all do.

    `rows` gives the columns of some of the candidates, None being all. `considered` are the pairs that
    the candidates were found among.
    """
    since = time.perf_counter()
    left: Positions | None = None
    if predicate.prefilter is not None:
        left = _where(holds(predicate.prefilter, *rows(None)))
    if left is None or len(left):
        keep = _where(predicate.passed(*rows(left)))
        if keep is not None:
            left = keep if left is None else left.take(keep)
    seconds = time.perf_counter() - since
    passed = count if left is None else len(left)
    stats.count_judged(predicate.label, considered, passed, seconds)
    return left


def _where(held: Mask) -> Positions | None:
    """Where something holds; None: everywhere."""
    found = np.flatnonzero(held)
    return None if len(found) == len(held) else found


def bound(
    condition: Condition | Callable[..., Any] | str,
    over: Sequence[str],
    columns: Mapping[str, Mapping[str, str]],
    number: int = 0,
    zone: str = "UTC",
) -> Predicate:
    """A condition as a predicate over streams with given columns; refused if it does not fit them.

    `columns` has the type of every column, as Spark calls it, and `zone` is the one in which text is a
    timestamp. Without streams, SQL is over those that it names, and a function over all.
    """
    if not isinstance(condition, Condition):
        condition = Condition(condition)
    if not all(isinstance(stream, str) for stream in over):
        raise PlanError(
            f"match(..., {', '.join(map(repr, over))}): a stream is given by its name",
            hint=f"name one after the other: match(..., {_quoted(list(columns)[:2])})",
        )
    unknown = [stream for stream in over if stream not in columns]
    if unknown or len(set(over)) < len(over) or len(over) == 1:
        why = f"there is no stream {unknown[0]}" if unknown else "it needs two streams or more"
        raise PlanError(f"match(..., {', '.join(map(repr, over))}): {why}", hint=_streams(columns))
    test = parse(condition.test) if isinstance(condition.test, str) else condition.test
    if not callable(test) and not over:
        named = {column.stream for column in columns_of(test)}
        over = [stream for stream in columns if stream in named]
    over = tuple(over) or tuple(columns)
    name = condition.test if isinstance(condition.test, str) else _name(condition.test)
    understood: Callable[..., Any] | SqlCondition
    understood = test if callable(test) else _understood(test, name, over, columns, zone)
    if not callable(test) and len(over) < 2:
        raise PlanError(
            f"the condition {name!r} is over one stream", hint="use where() on that stream instead"
        )
    prefilter = None
    if (text := condition.prefilter) is not None:
        prefilter = _understood(parse(text), text, over, columns, zone)
    parts = [one for one in (understood, prefilter) if isinstance(one, SqlCondition)]
    bands = tuple(band for one in parts for band in bands_of(one.root))
    said = prefilter is None and len(parts) == 1 and answered(parts[0].root)
    label = f"{number}:{name}"
    implied = _implied(label, over, bands) if len(over) > 2 else ()
    return Predicate(label, over, understood, prefilter, condition.cost_us, bands, said, implied)


def _implied(label: str, over: Sequence[str], bands: Sequence[Band]) -> tuple[Predicate, ...]:
    return tuple(
        Predicate(f"{label}, of {' and '.join(pair)}", pair, test, bands=test.bands, answered=True)
        for pair, test in between_two(bands, over)
    )


def _understood(
    expression: Expression,
    name: str,
    over: Sequence[str],
    columns: Mapping[str, Mapping[str, str]],
    zone: str,
) -> SqlCondition:
    _fitting(expression, name, over, columns)
    kinds = {
        Column(stream, column): kind_of(kind)
        for stream in over
        for column, kind in columns[stream].items()
    }
    return typed(name, expression, kinds, zone)


def _fitting(
    expression: Expression, name: str, over: Sequence[str], columns: Mapping[str, Mapping[str, str]]
) -> None:
    for column in columns_of(expression):
        if column.stream not in columns or column.stream not in over:
            raise PlanError(
                f"the condition {name!r} names {column.stream}.{column.name}, but it is over "
                f"{', '.join(over) or 'no streams'}",
                hint=_streams(columns),
            )
        if column.name not in columns[column.stream]:
            raise PlanError(
                f"the condition {name!r}: stream {column.stream} has no column {column.name}",
                hint=f"its columns are {', '.join(columns[column.stream])}",
            )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _streams(columns: Mapping[str, Any]) -> str:
    return f"the streams are {', '.join(columns)}"


def _name(test: Callable[..., Any]) -> str:
    return str(getattr(test, "__name__", type(test).__name__))

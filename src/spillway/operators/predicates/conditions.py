"""Conditions as users write them, and what is known about their cost.

A condition is a function over columns of candidate pairs that returns a boolean array, a function of
one row of each stream (`scalar`), or SQL text. `predicate` adds a cheap necessary condition that
filters first, and the cost of a pair. With its streams it becomes a `Predicate`
(operators/predicates/binding.py).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.errors import PlanError, QueryError
from spillway.operators.predicates.columns import Rows

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Condition:
    """A function or SQL text, with its prefilter and cost."""

    test: Callable[..., Any] | str
    prefilter: str | None = None
    #: Microseconds of one pair, until it is measured.
    cost_us: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.test, str) and not callable(self.test):
            raise PlanError(
                f"a condition must be SQL text or a function, not {self.test!r}",
                hint='for example match("a.x < b.x") or match(lambda a, b: a.x < b.x); where() takes '
                "Columns, and filters results",
            )
        if self.prefilter is not None and not isinstance(self.prefilter, str):
            raise PlanError(
                f"prefilter={self.prefilter!r} must be a SQL string",
                hint='for example prefilter="abs(a.x - b.x) < 3"; add a function with another match()',
            )
        if self.cost_us is not None and not _is_time(self.cost_us):
            raise PlanError(
                f"cost={self.cost_us!r} must be a positive number of microseconds",
                hint="leave cost out: the query measures the cost of a pair while it runs",
            )


def _is_time(cost: Any) -> bool:
    number = isinstance(cost, int | float) and not isinstance(cost, bool)
    return number and math.isfinite(cost) and cost > 0


class Scalar:
    """A function of one row of each stream, called pair by pair."""

    def __init__(self, test: Callable[..., Any]) -> None:
        self._test = test
        self.__name__ = getattr(test, "__name__", "a function")

    def __call__(self, *rows: Rows) -> Mask:
        """Whether it holds, for each pair."""
        each = [_OneRow(one) for one in rows]
        held = np.empty(len(rows[0]), np.bool_)
        for at in range(len(held)):
            for one in each:
                one.at = at
            held[at] = self._of_one(each)
        return held

    def _of_one(self, rows: list[_OneRow]) -> bool:
        try:
            return bool(self._test(*rows))
        except TypeError as problem:
            if not any(one.null for one in rows):
                raise
            raise QueryError(
                f"the predicate {self.__name__} failed on a row with a NULL: {problem}",
                hint="a NULL is None: test for it first, `a.x is not None and ...`",
            ) from problem


class _OneRow:
    """The row of one pair: the values of its columns."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._lists: dict[str, list[Any]] = {}
        self.at = 0

    def __getattr__(self, name: str) -> Any:
        if name not in self._lists:
            self._lists[name] = self._rows.arrow(name).to_pylist()
        return self._lists[name][self.at]

    __getitem__ = __getattr__

    @property
    def null(self) -> bool:
        """Whether a value read so far is NULL."""
        return any(values[self.at] is None for values in self._lists.values())


def scalar(test: Callable[..., Any]) -> Scalar:
    """Makes a condition of a function of one row of each stream; warns that it is slow.

    A NULL is None, and the function must expect it: no pair is left out.
    """
    found = Scalar(test)
    warnings.warn(
        f"{found.__name__} runs once for every candidate pair, a microsecond or more each; "
        "a function over whole columns takes a hundredth of that",
        stacklevel=2,
    )
    return found


def predicate(
    test: Callable[..., Any] | str, prefilter: str | None = None, cost: float | None = None
) -> Condition:
    """A condition with a prefilter, SQL that holds wherever it holds, and its cost in µs per pair."""
    return Condition(test, prefilter, cost)

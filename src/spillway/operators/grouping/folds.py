"""A user's aggregate as partials: functions over Arrow columns that make, merge and finish them.

Each call handles many groups. The functions must not depend on how rows were split: merging the
partials of parts must give the partials of the whole, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.errors import QueryError
from spillway.kernels.grouping import Grouping
from spillway.operators.grouping.partials import GatheredRows

Columns = Mapping[str, pa.Array]
#: Takes columns whose rows are grouped, and the offsets of the groups; returns a value for each group.
Reduce = Callable[[Columns, NDArray[np.int64]], Mapping[str, Any]]


@dataclass(frozen=True)
class Fold:
    """The partial of a user's aggregate."""

    name: str
    make: Reduce
    merge: Reduce
    #: The columns that `make` gets: names and positions.
    columns: tuple[tuple[str, int], ...]
    #: The columns of the partial: names and types.
    parts: tuple[tuple[str, pa.DataType], ...]

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.parts)

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Makes the partial of each group of rows."""
        order = pa.array(groups.order)
        given = {name: rows.column(at).take(order) for name, at in self.columns}
        return self._made("make", self.make(given, groups.starts), len(groups))

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Merges the partials of each group."""
        order = pa.array(groups.order)
        names = [name for name, _ in self.parts]
        given = {name: one.take(order) for name, one in zip(names, columns, strict=True)}
        return self._made("merge", self.merge(given, groups.starts), len(groups))

    def _made(self, which: str, found: Mapping[str, Any], groups: int) -> list[pa.Array]:
        if set(found) != {name for name, _ in self.parts}:
            wanted = ", ".join(name for name, _ in self.parts)
            raise _wrong(self.name, which, f"it must return {wanted}, not {', '.join(found)}")
        return [arrow(self.name, which, found[name], kind, groups) for name, kind in self.parts]


@dataclass(frozen=True)
class FoldAggregate:
    """A user's aggregate: its partial, and the function that makes results of it."""

    name: str
    partial: Fold
    finish: Callable[[Columns], Any]
    result_type: pa.DataType

    def partials(self) -> tuple[Fold, ...]:
        """Returns its one partial."""
        return (self.partial,)

    def result(self, found: Sequence[Sequence[pa.Array]]) -> pa.Array:
        """Returns the results, from the columns of its partial."""
        [columns] = found
        names = (name for name, _ in self.partial.parts)
        values = self.finish(dict(zip(names, columns, strict=True)))
        return arrow(self.name, "finish", values, self.result_type, len(columns[0]))


def arrow(name: str, which: str, values: Any, kind: pa.DataType, groups: int) -> pa.Array:
    """Returns what a function of the user gave, with the declared type and one value per group."""
    try:
        found = pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as problem:
        raise _wrong(name, which, str(problem)) from problem
    if len(found) != groups:
        raise _wrong(name, which, f"it got {groups} groups and returned {len(found)} values")
    return found


def _wrong(name: str, which: str, detail: str) -> QueryError:
    return QueryError(
        f"the function {which} of aggregate {name} did not return one value of its type per group",
        detail=detail,
        hint="return one value for each group offsets[g]:offsets[g + 1], in the same order",
    )

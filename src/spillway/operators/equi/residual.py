"""Predicates on rows with equal keys: they filter the pairs that an equi-join finds.

A pair of an n-way join has equal keys and fitting times. A predicate runs when the last of its
streams joins the combination, on columns gathered for it. Conditions on two streams run when both
are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.metrics.counts import Counts
from spillway.operators.input import StreamColumns
from spillway.operators.predicates.columns import Rows
from spillway.operators.predicates.predicate import (
    Predicate,
    due,
    guarded,
    judged,
    with_implied,
)
from spillway.operators.predicates.probing import Measured, in_order, probe_order
from spillway.operators.stats import OperatorStats

Positions = NDArray[Any]
#: Returns a column of a stream, and which of its rows the candidate pairs use; None: one per pair.
ColumnOfPairs = tuple[Callable[[int], pa.Array], Positions | None]


class Residual:
    """The predicates of an n-way join."""

    def __init__(
        self,
        streams: Sequence[StreamColumns],
        predicates: Sequence[Predicate],
        *,
        guards: bool = True,
    ) -> None:
        """With `guards`, predicates guard later ones that can fail, also those of other streams."""
        self._streams = tuple(streams)
        self._predicates = with_implied(predicates)
        self._guarded = guarded(self._predicates) if guards else self._predicates

    def order(
        self,
        source: int,
        partners: Mapping[int, float],
        measured: Counts,
    ) -> tuple[int, ...]:
        """Returns the other streams in the order in which rows of one look for partners."""
        names = [stream.name for stream in self._streams]
        known = {names[at]: count for at, count in partners.items()}
        found = probe_order(names[source], names, self._predicates, known, Measured(measured))
        return tuple(map(names.index, found))

    def reads(self, target: int, there: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Returns the columns that predicates read when a stream joins others, for each stream."""
        known = [self._streams[number].name for number in there]
        asked = due(self._guarded, known, self._streams[target].name)
        found = {}
        for number in (*there, target):
            stream = self._streams[number]
            names = {name for one in asked for name in one.reads(stream.name, stream.visible)}
            found[number] = tuple(sorted(map(stream.visible.index, names)))
        return found

    def passed(
        self,
        target: int,
        columns: Callable[[Positions], Mapping[int, ColumnOfPairs]],
        count: int,
        stats: OperatorStats,
        measured: Counts,
    ) -> Positions | None:
        """Returns the candidates of a new stream that pass; None: all pass.

        `columns` returns the columns of the joined streams, for some of the candidates.
        """
        at = np.arange(count)
        for predicate in self._due(target, columns(at[:0]), measured):
            if not len(at):
                break

            def rows(keep: Positions | None, of: Positions = at) -> tuple[Mapping[str, Rows], int]:
                some = of if keep is None else of[keep]
                found = {
                    self._streams[number].name: self._rows(number, column, len(some))
                    for number, column in columns(some).items()
                }
                return found, len(some)

            keep = judged(predicate, rows, len(at), len(at), stats)
            at = at if keep is None else at[keep]
        return None if len(at) == count else at

    def _due(
        self,
        target: int,
        there: Mapping[int, ColumnOfPairs],
        measured: Counts,
    ) -> list[Predicate]:
        known = [self._streams[number].name for number in there]
        asked = due(self._guarded, known, self._streams[target].name)
        return in_order(asked, Measured(measured))

    def _rows(self, number: int, column: ColumnOfPairs, count: int) -> Rows:
        stream = self._streams[number]
        return Rows(stream.name, stream.visible, column[0], column[1], count)

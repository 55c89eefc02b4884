"""Aggregates of windows: for each row of a group, or its last one, over the rows it sees.

The windows of a group slide over its rows, so most aggregates take two steps per window
(kernels/sliding.py). For the others, such as a user's function, this module writes out the rows of
the windows, a bounded number at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.errors import QueryError
from spillway.kernels.grouping import Grouping
from spillway.kernels.sliding import spelled_out
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.partials import Bounds, GatheredRows, Partial, Sliding
from spillway.rows import bounds
from spillway.rows.cutting import Widths, stretches
from spillway.rows.joining import joined_column

#: Rows of windows written out at a time; a larger window is alone.
SPELLED_ROWS = 1 << 20


@dataclass(frozen=True)
class PythonAggregate:
    """A user's function as an aggregate of windows.

    The function gets columns by name, as Arrow arrays, and the offsets of the windows: window w has
    the rows from `offsets[w]` up to `offsets[w + 1]`. It returns one value per window, in any form
    that Arrow can convert to an array.
    """

    name: str
    function: Callable[[Mapping[str, pa.Array], NDArray[np.int64]], Any]
    #: The columns it gets: name and position among the stored ones.
    columns: tuple[tuple[str, int], ...]
    result_type: pa.DataType

    def of_rows(self, rows: GatheredRows, windows: Grouping) -> pa.Array:
        """Returns the value of each window."""
        order = pa.array(windows.order)
        given = {name: rows.column(at).take(order) for name, at in self.columns}
        values = self.function(given, windows.starts)
        try:
            found = pa.array(values, self.result_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as problem:
            raise self._wrong(str(problem)) from problem
        if len(found) != len(windows):
            raise self._wrong(f"it got {len(windows)} windows and returned {len(found)} values")
        return found

    def _wrong(self, detail: str) -> QueryError:
        return QueryError(
            f"the function of aggregate {self.name} did not return one {self.result_type} per window",
            detail=detail,
            hint="return one value for each window offsets[w]:offsets[w + 1], in the same order",
        )


@dataclass(frozen=True)
class Windows:
    """Windows over ordered rows: window w belongs to its last row, `end[w] - 1`."""

    begin: Bounds
    end: Bounds
    #: Windows that contain rows which came after their last row, and must not see them.
    tangled: NDArray[np.bool_]

    def take(self, chosen: NDArray[np.bool_] | slice) -> Windows:
        """Selects some of the windows."""
        return Windows(self.begin[chosen], self.end[chosen], self.tangled[chosen])

    def blocks(self, before: Bounds) -> Iterator[slice]:
        """Yields the windows in blocks with few enough rows and bytes to write out.

        `before` has the bytes before each of the ordered rows, and their total.
        """
        row_bytes = max(1, bounds.STEP_BYTES // SPELLED_ROWS)
        sizes = np.maximum(
            (self.end - self.begin) * row_bytes, before[self.end] - before[self.begin]
        )
        for begin, end in stretches(sizes, SPELLED_ROWS * row_bytes):
            yield slice(begin, end)


AnyAggregate = Aggregate | PythonAggregate


def over_windows(
    aggregates: Sequence[AnyAggregate], rows: GatheredRows, windows: Windows
) -> list[pa.Array]:
    """Returns one column per aggregate, one row per window."""
    if not windows.tangled.any():
        return _of_plain(aggregates, rows, windows)
    if windows.tangled.all():
        return _spelled(aggregates, rows, windows)
    plain = ~windows.tangled
    parts = [
        _of_plain(aggregates, rows, windows.take(plain)),
        _spelled(aggregates, rows, windows.take(windows.tangled)),
    ]
    back = pa.array(np.argsort(np.argsort(windows.tangled, kind="stable"), kind="stable"))
    return [joined_column(both).take(back) for both in zip(*parts, strict=True)]


def _of_plain(
    aggregates: Sequence[AnyAggregate], rows: GatheredRows, windows: Windows
) -> list[pa.Array]:
    known: dict[Partial, list[pa.Array]] = {}
    wanted = dict.fromkeys(
        p for one in aggregates if isinstance(one, Aggregate) for p in one.partials()
    )
    for partial in wanted:
        if isinstance(partial, Sliding):
            found = partial.of_windows(rows, windows.begin, windows.end)
            if found is not None:
                known[partial] = found
    return _spelled(aggregates, rows, windows, known)


def _spelled(
    aggregates: Sequence[AnyAggregate],
    rows: GatheredRows,
    windows: Windows,
    known: Mapping[Partial, list[pa.Array]] | None = None,
) -> list[pa.Array]:
    """Computes the aggregates; writes out the rows of windows where partials are unknown."""
    known = known or {}
    ready: dict[int, pa.Array] = {}
    for at, one in enumerate(aggregates):
        if isinstance(one, Aggregate) and all(p in known for p in one.partials()):
            ready[at] = one.result([known[p] for p in one.partials()])
    parts: dict[int, list[pa.Array]] = {at: [] for at in range(len(aggregates)) if at not in ready}
    before = _bytes_before([aggregates[at] for at in parts], rows)
    for block in windows.blocks(before) if parts else ():
        groups = Grouping(*spelled_out(windows.begin[block], windows.end[block], rows.batches))
        for at, held in parts.items():
            held.append(_aggregated(aggregates[at], rows, groups))
    ready |= {at: joined_column(held) for at, held in parts.items() if held}
    return [ready[at] for at in range(len(aggregates))]


def _bytes_before(aggregates: Sequence[AnyAggregate], rows: GatheredRows) -> Bounds:
    """Returns the bytes before each row, in the columns that some aggregates read."""
    read = sorted({column for one in aggregates for column in _columns_of(one)})
    sizes = Widths([rows.column(at) for at in read]).at(np.arange(len(rows.batches)))
    return np.append(0, np.cumsum(sizes))


def _columns_of(one: AnyAggregate) -> list[int]:
    if isinstance(one, PythonAggregate):
        return [at for _, at in one.columns]
    return [at for at in (one.column, one.order) if at is not None]


def _aggregated(one: AnyAggregate, rows: GatheredRows, groups: Grouping) -> pa.Array:
    if isinstance(one, PythonAggregate):
        return one.of_rows(rows, groups)
    return one.result([partial.of_rows(rows, groups) for partial in one.partials()])

"""The partial for approximate quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.equality import is_valid
from spillway.kernels.grouping import Grouping
from spillway.kernels.ranking import numbers
from spillway.kernels.sketch import combine_sketches
from spillway.operators.grouping.partials import GatheredRows


@dataclass(frozen=True)
class Sketch:
    """The number of values, and a few of them that represent quantiles (kernels/sketch.py)."""

    column: int
    width = 3

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Sorts all values: pieces of a batch give the same sketch, however they were cut."""
        column = rows.column(self.column)
        values = numbers(column, np.float64)[groups.order]
        sizes = np.diff(groups.starts)
        number = np.repeat(np.arange(len(groups)), sizes)
        if column.null_count:
            valid = is_valid(column)[groups.order]
            values, number = values[valid], number[valid]
            sizes = np.bincount(number, minlength=len(groups))
        values = values[np.lexsort((values, number))]
        at = np.append(0, np.cumsum(sizes)).astype(np.int32)
        one_level = np.arange(len(groups) + 1, dtype=np.int32)
        return [
            pa.array(sizes.astype(np.int64)),
            pa.ListArray.from_arrays(pa.array(at), pa.array(values)),
            pa.ListArray.from_arrays(pa.array(one_level), pa.array(sizes.astype(np.int32))),
        ]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Combines sketches."""
        counts, values, value_at, sizes, size_at = combine_sketches(
            *sketch_arrays(columns), groups.order, groups.starts
        )
        return [
            pa.array(counts),
            pa.ListArray.from_arrays(pa.array(value_at), pa.array(values)),
            pa.ListArray.from_arrays(pa.array(size_at), pa.array(sizes)),
        ]


_Array = NDArray[Any]


def sketch_arrays(
    columns: Sequence[pa.Array],
) -> tuple[_Array, _Array, _Array, _Array, _Array]:
    """Returns the columns of sketches as the kernels take them."""
    counts, values, sizes = columns
    return (
        numbers(counts, np.int64),
        values.values.to_numpy(),
        values.offsets.to_numpy(),
        sizes.values.to_numpy(),
        sizes.offsets.to_numpy(),
    )

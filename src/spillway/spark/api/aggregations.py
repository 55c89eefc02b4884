"""The aggregate functions that users write: `sw.avg("price")`, `sw.count()`, `sw.min("a.x + 1")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F

#: Spark's own functions; they give the types of results.
_SPARK: dict[str, Callable[[Column], Column]] = {
    "count": F.count,
    "sum": F.sum,
    "avg": F.avg,
    "min": F.min,
    "max": F.max,
    "stddev": F.stddev,
    "variance": F.variance,
    "first": F.first,
    "last": F.last,
    "approx_quantile": lambda column: F.max(column.cast("double")),
}


@dataclass(frozen=True)
class PythonFunction:
    """A vectorised function over windows; see `function`."""

    call: Callable[[Mapping[str, pa.Array], NDArray[np.int64]], Any]
    columns: tuple[str, ...]
    returns: str

    @property
    def title(self) -> str:
        """Its name."""
        return str(getattr(self.call, "__name__", "function"))


@dataclass(frozen=True)
class Aggregation:
    """An aggregate function with its argument."""

    function: str
    #: A column or Spark SQL text; None: count rows.
    of: str | Column | None = None
    #: The column that orders `first` and `last` within a batch; None: the value itself.
    by: str | None = None
    #: Which quantile, from 0 to 1.
    fraction: float | None = None
    #: The user's own function, its columns, and the type of its result.
    python: PythonFunction | None = None

    @property
    def text(self) -> str:
        """The aggregate as the user wrote it."""
        if self.python is not None:
            return f"{self.python.title}({', '.join(self.python.columns)})"
        of = "*" if self.of is None else str(self.of)
        more = "" if self.fraction is None else f", {self.fraction}"
        more += "" if self.by is None else f", by={self.by}"
        return f"{self.function}({of}{more})"

    def argument(self) -> Column:
        """The argument as a column of the user's stream."""
        if self.of is None:
            return F.lit(1)
        return F.expr(self.of) if isinstance(self.of, str) else self.of

    def as_spark(self, argument: Column) -> Column:
        """The same aggregate in Spark; for a user's function, a column of its result type."""
        if self.python is not None:
            return F.max(F.lit(None).cast(self.python.returns))
        return _SPARK[self.function](argument)


def count(column: str | Column = "*") -> Aggregation:
    """The number of rows, or of rows with a value in a column."""
    everything = isinstance(column, str) and column == "*"
    return Aggregation("count", None if everything else column)


def sum(column: str | Column) -> Aggregation:
    """The sum of the values; a sum of integers that does not fit in a bigint raises an error."""
    return Aggregation("sum", column)


def avg(column: str | Column) -> Aggregation:
    """The mean of the values."""
    return Aggregation("avg", column)


def min(column: str | Column) -> Aggregation:
    """The smallest value."""
    return Aggregation("min", column)


def max(column: str | Column) -> Aggregation:
    """The largest value."""
    return Aggregation("max", column)


def stddev(column: str | Column) -> Aggregation:
    """The standard deviation of a sample."""
    return Aggregation("stddev", column)


def variance(column: str | Column) -> Aggregation:
    """The variance of a sample."""
    return Aggregation("variance", column)


def first(column: str | Column, *, by: str | None = None) -> Aggregation:
    """The first value: from the first batch, and in it the smallest by a column."""
    return Aggregation("first", column, by)


def last(column: str | Column, *, by: str | None = None) -> Aggregation:
    """The last value: from the last batch, and in it the largest by a column."""
    return Aggregation("last", column, by)


def approx_quantile(column: str | Column, fraction: float) -> Aggregation:
    """A value with about this fraction of all values below it; `kernels.sketch` has the error bound."""
    return Aggregation("approx_quantile", column, fraction=fraction)


def function(
    call: Callable[[Mapping[str, pa.Array], NDArray[np.int64]], Any],
    *columns: str,
    returns: str,
) -> Aggregation:
    """Your own function over windows; one call handles many windows.

    It gets the columns by name, as Arrow arrays, and the offsets of the windows: window w has the rows
    from `offsets[w]` up to `offsets[w + 1]`. It returns one value per window.

    Example:
        >>> def spread(columns, offsets):
        ...     prices = columns["price"].to_numpy()
        ...     return np.maximum.reduceat(prices, offsets[:-1]) - np.minimum.reduceat(
        ...         prices, offsets[:-1]
        ...     )
        >>> function(spread, "price", returns="double").text
        'spread(price)'
    """
    return Aggregation("function", python=PythonFunction(call, columns, returns))

"""The aggregate functions that users write: `sw.avg("price")`, `sw.count()`, `sw.min("a.x + 1")`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F

from spillway.errors import PlanError

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
    "bool_and": F.bool_and,
    "bool_or": F.bool_or,
    "min_by": F.min,
    "max_by": F.max,
    "count_distinct": F.count,
    "approx_count_distinct": F.count,
    "collect_list": F.collect_list,
    "collect_set": F.collect_set,
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
class UserFold:
    """A user's aggregate as functions that make, merge and finish partials; see `fold`."""

    make: Callable[[Mapping[str, pa.Array], NDArray[np.int64]], Mapping[str, Any]]
    merge: Callable[[Mapping[str, pa.Array], NDArray[np.int64]], Mapping[str, Any]]
    finish: Callable[[Mapping[str, pa.Array]], Any]
    columns: tuple[str, ...]
    #: The columns of a partial: names and Spark types.
    partials: tuple[tuple[str, str], ...]
    returns: str

    @property
    def title(self) -> str:
        """Its name."""
        return str(getattr(self.finish, "__name__", "fold"))


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
    #: The most values that a list keeps; of `approx_count_distinct`, hashes.
    limit: int | None = None
    #: The user's own partials.
    fold: UserFold | None = None

    @property
    def text(self) -> str:
        """The aggregate as the user wrote it."""
        if self.python is not None:
            return f"{self.python.title}({', '.join(self.python.columns)})"
        if self.fold is not None:
            return f"{self.fold.title}({', '.join(self.fold.columns)})"
        of = "*" if self.of is None else str(self.of)
        more = "" if self.fraction is None else f", {self.fraction}"
        more += "" if self.limit is None else f", limit={self.limit}"
        more += "" if self.by is None else f", by={self.by}"
        return f"{self.function}({of}{more})"

    def argument(self) -> Column:
        """The argument as a column of the user's stream."""
        if self.of is None:
            return F.lit(1)
        found = F.expr(self.of) if isinstance(self.of, str) else self.of
        return _hashed(found) if self.function == "approx_count_distinct" else found

    def as_spark(self, argument: Column) -> Column:
        """The same aggregate in Spark; for a user's function, a column of its result type."""
        user = self.python or self.fold
        if user is not None:
            return F.max(F.lit(None).cast(user.returns))
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


def bool_and(condition: str | Column) -> Aggregation:
    """Whether all values are true."""
    return Aggregation("bool_and", condition)


def bool_or(condition: str | Column) -> Aggregation:
    """Whether any value is true."""
    return Aggregation("bool_or", condition)


def min_by(column: str | Column, by: str) -> Aggregation:
    """The value of the row with the smallest `by`; the smallest value, if several rows have it."""
    return Aggregation("min_by", column, by)


def max_by(column: str | Column, by: str) -> Aggregation:
    """The value of the row with the largest `by`; the smallest value, if several rows have it."""
    return Aggregation("max_by", column, by)


def count_distinct(column: str | Column) -> Aggregation:
    """The number of different values, exact.

    State keeps the values. A key with more than 16 MiB of them stops the query.
    """
    return Aggregation("count_distinct", column)


def approx_count_distinct(column: str | Column, rsd: float = 0.02) -> Aggregation:
    """About the number of different values, with this relative standard deviation.

    State keeps the smallest hashes of the values, about `8 / rsd**2` bytes for a key with many. The
    number is exact while a key has fewer than `1 / rsd**2` values.
    """
    if not 0.002 <= rsd <= 0.5:
        raise PlanError(
            f"the relative standard deviation of approx_count_distinct must be between 0.002 and 0.5, "
            f"not {rsd}",
            hint="0.02 keeps 20 kB for a key with many values; use count_distinct for exact numbers",
        )
    return Aggregation("approx_count_distinct", column, limit=2 + math.ceil(rsd**-2))


def collect_list(column: str | Column, *, limit: int, by: str | None = None) -> Aggregation:
    """The first `limit` values that are not NULL: by batch, then by a column, then by value."""
    return Aggregation("collect_list", column, by, limit=_limit("collect_list", limit))


def collect_set(column: str | Column, *, limit: int) -> Aggregation:
    """The different values that are not NULL, ascending; at most the `limit` smallest."""
    return Aggregation("collect_set", column, limit=_limit("collect_set", limit))


def fold(
    make: Callable[[Mapping[str, pa.Array], NDArray[np.int64]], Mapping[str, Any]],
    merge: Callable[[Mapping[str, pa.Array], NDArray[np.int64]], Mapping[str, Any]],
    finish: Callable[[Mapping[str, pa.Array]], Any],
    *columns: str,
    partials: Mapping[str, str],
    returns: str,
) -> Aggregation:
    """Your own aggregate for state of bounded size; one call handles many keys.

    `make` gets the columns by name, as Arrow arrays, and the offsets of the groups: group g has the rows
    from `offsets[g]` up to `offsets[g + 1]`. It returns the columns of `partials`, one value per group.
    `merge` gets several partials per group in the same form, and returns one. `finish` gets one partial
    per group, and returns the results. Merging must not depend on the order of the partials.

    Example:
        >>> def squares(columns, offsets):
        ...     return {"s": np.add.reduceat(columns["x"].to_numpy() ** 2, offsets[:-1])}
        >>> def added(partials, offsets):
        ...     return {"s": np.add.reduceat(partials["s"].to_numpy(), offsets[:-1])}
        >>> def norm(partials):
        ...     return np.sqrt(partials["s"].to_numpy())
        >>> fold(squares, added, norm, "x", partials={"s": "double"}, returns="double").text
        'norm(x)'
    """
    if not partials:
        raise PlanError(
            "fold() needs at least one partial", hint='for example partials={"total": "double"}'
        )
    user = UserFold(make, merge, finish, columns, tuple(partials.items()), returns)
    return Aggregation("fold", fold=user)


def _limit(function: str, limit: int) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise PlanError(
            f"{function}(limit={limit!r}) must be a positive number of values",
            hint="for example limit=100: the state of a key has no more values than that",
        )
    return limit


def _hashed(values: Column) -> Column:
    """Hashes, equal for equal values; NULL stays NULL."""
    return F.when(values.isNotNull(), F.xxhash64(values))

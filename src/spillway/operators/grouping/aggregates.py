"""Aggregate functions: the partials that each needs, and its result.

Results follow Spark. NULLs are ignored (`first` and `last` take them). A group without values gives
NULL, a count of 0, or an empty list. `stddev` and `variance` are those of a sample. NaN is above all
numbers. A sum of integers is a bigint, and an overflow is an error; sums of decimals are decimals.
`approx_quantile` is a double, one of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.errors import PlanError
from spillway.kernels.ranking import is_integral, numbers
from spillway.kernels.sketch import sketch_quantile
from spillway.operators.grouping.partials import (
    Count,
    DecimalSum,
    End,
    Extreme,
    FloatSum,
    IntSum,
    Moments,
    Partial,
    overflow,
)
from spillway.operators.grouping.sketches import Sketch, sketch_arrays
from spillway.operators.grouping.values import ChosenBy, DistinctValues, FirstValues, estimated

FUNCTIONS = (
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "stddev",
    "variance",
    "first",
    "last",
    "approx_quantile",
    "bool_and",
    "bool_or",
    "min_by",
    "max_by",
    "count_distinct",
    "approx_count_distinct",
    "collect_list",
    "collect_set",
)
_MAX_DIGITS = 38
Columns = Sequence[pa.Array]


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a group-by: its function, its column and its name."""

    name: str
    function: str
    #: Position of the column among the stored ones, and its type; None: count rows.
    column: int | None = None
    type: pa.DataType | None = None
    #: Position of the column that orders `first`, `last` and `collect_list` inside a batch, or None:
    #: the value orders them; and of the column that decides in `min_by` and `max_by`.
    order: int | None = None
    #: The requested quantile.
    fraction: float | None = None
    #: The most values that a list keeps; of `approx_count_distinct`, hashes.
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise PlanError(
                f"aggregate {self.name}: {self.function!r} is not an aggregate function",
                hint=f"use one of {', '.join(FUNCTIONS)}",
            )
        if self.column is None and self.function != "count":
            raise PlanError(
                f"aggregate {self.name}: {self.function} needs a column",
                hint=f'pass a column, for example {self.function}("price")',
            )
        if self.function in ("bool_and", "bool_or") and not pa.types.is_boolean(self.type):
            raise PlanError(
                f"aggregate {self.name}: {self.function} needs a boolean column, but its type is "
                f"{self.type}",
                hint='write a condition, for example bool_and("price > 0")',
            )
        interval = self.function in ("sum", "avg") and _is_interval(self.type)
        if self.function in _OF_NUMBERS and not (interval or _is_number(self.type)):
            raise PlanError(
                (
                    f"aggregate {self.name}: {self.function} needs a numeric column, but its type "
                    f"is {self.type}"
                ),
                hint="cast the column, or use count, min, max, first or last",
            )
        if self.function == "approx_quantile" and not 0 <= (self.fraction or 0.0) <= 1:
            raise PlanError(
                f"aggregate {self.name}: a quantile must be between 0 and 1, not {self.fraction}",
                hint="use for example 0.5 for the median",
            )

    @property
    def result_type(self) -> pa.DataType:
        """The type of the results."""
        if self.function in _OF_VALUES or (_is_interval(self.type) and self.function in _SUMS):
            return self.type
        if self.function.startswith("collect"):
            return pa.list_(self.type)
        if "count" in self.function:
            return pa.int64()
        if pa.types.is_decimal(self.type) and self.function in ("sum", "avg"):
            return _sum_type(self.type) if self.function == "sum" else _avg_type(self.type)
        whole = self.function == "sum" and pa.types.is_integer(self.type)
        return pa.int64() if whole else pa.float64()

    def partials(self) -> tuple[Partial, ...]:
        """Returns the partials that it needs."""
        column = self.column
        if column is None or self.function == "count":
            return (Count(column),)
        if self.function in ("min", "max", "bool_and", "bool_or"):
            return (Extreme(column, self.function in ("max", "bool_or")),)
        if self.function in ("min_by", "max_by"):
            assert self.order is not None
            return (ChosenBy(column, self.order, self.function == "max_by"),)
        if self.function == "collect_list":
            assert self.limit is not None
            return (FirstValues(column, self.name, self.limit, self.order),)
        if self.function in ("count_distinct", "approx_count_distinct", "collect_set"):
            return (DistinctValues(column, self.name, self.limit),)
        if self.function in ("first", "last"):
            return (End(column, self.order, self.function == "last"),)
        if self.function in ("stddev", "variance"):
            return (Moments(column),)
        if self.function == "approx_quantile":
            return (Sketch(column),)
        return (Count(column), self._sum(column))

    def _sum(self, column: int) -> Partial:
        if isinstance(self.type, pa.Decimal128Type):
            return DecimalSum(column, self.name, self.type.scale)
        if is_integral(self.type) and (self.function == "sum" or _is_interval(self.type)):
            return IntSum(column, self.name)
        return FloatSum(column)

    def result(self, found: Sequence[Columns]) -> pa.Array:
        """Returns the results, from the columns of each of its partials."""
        first = found[0]
        if self.function == "count" or self.function in _OF_VALUES:
            return first[0]
        if self.function.startswith("collect"):
            return first[0]
        if self.function == "count_distinct":
            return pa.array(np.diff(first[0].offsets.to_numpy()).astype(np.int64))
        if self.function == "approx_count_distinct":
            return estimated(first[0], self.limit or 1)
        count = numbers(first[0], np.int64)
        if self.function == "approx_quantile":
            values = sketch_quantile(*sketch_arrays(first), self.fraction or 0.0)
            return pa.array(values, mask=count == 0)
        if self.function in ("stddev", "variance"):
            return _spread(count, numbers(first[2], np.float64), self.function == "stddev")
        total = found[1][0]
        if pa.types.is_decimal(self.type):
            return self._decimal(count, total)
        if _is_interval(self.type):
            return self._interval(count, numbers(total, np.int64))
        if self.function == "avg":
            average = numbers(total, np.float64) / np.maximum(count, 1)
            return pa.array(average, mask=count == 0)
        return pa.array(total.to_numpy(), mask=count == 0) if (count == 0).any() else total

    def _interval(self, count: np.ndarray, total: np.ndarray) -> pa.Array:
        if self.function == "avg":
            # Half a microsecond rounds away from zero, as in Spark.
            most = np.maximum(count, 1)
            total = np.sign(total) * ((2 * np.abs(total) + most) // (2 * most))
        return pa.array(total, mask=count == 0).view(self.type)

    def _decimal(self, count: np.ndarray, total: pa.Array) -> pa.Array:
        empty = pa.array(count == 0)
        kind = self.result_type
        if self.function == "avg":
            total = _quotient(total, np.maximum(count, 1), kind.scale)
        try:
            fitting = total.cast(kind)
        except pa.ArrowInvalid as problem:
            raise overflow(
                self.name, f"decimal({kind.precision},{kind.scale})", "a smaller scale, or double"
            ) from problem
        return pc.if_else(empty, pa.scalar(None, kind), fitting)


#: Functions whose result is one of the values, and functions that add them up.
_OF_VALUES = ("min", "max", "first", "last", "bool_and", "bool_or", "min_by", "max_by")
_SUMS = ("sum", "avg")
_OF_NUMBERS = ("sum", "avg", "stddev", "variance", "approx_quantile")


def _is_number(kind: pa.DataType | None) -> bool:
    return kind is not None and bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_interval(kind: pa.DataType | None) -> bool:
    return kind is not None and bool(pa.types.is_duration(kind))


def _sum_type(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(min(_MAX_DIGITS, kind.precision + 10), kind.scale)


def _avg_type(kind: pa.DataType) -> pa.DataType:
    digits, scale = kind.precision + 4, kind.scale + 4
    # Spark drops digits of the fraction first, but keeps at least six.
    if digits > _MAX_DIGITS:
        scale = max(_MAX_DIGITS - (digits - scale), min(scale, 6))
    return pa.decimal128(min(digits, _MAX_DIGITS), scale)


def _quotient(total: pa.Array, count: np.ndarray, scale: int) -> pa.Array:
    """Returns exact quotients, rounded half up."""
    wide = total.cast(pa.decimal256(48, total.type.scale))
    quotient = pc.divide(wide, pa.array(count).cast(pa.decimal256(19, 0)))
    return pc.round(quotient, scale, round_mode="half_towards_infinity")


def _spread(count: np.ndarray, m2: np.ndarray, root: bool) -> pa.Array:
    variance = m2 / np.maximum(count - 1, 1)
    return pa.array(np.sqrt(variance) if root else variance, mask=count < 2)

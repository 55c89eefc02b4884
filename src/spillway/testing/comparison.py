"""The batch oracle, and the comparison of a query's results with it as multisets.

The comparison uses Spark's grouping: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. Spark does not
order maps, so it compares their sorted entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampNTZType

from spillway.errors import PlanError

_SAMPLE_ROWS = 5


def multiset_difference(a: DataFrame, b: DataFrame) -> int:
    """The number of rows in one frame and not in the other; duplicates count separately.

    Example:
        >>> multiset_difference(spark.range(3), spark.range(4))  # doctest: +SKIP
        1
    """
    counted = _unmatched(a, b).agg(F.sum(F.abs("_count")).alias("rows")).first()
    assert counted is not None
    return int(counted["rows"] or 0)


def assert_same_rows(actual: DataFrame, expected: DataFrame) -> None:
    """Raises AssertionError, with sample rows of both sides, unless both are the same multiset."""
    try:
        unmatched = _unmatched(actual, expected)
    except PlanError as problem:
        raise AssertionError(str(problem)) from None
    sums = {
        "unexpected": F.sum(F.greatest("_count", F.lit(0))),
        "missing": F.sum(F.greatest(-F.col("_count"), F.lit(0))),
    }
    totals = unmatched.agg(*(total.alias(what) for what, total in sums.items())).first()
    assert totals is not None
    if not totals["unexpected"] and not totals["missing"]:
        return
    lines = [f"{totals['unexpected']} rows are unexpected, {totals['missing']} are missing"]
    for what, side in (("unexpected", F.col("_count") > 0), ("missing", F.col("_count") < 0)):
        rows = unmatched.where(side).limit(_SAMPLE_ROWS).collect()
        lines += [f"  {what}: {_without_count(row)} ({abs(row['_count'])} times)" for row in rows]
    raise AssertionError("\n".join(lines))


def oracle(
    frames: Mapping[str, DataFrame],
    keys: Mapping[str, Sequence[str]] | None = None,
    windows: Mapping[str, tuple[str, int]] | None = None,
    condition: str | Column | None = None,
    how: str = "inner",
) -> DataFrame:
    """Spark's own join of batch frames, with one struct column per stream, as in a query.

    `keys` names the key columns of each stream, compared by SQL equality; without keys all combinations
    are candidates. `windows` gives the time column and the window in microseconds of each stream. A
    combination is a result if its latest time is less than a window after each of its times, and if it
    meets the condition.

    With another kind of join, `how`, the streams join in their order, each with equal keys, the windows
    of the rows that are there, and, for the last one, the condition. It is one kind for all, or one for
    each stream after the first, such as "left,inner".
    """
    if how != "inner":
        assert keys is not None, "an outer join has equal keys"
        return _chained(frames, keys, windows, condition, how)
    first, *others = frames
    joined = _as_struct(first, frames[first])
    for name in others:
        if keys is None:
            joined = joined.crossJoin(_as_struct(name, frames[name]))
            continue
        pairs = zip(keys[first], keys[name], strict=True)
        equal = [
            F.col(_quoted(first))[mine] == F.col(_quoted(name))[theirs] for mine, theirs in pairs
        ]
        joined = joined.join(_as_struct(name, frames[name]), equal, "inner")
    if condition is not None:
        joined = joined.where(condition)
    if windows is None:
        return joined
    times = {name: _micros(frames[name], name, windows[name][0]) for name in frames}
    latest = F.greatest(*times.values())
    for name, time in times.items():
        joined = joined.where(latest - time < F.lit(windows[name][1]))
    return joined


def _chained(
    frames: Mapping[str, DataFrame],
    keys: Mapping[str, Sequence[str]],
    windows: Mapping[str, tuple[str, int]] | None,
    condition: str | Column | None,
    how: str,
) -> DataFrame:
    """SQL's chain of joins, in the order of the frames."""
    first, *others = frames
    kinds = how.split(",") if "," in how else [how] * len(others)
    joined, there = _as_struct(first, frames[first]), [first]
    for name, kind in zip(others, kinds, strict=True):
        there.append(name)
        pairs = zip(keys[first], keys[name], strict=True)
        on = [F.col(_quoted(first))[a] == F.col(_quoted(name))[b] for a, b in pairs]
        if windows is not None:
            on += _within(there, frames, windows)
        if condition is not None and name == others[-1]:
            on.append(F.expr(condition) if isinstance(condition, str) else condition)
        joined = joined.join(_as_struct(name, frames[name]), on, kind)
    return joined


def _within(
    there: Sequence[str], frames: Mapping[str, DataFrame], windows: Mapping[str, tuple[str, int]]
) -> list[Column]:
    """The windows of the rows that are there; a stream may be missing."""
    times = {name: _micros(frames[name], name, windows[name][0]) for name in there}
    latest = F.greatest(*times.values())
    return [
        F.when(F.col(_quoted(name)).isNull(), F.lit(True)).otherwise(
            latest - time < F.lit(windows[name][1])
        )
        for name, time in times.items()
    ]


def _unmatched(a: DataFrame, b: DataFrame) -> DataFrame:
    """The rows that do not cancel out, with `_count` > 0 where `a` has more of them."""
    for at, (mine, theirs) in enumerate(zip(a.schema, b.schema, strict=False)):
        if (mine.name, _shape(mine.dataType)) != (theirs.name, _shape(theirs.dataType)):
            raise PlanError(
                f"column {at} is {mine.name} {_shape(mine.dataType)} in one frame and "
                f"{theirs.name} {_shape(theirs.dataType)} in the other",
                hint="select the same columns, with the same types, from both",
            )
    if len(a.columns) != len(b.columns):
        raise PlanError(
            f"one frame has {len(a.columns)} columns, the other {len(b.columns)}",
            detail=f"({', '.join(a.columns)}) and ({', '.join(b.columns)})",
            hint="select the same columns, with the same types, from both",
        )
    tagged = [
        frame.select(
            *(
                _comparable(F.col(_quoted(field.name)), field.dataType).alias(field.name)
                for field in frame.schema
            ),
            F.lit(sign).alias("_count"),
        )
        for frame, sign in ((a, 1), (b, -1))
    ]
    columns = [F.col(_quoted(name)) for name in a.columns]
    counted = tagged[0].unionAll(tagged[1]).groupBy(*columns).agg(F.sum("_count").alias("_count"))
    return counted.where("_count != 0")


def _comparable(value: Column, kind: DataType) -> Column:
    """The value, with sorted entries in place of every map."""
    if not _holds_map(kind):
        return value
    if isinstance(kind, StructType):
        fields = [
            _comparable(value.getField(field.name), field.dataType).alias(field.name)
            for field in kind
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda element: _comparable(element, kind.elementType))
    assert isinstance(kind, MapType)
    entries = F.transform(
        F.map_entries(value),
        lambda entry: F.struct(
            _comparable(entry["key"], kind.keyType).alias("key"),
            _comparable(entry["value"], kind.valueType).alias("value"),
        ),
    )
    return F.array_sort(entries)


def _holds_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_map(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _holds_map(kind.elementType)
    return isinstance(kind, MapType)


def _shape(kind: DataType) -> str:
    """The type as text, without nullability."""
    return kind.simpleString()


def _without_count(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.asDict().items() if name != "_count"}


def _as_struct(name: str, frame: DataFrame) -> DataFrame:
    return frame.select(F.struct(*(F.col(_quoted(column)) for column in frame.columns)).alias(name))


def _micros(frame: DataFrame, stream: str, column: str) -> Column:
    """A time as a number; a difference of timestamps would use the session's time zone."""
    value = F.col(_quoted(stream)).getField(column)
    if not isinstance(frame.schema[column].dataType, TimestampNTZType):
        return F.unix_micros(value)
    epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    return F.timestamp_diff("MICROSECOND", epoch, value)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

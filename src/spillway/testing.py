"""For tests of streaming queries: the batch oracle, multiset equality, and finite streams.

A join of streams is right when the multiset of everything it wrote equals what a Spark batch join of
everything it read gives. `oracle` is that batch join, `assert_same_rows` the comparison, and
`FileStream` a stream whose rows, files and batches are known, so that it can be replayed and read as
a batch.

    orders = FileStream(spark, "in/orders", "id bigint, price double")
    orders.add([(1, 9.5), (2, 3.0)])
    orders.add([])                                  # a batch without rows
    ... sw.join(orders=orders.stream(), ...) ... availableNow ...
    expected = oracle({"orders": orders.batch(), ...}, {"orders": ("id",), ...})
    assert_same_rows(spark.read.parquet("out"), expected)

Rows are compared by Spark's grouping: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. Maps, which
Spark does not order, are compared as their sorted entries.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampNTZType

from spillway.errors import PlanError
from spillway.spark.runtime.lanes import stored_as

#: Modification time of the first file of a stream; each later one is a second younger, which every
#: filesystem can tell apart. Spark's file source takes files in this order.
_FIRST_FILE_AT_S = 1_577_836_800
_SAMPLE_ROWS = 5


def multiset_difference(a: DataFrame, b: DataFrame) -> int:
    """How many rows one frame has and the other has not, each counted as often as it differs.

    Example:
        >>> multiset_difference(spark.range(3), spark.range(4))  # doctest: +SKIP
        1
    """
    counted = _unmatched(a, b).agg(F.sum(F.abs("_count")).alias("rows")).first()
    assert counted is not None
    return int(counted["rows"] or 0)


def assert_same_rows(actual: DataFrame, expected: DataFrame) -> None:
    """Raises AssertionError, with sample rows of either side, unless both have the same multiset."""
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
) -> DataFrame:
    """The join of batch frames by Spark itself: one struct column per stream, as a query gives.

    `keys` names the key columns of each stream; they are compared by SQL equality; without them all
    combinations are candidates. `windows` gives the time column and the window in microseconds of each:
    a combination stands when its largest time is less than a window after each of its times, and when
    the condition holds, if there is one.
    """
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


class FileStream:
    """A finite stream: a directory of Parquet files, each the rows of one trigger.

    Opened again on the same directory it goes on where it was.
    """

    def __init__(
        self, spark: SparkSession, directory: str | os.PathLike[str], schema: str | StructType
    ) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._spark = spark
        empty = spark.createDataFrame([], schema)
        #: The columns of the stream.
        self.schema: StructType = empty.schema
        self._arrow = _in_utc(empty.toArrow().schema)

    @property
    def files(self) -> list[Path]:
        """The files so far, in the order the stream reads them."""
        return sorted(self.directory.glob("part-*.parquet"))

    def add(self, rows: Iterable[Any] | DataFrame | pa.Table = ()) -> Path:
        """Adds one file of rows: tuples, dicts, Rows, a batch DataFrame or an Arrow table.

        A datetime without a zone is a time in UTC where the column is a `timestamp`.
        """
        number = len(self.files)
        target = self.directory / f"part-{number:06d}.parquet"
        hidden = self.directory / f".{target.name}.{os.getpid()}"
        pq.write_table(self._table(rows), hidden)
        at = _FIRST_FILE_AT_S + number
        os.utime(hidden, (at, at))
        hidden.replace(target)
        return target

    def stream(self, max_files_per_trigger: int | None = 1) -> DataFrame:
        """The files as a stream, so many at a time; None takes all there are."""
        reader = self._spark.readStream.schema(self.schema)
        if max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", max_files_per_trigger)
        return reader.parquet(str(self.directory))

    def batch(self) -> DataFrame:
        """All rows so far, as a batch DataFrame."""
        return self._spark.read.schema(self.schema).parquet(str(self.directory))

    def _table(self, rows: Iterable[Any] | DataFrame | pa.Table) -> pa.Table:
        if isinstance(rows, DataFrame):
            rows = rows.toArrow()
        if isinstance(rows, pa.Table):
            return rows.select(self.schema.names).cast(self._arrow)
        plain = [_plain(row, self.schema) for row in rows]
        columns = [
            pa.array([row[field.name] for row in plain], field.type) for field in self._arrow
        ]
        return pa.Table.from_arrays(columns, schema=self._arrow)


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
    """The value with every map in it replaced by its sorted entries."""
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
    """The type as text, which says nothing of nullability."""
    return kind.simpleString()


def _without_count(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.asDict().items() if name != "_count"}


def _as_struct(name: str, frame: DataFrame) -> DataFrame:
    return frame.select(F.struct(*(F.col(_quoted(column)) for column in frame.columns)).alias(name))


def _micros(frame: DataFrame, stream: str, column: str) -> Column:
    """A time as a number; subtracting timestamps would go by the clock of the session's zone."""
    value = F.col(_quoted(stream)).getField(column)
    if not isinstance(frame.schema[column].dataType, TimestampNTZType):
        return F.unix_micros(value)
    epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    return F.timestamp_diff("MICROSECOND", epoch, value)


def _in_utc(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(stored_as(field.type)) for field in schema])


def _plain(value: Any, kind: DataType) -> Any:
    """A value of a row as Arrow takes it: structs as dicts, maps as lists of pairs."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        if isinstance(value, Mapping):
            value = [value.get(field.name) for field in kind]
        pairs = zip(kind, value, strict=True)
        return {field.name: _plain(one, field.dataType) for field, one in pairs}
    if isinstance(kind, ArrayType):
        return [_plain(one, kind.elementType) for one in value]
    if isinstance(kind, MapType):
        entries = value.items() if isinstance(value, Mapping) else value
        return [(_plain(k, kind.keyType), _plain(v, kind.valueType)) for k, v in entries]
    return value


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

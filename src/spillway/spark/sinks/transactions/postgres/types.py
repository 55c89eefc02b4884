"""Spark's types in PostgreSQL, and rows as CSV for COPY.

`written` casts in Spark what Arrow's CSV writer cannot write as PostgreSQL reads it: decimals, binary
values, nested values. Then Arrow turns whole columns into text. Strings are quoted and NULL is not, so
an empty string stays one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as csv
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spillway.errors import PlanError
from spillway.spark.sinks.transactions.changes import tick

_TYPES: dict[type[DataType], str] = {
    BooleanType: "boolean",
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    StringType: "text",
    BinaryType: "bytea",
    DateType: "date",
    TimestampType: "timestamptz",
    TimestampNTZType: "timestamp",
    ArrayType: "jsonb",
    MapType: "jsonb",
    StructType: "jsonb",
}
_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="needed")


def column_type(field: StructField) -> str:
    """The type of a column in a table that the sink creates.

    Example:
        >>> column_type(StructField("price", DecimalType(10, 2)))
        'numeric(10, 2)'
    """
    kind = field.dataType
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision}, {kind.scale})"
    found = next((name for one, name in _TYPES.items() if isinstance(kind, one)), None)
    if found is None:
        raise PlanError(
            f"column {field.name!r} is of type {kind.simpleString()}, which the sink 'postgresql' "
            "does not support",
            hint=f'select(...) it as text, "cast({field.name} as string) AS {field.name}"',
        )
    return found


def written(rows: DataFrame) -> DataFrame:
    """The rows with every column in a type that `as_csv` writes."""
    return rows.select(*(_written(field).alias(field.name) for field in rows.schema))


def _written(field: StructField) -> Column:
    value, kind = F.col(tick(field.name)), field.dataType
    if isinstance(kind, DecimalType):
        return value.cast("string")
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\x"), F.hex(value))
    if isinstance(kind, (ArrayType, MapType, StructType)):
        return F.to_json(value)
    return value


def as_csv(rows: pa.RecordBatch) -> memoryview:
    """The rows as PostgreSQL's COPY ... (FORMAT csv) reads them."""
    sink = pa.BufferOutputStream()
    csv.write_csv(rows, sink, _OPTIONS)
    return memoryview(sink.getvalue())

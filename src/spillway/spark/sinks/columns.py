"""Checks that files of a format can hold the columns of the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from spillway.errors import PlanError
from spillway.spark.sinks.formats import SinkFormat

Fold = Callable[[str], str]


def check_columns(
    schema: StructType, kind: SinkFormat, partition_by: tuple[str, ...], spark: SparkSession
) -> None:
    """Raises a `PlanError` that names the first column that the format cannot hold."""
    fold = _fold(spark)
    _check_names(schema, fold)
    _check_partitions(schema, partition_by, fold)
    partitions = {fold(name) for name in partition_by}
    stored = [field for field in schema if fold(field.name) not in partitions]
    for field in stored:
        if not kind.holds(spark, field.dataType):
            raise PlanError(
                f"column {field.name!r} is of type {field.dataType.simpleString()}, "
                f"which {kind.name} files cannot hold",
                hint=_remedy(field),
            )
    if kind.name.lower() == "text" and len(stored) != 1:
        raise PlanError(
            f"text files hold one column; the result has {len(stored)}: "
            f"{', '.join(field.name for field in stored)}",
            hint="select(...) one string column, or write csv or json",
        )


def _fold(spark: SparkSession) -> Fold:
    # Spark ignores case in names unless the session is case-sensitive.
    return str if spark.conf.get("spark.sql.caseSensitive") == "true" else str.lower


def _check_names(schema: StructType, fold: Fold) -> None:
    counts = Counter(fold(name) for name in schema.names)
    twice = sorted({name for name in schema.names if counts[fold(name)] > 1})
    if twice:
        raise PlanError(
            f"the result has more than one column named {', '.join(twice)}",
            hint="files need distinct names: select(...) the columns, each with its own alias",
        )


def _check_partitions(schema: StructType, partition_by: tuple[str, ...], fold: Fold) -> None:
    fields = {fold(field.name): field for field in schema}
    for name in partition_by:
        if fold(name) not in fields:
            raise PlanError(
                f"partitionBy: the result has no column {name!r}",
                hint=f"its columns are {', '.join(schema.names)}",
            )
        kind = fields[fold(name)].dataType
        if isinstance(kind, (StructType, ArrayType, MapType)):
            raise PlanError(
                f"partitionBy: column {name!r} is of type {kind.simpleString()}; "
                "a directory name cannot hold it",
                hint="partition by a column of a simple type",
            )
    if len(partition_by) >= len(schema):
        raise PlanError(
            "partitionBy: no column is left to write to the files",
            hint="leave at least one column of the result out of partitionBy",
        )


def _remedy(field: StructField) -> str:
    name = field.name
    if isinstance(field.dataType, StructType):
        inner = field.dataType.names[0] if field.dataType.names else "field"
        return f'select(...) flat columns, for example "{name}.{inner}", or write parquet or json'
    if isinstance(field.dataType, (ArrayType, MapType)):
        return f'select(...) it as text, "to_json({name})", or write parquet or json'
    if field.dataType.typeName() == "binary":
        return f'select(...) it as text, "base64({name})", or write parquet'
    return f'select(...) it as text, "cast({name} as string)", or write parquet'

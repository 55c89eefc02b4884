"""Data sources by name: whether one exists, whether it writes files, which types its files can hold.

Spark itself answers all three, so formats from packages work like Spark's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from spillway.errors import PlanError
from spillway.spark.sinks.refusal import any_failure

_DATASOURCES = "org.apache.spark.sql.execution.datasources"
#: Sources that cannot be sinks; Spark would fail only at the first batch.
_SOURCES_ONLY = ("rate", "rate-micro-batch", "socket", "binaryfile")


@dataclass(frozen=True)
class SinkFormat:
    """A data source of Spark."""

    name: str
    #: Spark's FileFormat behind the source; None when it does not write files.
    _file_format: Any
    #: Whether it is a data source written in Python.
    in_python: bool = False

    @property
    def writes_files(self) -> bool:
        """Whether a batch becomes files in a directory."""
        return self._file_format is not None

    def holds(self, spark: SparkSession, kind: DataType) -> bool:
        """Whether a file of this format can hold a column of this type."""
        # Spark writes a binary as "[61 62]" into csv and reads it back as those characters.
        if self.name.lower() == "csv" and kind.typeName() == "binary":
            return False
        jvm: Any = spark._jvm
        java_type = jvm.org.apache.spark.sql.types.DataType.fromJson(kind.json())
        return bool(self._file_format.supportDataType(java_type))


def find_format(spark: SparkSession, name: str) -> SinkFormat:
    """The data source of that name; raises `PlanError` if queries cannot write to it.

    Example:
        >>> find_format(spark, "parquet").writes_files  # doctest: +SKIP
        True
    """
    if name.lower() in _SOURCES_ONLY:
        raise PlanError(
            f"{name!r} is a source; queries cannot write to it",
            hint='write to "parquet", "console", "memory" or "noop", or use foreachBatch',
        )
    jvm: Any = spark._jvm
    # The lookup finds data sources written in Python through the active session of the thread.
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
    with any_failure(
        f"there is no data source {name!r} to write to",
        hint="check the spelling; for a source that is not part of Spark, add its package to "
        "spark.jars.packages",
    ):
        conf = spark._jsparkSession.sessionState().conf()
        source = getattr(jvm, f"{_DATASOURCES}.DataSource").lookupDataSource(name, conf)
    python = source.getName().endswith(".PythonDataSourceV2")
    return SinkFormat(name, _file_format_of(spark, source), python)


def _file_format_of(spark: SparkSession, source: Any) -> Any:
    if _is_a(spark, source, f"{_DATASOURCES}.FileFormat"):
        return source.newInstance()
    if _is_a(spark, source, f"{_DATASOURCES}.v2.FileDataSourceV2"):
        return source.newInstance().fallbackFileFormat().newInstance()
    return None


def _is_a(spark: SparkSession, source: Any, name: str) -> bool:
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return bool(jvm.java.lang.Class.forName(name, False, loader).isAssignableFrom(source))

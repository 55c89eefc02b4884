"""Sessions, and what Spillway asks of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from spillway.doctor import require_java
from spillway.errors import EnvironmentMissing

_CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FILE_SYSTEM_BASED = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)


def local_session(
    name: str = "spillway", master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """An embedded Spark, with the workers on this interpreter; says so in a line if Java is missing."""
    require_java()
    # Spark reads this variable, not its own setting, when it starts a worker for a DataFrame.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName(name)
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
    )
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as problem:
        if "JAVA_GATEWAY_EXITED" in str(problem) or "Java gateway process" in str(problem):
            raise EnvironmentMissing(
                "Spark could not start a Java process",
                detail=str(problem).splitlines()[0],
                hint="run `spillway doctor`; Spark needs Java 17 or newer",
            ) from problem
        raise


def is_local(spark: SparkSession) -> bool:
    """Whether all tasks run in this one process tree, so that slots need no anchors."""
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


def default_slots(spark: SparkSession) -> int:
    """One slot per core that Spark has now."""
    return max(1, int(spark.sparkContext.defaultParallelism))


@contextmanager
def quick_local_checkpoints(spark: SparkSession, location: str) -> Iterator[None]:
    """Lets Spark keep its own offsets through plain renames while a query is started.

    Its default manager takes 70-80 ms a batch on a local disk, this one 25. Renames are atomic there,
    and the query's lock keeps a second writer out, which is all the default manager adds; so it is
    used for local paths only, and only if the user has chosen none.
    """
    scheme = urlsplit(location).scheme
    if scheme not in ("", "file") or spark.conf.get(_CHECKPOINT_MANAGER, None):
        yield
        return
    found = next((name for name in _FILE_SYSTEM_BASED if _has_class(spark, name)), None)
    if found is None:
        yield
        return
    spark.conf.set(_CHECKPOINT_MANAGER, found)
    try:
        yield
    finally:
        spark.conf.unset(_CHECKPOINT_MANAGER)


def _has_class(spark: SparkSession, name: str) -> bool:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Class.forName(
            name, False, jvm.java.lang.Thread.currentThread().getContextClassLoader()
        )
    except Exception:
        return False
    return True

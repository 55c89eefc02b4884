"""Spark sessions, and the settings that Spillway needs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spillway.doctor import require_java
from spillway.errors import EnvironmentMissing
from spillway.kernels import warming
from spillway.spark.runtime.session import ANCHORING, is_local_master

_CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FILE_SYSTEM_BASED = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)

#: With the parallel collector, tasks that pass rows through run a fifth faster than with the default
#: one, which aims at short pauses: 0.33 s instead of 0.41 for a batch of 400,000 rows.
JAVA_OPTIONS = "-XX:+UseParallelGC"


def local_session(
    name: str = "spillway", master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Starts an embedded Spark whose workers use this interpreter; an error says if Java is missing."""
    require_java()
    # Kernels compile while Java starts.
    warming.start()
    # To start a worker for a DataFrame, Spark reads this variable and not its own setting.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName(name)
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        # Moving groups share the cores with the batches, instead of taking turns.
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.executor.extraJavaOptions", JAVA_OPTIONS)
        # The daemon forks workers with all imports done (spark/runtime/daemon.py).
        .config("spark.python.daemon.module", "spillway.spark.runtime.daemon")
    )
    for key, value in {**_cluster_conf(master), **(conf or {})}.items():
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


def _cluster_conf(master: str) -> dict[str, str]:
    """What a session with its own executors needs beyond the defaults."""
    if is_local_master(master):
        return {}
    found = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master)
    if found is None:
        return dict(ANCHORING)
    # The context waits for all its executors, so that slots spread over all of them.
    cores = int(found.group(1)) * int(found.group(2))
    ready = {
        "spark.cores.max": str(cores),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    return ANCHORING | ready


def default_slots(spark: SparkSession) -> int:
    """One slot per core that Spark has now."""
    return max(1, int(spark.sparkContext.defaultParallelism))


@contextmanager
def quick_local_checkpoints(spark: SparkSession, location: str) -> Iterator[None]:
    """Makes Spark write its offsets with plain renames, for a query that starts inside the block.

    Spark's default manager takes 70-80 ms a batch on a local disk, this one 25. The default manager only
    adds protection against a second writer. On a local disk renames are atomic and the query's lock
    keeps others out, so this applies to local paths, unless the user has chosen a manager. Neither
    syncs: checkpoint/offsets.py does.
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


def qualified(spark: SparkSession, location: str) -> str:
    """The full path as Spark understands it, so that Spark and Spillway use the same place.

    A path without a scheme is on Spark's default filesystem, which may not be the local one.
    """
    jvm, jsc = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(location)
    whole = str(path.getFileSystem(jsc.hadoopConfiguration()).makeQualified(path).toString())
    return (
        whole.removeprefix("file:").replace("///", "/", 1) if whole.startswith("file:/") else whole
    )


def remove(spark: SparkSession, location: str) -> None:
    """Deletes a directory on Spark's filesystem."""
    jvm, jsc = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(location)
    path.getFileSystem(jsc.hadoopConfiguration()).delete(path, True)


def _has_class(spark: SparkSession, name: str) -> bool:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Class.forName(
            name, False, jvm.java.lang.Thread.currentThread().getContextClassLoader()
        )
    except Py4JJavaError:
        return False
    return True

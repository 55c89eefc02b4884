"""Sessions, and what Spillway asks of one."""

from __future__ import annotations

import os
import re
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

#: What anchors need of Spark; read when a context starts, so a running one cannot be given them.
ANCHORING = {
    # Else Spark prefers the hosts that a slot's rows come from to the executor of its anchor.
    "spark.shuffle.reduceLocality.enabled": "false",
    # How long a slot waits for its executor before it goes to another, which has to fetch its state.
    # The default of 3 s is less than the first batch takes on an executor that has just started.
    "spark.locality.wait.process": "30s",
}

#: The exchange must make exactly one partition per slot, each processed as planned.
PLANNED_EXACTLY = {"spark.sql.adaptive.enabled": "false"}

#: The parallel collector lets tasks that move rows run a fifth faster than the default one, which is
#: made for short pauses: 0.33 s against 0.41 for a batch of 400,000 rows that are passed through.
JAVA_OPTIONS = "-XX:+UseParallelGC"


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
        # Groups that move to another slot share the cores with the batches, instead of taking turns.
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.executor.extraJavaOptions", JAVA_OPTIONS)
        # Workers that are forked with everything imported (spark/runtime/daemon.py).
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
    """What a session with executors of its own needs beyond the defaults."""
    if _is_local(master):
        return {}
    found = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master)
    if found is None:
        return dict(ANCHORING)
    # The context is ready when all its executors are, so that slots are spread over all of them.
    cores = int(found.group(1)) * int(found.group(2))
    ready = {
        "spark.cores.max": str(cores),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    return ANCHORING | ready


def is_local(spark: SparkSession) -> bool:
    """Whether all tasks run in this one process tree, so that slots need no anchors."""
    return _is_local(str(spark.sparkContext.master))


def _is_local(master: str) -> bool:
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


def cloned(spark: SparkSession) -> SparkSession:
    """A session with the user's views and functions whose settings are ours to change."""
    clone = spark._jsparkSession.cloneSession()
    for key, value in PLANNED_EXACTLY.items():
        clone.conf().set(key, value)
    return SparkSession(spark.sparkContext, clone)


def qualified(spark: SparkSession, location: str) -> str:
    """A path as Spark understands it, so that Spark's files and ours are in the same place.

    A path without a scheme is on Spark's default filesystem, which need not be the local one.
    """
    jvm, jsc = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(location)
    whole = str(path.getFileSystem(jsc.hadoopConfiguration()).makeQualified(path).toString())
    return (
        whole.removeprefix("file:").replace("///", "/", 1) if whole.startswith("file:/") else whole
    )


def remove(spark: SparkSession, location: str) -> None:
    """Deletes a directory where Spark has made one."""
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
    except Exception:
        return False
    return True

"""What the runtime needs of a Spark session: its own copy, and settings that keep slots in place."""

from __future__ import annotations

from pyspark.sql import SparkSession

#: Settings that anchors need. Spark reads them when a context starts, so they cannot change later.
ANCHORING = {
    # Otherwise Spark prefers the hosts of a slot's rows to the executor of its anchor.
    "spark.shuffle.reduceLocality.enabled": "false",
    # How long a slot waits for its executor before it goes to another one, which must fetch its state.
    # The default of 3 s is less than the first batch takes on a new executor.
    "spark.locality.wait.process": "30s",
}

#: The exchange must make exactly one partition per slot, so Spark must not change the plan.
PLANNED_EXACTLY = {"spark.sql.adaptive.enabled": "false"}


def is_local(spark: SparkSession) -> bool:
    """Whether all tasks run in this process tree, so that slots need no anchors."""
    return is_local_master(str(spark.sparkContext.master))


def is_local_master(master: str) -> bool:
    """The same for the master of a session that has not started."""
    return master == "local" or master.startswith("local[")


def cloned(spark: SparkSession) -> SparkSession:
    """A copy of the session, with the user's views and functions, whose settings Spillway may change."""
    clone = spark._jsparkSession.cloneSession()
    for key, value in PLANNED_EXACTLY.items():
        clone.conf().set(key, value)
    return SparkSession(spark.sparkContext, clone)

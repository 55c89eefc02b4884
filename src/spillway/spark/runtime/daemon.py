"""Spark's Python daemon, which forks the workers, with all that a slot task needs already imported.

Spark's own daemon imports nothing, so every worker takes a second of processor time for numba, pyarrow
and pandas before its first rows; and a worker is new in every executor, for every core, after every
death. Forked from this one, workers share what is imported, also in memory.

Nothing here starts a thread: a fork would not have it.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401 - Spark's workers import it with their first Arrow batch
from pyspark import daemon, worker  # noqa: F401 - the daemon imports a worker's module by its name

from spillway.spark.runtime import (
    mover,  # noqa: F401 - what workers run
    task,  # noqa: F401 - what workers run
)

if __name__ == "__main__":
    # Objects of modules live as long as the worker: collections, one after every task, skip them, and
    # their pages stay shared.
    gc.freeze()
    daemon.manager()

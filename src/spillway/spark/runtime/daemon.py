"""Spark's Python daemon, which forks the workers, with all imports of a slot task done.

Spark's own daemon imports nothing. So every new worker, in every executor and for every core, takes a
second of processor time for numba, pyarrow and pandas before its first rows. Workers forked from this
daemon share its imports and the kernels that it has loaded, also in memory. If this host has not
compiled all kernels yet, another process does, while the first batch runs.

Nothing here may start a thread, because a fork would not have it.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401 - Spark's workers import it with their first Arrow batch
from pyspark import daemon, worker  # noqa: F401 - the daemon imports a worker's module by its name

from spillway.kernels import warming
from spillway.spark.runtime import task  # noqa: F401 - what workers run
from spillway.spark.runtime.moves import mover  # noqa: F401 - what workers run

if __name__ == "__main__":
    warming.load()
    warming.start()
    # Objects of modules live as long as the worker. Garbage collections, one after every task, skip
    # them, so their pages stay shared.
    gc.freeze()
    daemon.manager()

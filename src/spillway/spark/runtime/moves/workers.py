"""Python workers that only some tasks use.

Spark keeps idle Python workers in a pool and gives a task any of them; workers with another process
environment have another pool. A slot task needs a worker that has its state open: opening a gigabyte
takes seconds. So work next to the batches uses its own workers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_POOL = "SPILLWAY_WORKERS"
_LOCK = threading.Lock()


@contextmanager
def own_workers(spark: SparkSession, name: str) -> Iterator[None]:
    """Functions passed to Spark inside the block run in workers of the pool of that name.

    A function that another thread passes meanwhile may run there too, which does no harm.
    """
    context = spark.sparkContext
    with _LOCK:
        before = context.environment
        context.environment = {**before, _POOL: name}
        try:
            yield
        finally:
            context.environment = before

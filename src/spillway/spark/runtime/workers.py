"""Python workers that only some tasks use.

Spark keeps idle Python workers in a pool and gives a task any of them; pools are told apart by the
environment of their processes. A slot task wants a worker that has its state open already: one that has
not takes seconds for a gigabyte. So what runs beside the batches has workers of its own, and leaves
those of the slots to the slots.
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
    """Functions that are handed to Spark inside run in workers of the pool of that name.

    A function that another thread hands over meanwhile may run there too, which does no harm.
    """
    context = spark.sparkContext
    with _LOCK:
        before = context.environment
        context.environment = {**before, _POOL: name}
        try:
            yield
        finally:
            context.environment = before

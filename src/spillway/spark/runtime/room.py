"""Asks the hosts of a query how much memory is free (policies/local/spare.py decides).

In one process the driver asks itself. On a cluster a small job asks the executors that are up; a few
tasks per core usually reach all of them. If the job fails, the driver's host stands for all.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spillway.capacity import Free, free_memory
from spillway.faults import executor_pid
from spillway.policies.local.spare import Room
from spillway.settings import Adapt
from spillway.spark.runtime.home import LocalFolders
from spillway.spark.runtime.session import is_local

Asked = tuple[str, int, tuple[Free, ...]]


def rooms(spark: SparkSession, query_id: str, adapt: Adapt) -> list[Room]:
    """The hosts of the query, with what is free there."""
    if is_local(spark):
        jvm: Any = spark.sparkContext._jvm
        runtime = jvm.java.lang.Runtime.getRuntime()
        growing = int(runtime.maxMemory()) - int(runtime.totalMemory())
        return [Room(_free(query_id, adapt), growing)]
    return _of_executors(_ask(spark, query_id, adapt), _heap_bytes(spark))


def _ask(spark: SparkSession, query_id: str, adapt: Adapt) -> list[Asked]:
    context = spark.sparkContext
    count = 4 * context.defaultParallelism

    def answer(_: Iterable[int]) -> Iterator[Asked]:
        yield socket.gethostname(), executor_pid(), _free(query_id, adapt)

    try:
        return list(context.parallelize(range(count), count).mapPartitions(answer).collect())
    except (Py4JError, PySparkException):
        return [(socket.gethostname(), 0, _free(query_id, adapt))]


def _of_executors(answers: list[Asked], heap_bytes: int) -> list[Room]:
    """One room per host. Executors of one host find almost the same; the smallest value counts."""
    hosts: dict[str, list[Asked]] = defaultdict(list)
    for one in answers:
        hosts[one[0]].append(one)
    found = []
    for asked in hosts.values():
        executors = len({pid for _, pid, _ in asked})
        free = tuple(free for _, _, some in asked for free in some)
        found.append(Room(free, heap_bytes * executors, executors))
    return found


def _heap_bytes(spark: SparkSession) -> int:
    context: Any = spark.sparkContext._jsc
    return int(context.sc().executorMemory()) << 20


def _free(query_id: str, adapt: Adapt) -> tuple[Free, ...]:
    return free_memory(Path(LocalFolders.of(query_id, adapt).memory))

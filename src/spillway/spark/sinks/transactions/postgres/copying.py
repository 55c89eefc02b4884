"""A task of a batch: copies its rows into the staging table.

Spark may run a task twice, or again after its end. So every attempt marks its rows with its own number,
and the driver takes the rows of the attempts whose answers arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from spillway.errors import QueryError, passed_to_driver
from spillway.spark.sinks.transactions.postgres.types import as_csv

#: The column of the staging table with the attempt that wrote a row.
ATTEMPT = "_spillway_attempt"
#: What a task answers: its attempt, and how many rows it copied.
ANSWER = "attempt bigint, rows bigint"


def copier(
    address: str, table: str, columns: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a task runs on its rows."""

    def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        attempt = context.taskAttemptId()
        with passed_to_driver():
            rows = _copied(
                address, f"COPY {table} ({columns}) FROM STDIN (FORMAT csv)", batches, attempt
            )
        yield pa.RecordBatch.from_pydict({"attempt": [attempt], "rows": [rows]})

    return copy


def _copied(address: str, statement: str, batches: Iterable[pa.RecordBatch], attempt: int) -> int:
    import psycopg

    rows = 0
    try:
        with (
            psycopg.connect(address) as connection,
            connection.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            for batch in batches:
                if batch.num_rows:
                    marks = pa.repeat(pa.scalar(attempt, pa.int64()), batch.num_rows)
                    copy.write(as_csv(batch.append_column(ATTEMPT, marks)))
                    rows += batch.num_rows
    except psycopg.Error as problem:
        raise QueryError(
            "PostgreSQL did not take the rows of a task",
            detail=str(problem).strip(),
            hint="check the types of the columns and the server's log; a restart repeats the batch",
        ) from None
    return rows

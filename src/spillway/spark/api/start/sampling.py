"""Reads the first rows of streams before the join of them starts.

A separate streaming query reads each stream, with a temporary checkpoint. It counts and samples the
first batch that has rows. Then the batch waits until its query stops, so it never commits. A source that
deletes committed data keeps the rows, and the join reads them again.

Known limitation: a source that cannot be read twice (a socket) loses these rows. A source that begins
with future rows (Kafka at "latest") begins after them.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spillway.rows.joining import joined
from spillway.spark.api.session import quick_local_checkpoints, remove
from spillway.spark.runtime.exchange.lanes import quoted
from spillway.spark.runtime.loop import STOPPED, named_failure
from spillway.spark.runtime.task import as_stored

#: Rows of a stream that the driver collects.
SAMPLE_ROWS = 300
#: How long to wait for rows.
PATIENCE_S = 30.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True)
class FirstRows:
    """Measurements of the first rows of a stream."""

    #: The number of rows in the first batch, and the time that they span.
    rows: int
    span_us: int
    #: Some of them.
    sample: pa.RecordBatch


def first_rows(
    frames: Mapping[str, DataFrame],
    times: Mapping[str, str],
    location: str,
    *,
    finite: bool,
    patience_s: float = PATIENCE_S,
) -> dict[str, FirstRows]:
    """The first rows with a time of each stream, if they come in time.

    `times` names the event-time columns; temporary checkpoints go below `location`. If the input is
    finite, the call does not wait for rows.
    """
    place = f"{location.rstrip('/')}/sampling-{uuid.uuid4().hex[:12]}"
    spark = next(iter(frames.values())).sparkSession
    until, looks = time.monotonic() + patience_s, {}
    try:
        with quick_local_checkpoints(spark, location):
            for at, (name, frame) in enumerate(frames.items()):
                looks[name] = _Look(frame, times[name], f"{place}/{at}", finite)
        for look in looks.values():
            look.wait(until)
    finally:
        with _quiet_stops():
            for look in looks.values():
                look.stop()
        remove(spark, place)
    return {name: look.found for name, look in looks.items() if look.found is not None}


class _Look:
    """A query that takes the first rows of one stream; it runs until `stop`."""

    def __init__(self, frame: DataFrame, time: str, place: str, finite: bool) -> None:
        self.found: FirstRows | None = None
        self._time = time
        self._failure: BaseException | None = None
        self._done = threading.Event()
        self._query: StreamingQuery | None = None
        rows = frame.where(F.col(quoted(time)).isNotNull())
        writer = rows.writeStream.foreachBatch(self._take).option("checkpointLocation", place)
        self._query = (writer.trigger(availableNow=True) if finite else writer).start()

    def wait(self, until: float) -> None:
        """Waits for rows or the end of the input; raises the failure of the query."""
        assert self._query is not None
        while not self._done.wait(_LOOK_EVERY_S) and time.monotonic() < until:
            if not self._query.isActive:
                self._failure = self._failure or self._query.exception()
                break
        if self._failure is not None:
            raise named_failure(self._failure)

    def stop(self) -> None:
        """Ends the query."""
        if self._query is not None:
            self._query.stop()

    def _take(self, rows: DataFrame, _batch: int) -> None:
        try:
            self.found = _take_first(rows, self._time)
        except BaseException as problem:
            self._failure = problem
        if self.found is None and self._failure is None:
            return
        self._done.set()
        while self._query is None or self._query.isActive:
            time.sleep(_LOOK_EVERY_S)
        raise RuntimeError(STOPPED)


@contextmanager
def _quiet_stops() -> Iterator[None]:
    """Keeps the exception of a stopped query out of the log, where it looks like a failure."""

    def wanted(record: logging.LogRecord) -> bool:
        return record.exc_info is None or STOPPED not in str(record.exc_info[1])

    log = logging.getLogger("py4j.clientserver")
    log.addFilter(wanted)
    try:
        yield
    finally:
        log.removeFilter(wanted)


def _take_first(rows: DataFrame, time: str) -> FirstRows | None:
    column = F.col(quoted(time))
    counted = rows.agg(
        F.count(F.lit(1)).alias("rows"), F.min(column).alias("least"), F.max(column).alias("most")
    ).toArrow()
    count = counted["rows"][0].as_py()
    if not count:
        return None
    least, most = (counted[name].cast(pa.int64())[0].as_py() for name in ("least", "most"))
    sample = joined(rows.limit(SAMPLE_ROWS).toArrow().to_batches())
    return FirstRows(count, most - least, as_stored(sample))

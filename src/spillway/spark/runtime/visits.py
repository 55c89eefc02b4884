"""The visits of a time-sliced join in one Spark job: every row visits every slot.

    visit 1   the new rows of the batch go to all slots; each slot stores the rows of its slices
    visit k   the combinations so far go to all slots again, and are joined with one more stream

If slices have several copies (CTR), rows visit the slots of one copy of each, and new rows also go to
the slots that store them. A Spark expression finds these slots before the exchange.

A visit is an exchange and a stage of slot tasks (slot/visits.py). Between two visits, a slot sends
itself the name of the manifest that it wrote in the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, ShortType, StringType, StructField, StructType

from spillway.coordinator.batch.jobs import controller_of
from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.input import MARKER, StreamColumns, stream_numbers
from spillway.operators.theta.combinations import MANIFEST, SLOT, SOURCE
from spillway.operators.theta.sliced import Probing, SlicedJoin
from spillway.routing.slices import Slicing
from spillway.slot.identity import find_visited
from spillway.slot.run import Attempt
from spillway.slot.visits import LaterVisit, VisitRecord, first_visit
from spillway.spark.runtime.exchange.anchors import slot_expression
from spillway.spark.runtime.exchange.lanes import HASH, STREAM, micros
from spillway.spark.runtime.task import SlotTask, as_stored
from spillway.state.runs.run import as_numpy

#: Brings rows to the slots that a column names.
Exchange = Callable[[DataFrame, Column], DataFrame]


@dataclass(frozen=True)
class VisitTask(SlotTask):
    """Everything that the tasks of one visit get."""

    #: The operator, by its kind.
    join: SlicedJoin = field(kw_only=True)
    probing: Probing = field(kw_only=True)
    #: The number of the visit in the batch, from 1.
    visit: int = field(kw_only=True)

    def _run(self, rows: Iterable[pa.RecordBatch], records: Any) -> Iterator[pa.RecordBatch]:
        slot, rows = self._found(rows)
        if slot is None:
            return
        job, store = self._job(slot), self._store(slot)

        def report(record: SlotRecord | VisitRecord) -> None:
            records.add({(self.evaluation, record.slot): (record,)})

        if self.visit > 1:
            stored = map(as_stored, rows)
            visit = LaterVisit(self.visit, job, self.join, self.probing, store, report)
            yield from visit.run(stored)
            return
        attempt = Attempt(
            job,
            self._manifest(store.durable, slot),
            self.join,
            controller_of(self.plan, slot),
            store,
            report,
            self.faults.bound(self.plan.batch, slot),
        )
        yield from first_visit(map(self._placed, map(as_stored, rows)), attempt, self.probing)

    def _found(
        self, rows: Iterable[pa.RecordBatch]
    ) -> tuple[SlotId | None, Iterable[pa.RecordBatch]]:
        """The slot of the rows; every row names it."""
        return find_visited(rows, first_visit=self.visit == 1)

    def _placed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, with their places in time."""
        h = places(batch, self.streams, self.join.slicing)
        return batch.set_column(1, batch.schema.names[1], pa.array(h.view(np.int32)))


def places(
    batch: pa.RecordBatch, streams: Iterable[StreamColumns], slicing: Slicing
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The places in time of the rows of a batch, by the slices of their streams."""
    which = stream_numbers(batch)
    found = np.zeros(batch.num_rows, np.uint32)
    for number, stream in enumerate(streams):
        mine = which == number
        if mine.any():
            assert stream.time is not None
            times = as_numpy(batch.column(2 + stream.lanes[stream.time]), np.int64)
            found[mine] = slicing.places(number, times[mine])
    return found


def in_visits(
    rows: DataFrame,
    structs: StructType,
    schema: StructType,
    exchange: Exchange,
    task: Callable[[int], VisitTask],
    records: Any,
) -> DataFrame:
    """The results of a batch, in as many visits as needed; `schema` is the schema of the results.

    `structs` are the streams as they travel between visits.
    """
    first = task(1)
    visits, looked_into = first.probing.visit_count, _visited(first, SOURCE)
    coming = F.explode(F.expr(_first_slots(rows, first)))
    placed = exchange(rows.select(coming.alias(SLOT), "*"), F.col(SLOT))
    between = between_schema(structs)
    for number in range(1, visits + 1):
        made = placed.mapInArrow(
            task(number).function(records), schema if number == visits else between
        )
        if number == visits:
            return made
        others = [column for column in between.names if column != SLOT]
        going = F.explode(F.expr(f"if({MANIFEST} IS NULL, {looked_into}, array({SLOT}))"))
        placed = exchange(made.select(going.alias(SLOT), *others), F.col(SLOT))
    raise AssertionError("a join has two streams or more")


def _visited(task: VisitTask, source: str) -> str:
    """SQL for the slots to visit, by the column with the stream that a combination began with."""
    if task.probing.visits is None:
        return _array(range(task.plan.routing.slots))
    return f"get({_array(map(_array, task.probing.visits))}, cast({source} AS int))"


def _first_slots(rows: DataFrame, task: VisitTask) -> str:
    """SQL for the slots that a row of a batch goes to.

    A marker goes to its slot, and a row with a NULL time to one slot, which counts it.
    """
    routing = task.plan.routing
    one = _array([slot_expression(routing.table, routing.slots)])
    return f"if({STREAM} < {MARKER}, {one}, {_visited_first(rows, task)})"


def _visited_first(rows: DataFrame, task: VisitTask) -> str:
    everywhere, slicing = _array(range(task.plan.routing.slots)), task.join.slicing
    if task.probing.visits is None:
        return f"if({STREAM} = {MARKER}, array({HASH}), {everywhere})"
    slices = []
    for number, stream in enumerate(task.streams):
        assert stream.time is not None
        lane = f"lane{stream.lanes[stream.time]}"
        time = micros(lane, rows.schema[lane].dataType)
        slices.append(f"WHEN {number} THEN {slicing.sql(number, time)}")
    one = f"cast(CASE {STREAM} {' '.join(slices)} END AS int)"
    table, each = task.plan.routing.table, slicing.slices
    planes = (table[copy * each : (copy + 1) * each] for copy in range(slicing.copies))
    storing = _array(f"get({_array(plane)}, {one})" for plane in planes)
    return (
        f"if({STREAM} = {MARKER}, array({HASH}), array_union({_visited(task, STREAM)}, {storing}))"
    )


def _array(values: Iterable[object]) -> str:
    return f"array({', '.join(map(str, values))})"


def between_schema(structs: StructType) -> StructType:
    """The schema of rows between two visits; see operators/theta/combinations.py."""
    return StructType(
        [
            StructField(SLOT, IntegerType()),
            StructField(SOURCE, ShortType()),
            StructField(MANIFEST, StringType()),
            *structs.fields,
        ]
    )

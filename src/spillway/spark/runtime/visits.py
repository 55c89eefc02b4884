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
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, IntegerType, StringType, StructField, StructType

from spillway.coordinator.batch.jobs import controller_of
from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.input import StreamColumns
from spillway.operators.theta.combinations import MANIFEST, SLOT, SOURCE
from spillway.operators.theta.sliced import Probing, SlicedJoin
from spillway.routing.slices import Slicing
from spillway.slot.run import Attempt
from spillway.slot.visits import LaterVisit, VisitRecord, completed, first_visit
from spillway.spark.runtime.lanes import STREAM, micros
from spillway.spark.runtime.task import SlotTask, as_stored, unmarked
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

    def _run(
        self, rows: Iterable[pa.RecordBatch], slot: SlotId, records: Any
    ) -> Iterator[pa.RecordBatch]:
        slot, rows, sure = self._found(rows, slot)
        if slot >= self.plan.routing.slots:
            return
        job, store = self._job(slot, sure=sure), self._store()

        def report(record: SlotRecord | VisitRecord) -> None:
            records.add({(record.batch, record.slot): (record,)})

        if self.visit > 1:
            stored = map(as_stored, rows)
            visit = LaterVisit(self.visit, job, self.join, self.probing, store, report)
            yield from visit.run(stored)
            return
        attempt = Attempt(
            job,
            self._manifest(store.durable, slot),
            self.join,
            controller_of(self.home.adapt, slot),
            store,
            report,
            self.faults.bound(self.plan.batch, slot),
        )
        yield from first_visit(map(self._placed, map(as_stored, rows)), attempt, self.probing)

    def _found(
        self, rows: Iterable[pa.RecordBatch], place: SlotId
    ) -> tuple[SlotId, Iterable[pa.RecordBatch], bool]:
        """The slot of the rows; every row names it."""
        rows = iter(rows)
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is None:
            return place, (), False
        slot, whole = SlotId(first.column(0)[0].as_py()), chain([first], rows)
        if self.visit > 1:
            return slot, whole, True
        mine = (unmarked(batch.select(batch.schema.names[1:])) for batch in whole)
        return slot, filter(len, mine), True

    def _placed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, with their places in time."""
        h = places(batch, self.streams, self.join.slicing)
        return batch.set_column(1, batch.schema.names[1], pa.array(h.view(np.int32)))


def places(
    batch: pa.RecordBatch, streams: Iterable[StreamColumns], slicing: Slicing
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The places in time of the rows of a batch, by the slices of their streams."""
    which = as_numpy(batch.column(0), np.int8)
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
    """SQL for the slots that a row of a batch goes to; rows without a stream go to all slots."""
    everywhere, slicing = _array(range(task.plan.routing.slots)), task.join.slicing
    if task.probing.visits is None:
        return everywhere
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
    return f"if({STREAM} < 0, {everywhere}, array_union({_visited(task, STREAM)}, {storing}))"


def _array(values: Iterable[object]) -> str:
    return f"array({', '.join(map(str, values))})"


def between_schema(structs: StructType) -> StructType:
    """The schema of rows between two visits; see operators/theta/combinations.py."""
    return StructType(
        [
            StructField(SLOT, IntegerType()),
            StructField(SOURCE, ByteType()),
            StructField(MANIFEST, StringType()),
            *structs.fields,
        ]
    )


def answered(attempts: Iterable[SlotRecord | VisitRecord], visits: int) -> SlotRecord | None:
    """The record of a slot over all its visits; None: some have not ended."""
    said = list(attempts)
    later: dict[int, VisitRecord] = {}
    for one in said:
        if isinstance(one, VisitRecord):
            later.setdefault(one.visit, one)
    first = sorted((one for one in said if isinstance(one, SlotRecord)), key=lambda r: not r.sure)
    if not first or len(later) < visits - 1:
        return None
    return completed(first[0], list(later.values()))

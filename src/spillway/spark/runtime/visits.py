"""The visits of a time-sliced join in one Spark job: every row visits every slot.

    visit 1   the new rows of the batch go to all slots; each stores those whose slices it has
    visit k   what was found so far goes to all slots again, and is joined with one stream more

Where slices are stored more than once (CTR), rows visit the slots of one copy of each, and new rows go
to those that store them besides: which these are is found in Spark, before the exchange.

A visit is an exchange and a stage of slot tasks (slot/visits.py). Between two visits a slot sends
itself the name of the manifest that it wrote in the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, IntegerType, StringType, StructField, StructType

from spillway.coordinator.coordinator import BatchPlan
from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.input import StreamColumns
from spillway.operators.predicates.probing import together
from spillway.operators.theta.combinations import MANIFEST, SLOT, SOURCE
from spillway.operators.theta.sliced import Probing, SlicedJoin
from spillway.policies.ring.covering import covers, visited
from spillway.policies.ring.length import deciding
from spillway.policies.ring.model import (
    HopCosts,
    Source,
    explained,
    fitted,
    in_batches,
    ring_lengths,
    told_orders,
)
from spillway.policies.ring.probing import Stream, orders_of, sources_of
from spillway.routing.slices import Slicing
from spillway.slot.run import Attempt
from spillway.slot.visits import LaterVisit, VisitRecord, completed, first_visit
from spillway.spark.runtime.lanes import STREAM, micros
from spillway.spark.runtime.task import SlotTask, as_stored, unmarked
from spillway.state.runs.run import as_numpy

#: Puts rows where the slots are that a column names.
Exchange = Callable[[DataFrame, Column], DataFrame]
#: What was measured of a join, as the cost model takes it.
Model = tuple[tuple[Source, ...], HopCosts]


@dataclass(frozen=True)
class VisitTask(SlotTask):
    """Everything the tasks of one visit are sent."""

    #: The operator, by its kind.
    join: SlicedJoin = field(kw_only=True)
    probing: Probing = field(kw_only=True)
    #: Which visit of the batch it is, from 1 on.
    visit: int = field(kw_only=True)

    def _run(
        self, rows: Iterable[pa.RecordBatch], slot: SlotId, records: Any
    ) -> Iterator[pa.RecordBatch]:
        slot, rows, sure = self._found(rows, slot)
        if slot >= self.plan.routing.slots:
            return
        owned = self.plan.routing.groups_of(slot)
        job, store = replace(self._job(slot, sure=sure), owned=owned), self._store()

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
            self._controller(slot),
            store,
            report,
            self.faults.bound(self.plan.batch, slot),
        )
        yield from first_visit(map(self._placed, map(as_stored, rows)), attempt, self.probing)

    def _found(
        self, rows: Iterable[pa.RecordBatch], place: SlotId
    ) -> tuple[SlotId, Iterable[pa.RecordBatch], bool]:
        """The slot of the rows, which all of them name."""
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
        """The rows with their places in time."""
        h = places(batch, self.streams, self.join.slicing)
        return batch.set_column(1, batch.schema.names[1], pa.array(h.view(np.int32)))


def places(
    batch: pa.RecordBatch, streams: Iterable[StreamColumns], slicing: Slicing
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Where the rows of a batch are in time, each by the slices of its stream."""
    which = as_numpy(batch.column(0), np.int8)
    found = np.zeros(batch.num_rows, np.uint32)
    for number, stream in enumerate(streams):
        mine = which == number
        if mine.any():
            assert stream.time is not None
            times = as_numpy(batch.column(2 + stream.lanes[stream.time]), np.int64)
            found[mine] = slicing.places(number, times[mine])
    return found


def sources_now(
    join: SlicedJoin, last: Mapping[int, SlotRecord], seconds: float
) -> tuple[Source, ...]:
    """The cheapest orders by what the last batch, which took so long, has measured."""
    records = list(last.values())
    streams = [
        Stream(
            stream.name,
            sum(one.rows_in[at] for one in records) / max(seconds, 1e-3),
            float(sum(one.held_rows[at] for one in records)),
        )
        for at, stream in enumerate(join.streams)
    ]
    return sources_of(streams, join.predicates, together([one.sampled for one in records]))


def costs_now(join: SlicedJoin, last: Mapping[int, SlotRecord], seconds: float) -> HopCosts:
    """What a row costs beside comparing it, by what the last batch has measured (PSP Table 1).

    All slots are visited at once: what a batch takes beside the work of slots is shared among as many
    hops as Equation 5 counts. Rows go with the layers that they are in, so purging has no cost of its
    own.
    """
    records = list(last.values())
    rows = sum(sum(one.rows_in) for one in records)
    phases = {
        name: sum(one.phases_s.get(name, 0.0) for one in records)
        for name in ("sort", "store", "compact", "commit")
    }
    beyond_s = max(0.0, seconds - max((one.busy_s for one in records), default=0.0))
    slots = max(1, len(records))
    hops = slots * len(join.streams) + (slots - 1) / 2
    return HopCosts(
        send_s=max(phases.pop("sort") / max(rows * len(records), 1), 1e-9),
        hop_s=max(beyond_s / hops, 1e-9),
        insert_s=sum(phases.values()) / max(rows, 1),
    )


def model_now(
    join: SlicedJoin,
    last: Mapping[int, SlotRecord],
    seconds: float,
    period_s: float | None = None,
) -> Model | None:
    """The cost model of whole batches, by the last one; None where it had no rows, or met none.

    What slots are busy with is what they were in that batch; the model says how that would change.
    `period_s` is from one batch to the next, where that is longer than the batch.
    """
    sources = sources_now(join, last, max(seconds, period_s or 0.0))
    rows = sum(sum(one.rows_in) for one in last.values())
    if not rows or not all(step.rows for source in sources for step in source.steps):
        return None
    batches, costs = in_batches(sources, costs_now(join, last, seconds), rows)
    work_s = sum(one.busy_s for one in last.values())
    return fitted(batches, costs, len(last), work_s), costs


def most_rate(last: Mapping[int, SlotRecord]) -> float | None:
    """Results a second of slots that are as fast as in the last batch, and busy all the time."""
    busy_s = sum(one.busy_s for one in last.values()) / max(1, len(last))
    return sum(one.rows_out for one in last.values()) / busy_s if busy_s > 0 else None


def explained_visits(
    join: SlicedJoin,
    last: Mapping[int, SlotRecord],
    seconds: float,
    period_s: float | None = None,
) -> list[str]:
    """What the cost model says of the join, for people; nothing where the last batch says nothing."""
    model = model_now(join, last, seconds, period_s)
    if model is None:
        return ["not measured: the last batch had no rows, or there were none to meet"]
    sources, costs = model
    measured = together([one.sampled for one in last.values()])
    predicates = [
        f"predicate {one.label.partition(':')[2]}: {measured.cost_us(one):.3g} µs a pair, "
        f"selectivity {measured.selectivity(one):.3g}"
        for one in join.predicates
    ]
    if join.slicing.copies > 1:
        # The model is that of a ring, on which rows go to every slot.
        return [told_orders(sources), *predicates]
    return [*_lengths(sources, costs, last), *predicates]


def _lengths(
    sources: Sequence[Source], costs: HopCosts, last: Mapping[int, SlotRecord]
) -> list[str]:
    """What other numbers of slots would give."""
    slots = len(last)
    came = sum(sum(one.rows_in) for one in last.values())
    held = sum(sum(one.held_bytes) for one in last.values())
    rows = sum(sum(one.held_rows) for one in last.values())
    lengths = ring_lengths(sources, costs, most=max(8, 4 * slots))
    best = [f"{name} {length}" for name, length in lengths.items()]
    most, part = deciding(sources)
    return [
        *explained(sources, costs, slots, came * held / max(rows, 1), most_rate(last)).splitlines(),
        f"best slots by stream, if each had its own: {', '.join(best)}",
        f"a group has a slice of every stream, so all have one length: rows of {most} decide it most, "
        f"with {part:.0%} of the comparing",
    ]


def probing_of(
    join: SlicedJoin, plan: BatchPlan, last: Mapping[int, SlotRecord], seconds: float
) -> Probing:
    """In which order the rows of a batch visit, which copies of slices, and by what measurements."""
    copies = join.slicing.copies
    measured = together([one.sampled for one in last.values()]).counts
    probing = Probing(orders_of(sources_now(join, last, seconds)), measured=measured)
    if copies == 1:
        return probing
    table = plan.routing.table
    chosen = covers(table, copies, len(join.streams), plan.batch)
    # Groups on their way are with both sides.
    taking_part = {slot: move.groups for move in plan.moves for slot in move.slots}
    visits = tuple(visited(table, one, taking_part) for one in chosen)
    return replace(probing, chosen=chosen, visits=visits)


def in_visits(
    rows: DataFrame,
    structs: StructType,
    schema: StructType,
    exchange: Exchange,
    task: Callable[[int], VisitTask],
    records: Any,
) -> DataFrame:
    """The results of a batch, in as many visits as it takes; `schema` is theirs.

    `structs` are the streams as they travel from one visit to the next.
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
    """SQL for the slots that are visited, by the column that says with which stream it began."""
    if task.probing.visits is None:
        return _array(range(task.plan.routing.slots))
    return f"get({_array(map(_array, task.probing.visits))}, cast({source} AS int))"


def _first_slots(rows: DataFrame, task: VisitTask) -> str:
    """SQL for the slots that a row of a batch goes to; those of no stream, which tell slots, to all."""
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
    """The schema of what travels between two visits: see operators/theta/combinations.py."""
    return StructType(
        [
            StructField(SLOT, IntegerType()),
            StructField(SOURCE, ByteType()),
            StructField(MANIFEST, StringType()),
            *structs.fields,
        ]
    )


def answered(attempts: Iterable[SlotRecord | VisitRecord], visits: int) -> SlotRecord | None:
    """The record of a slot of all its visits; None: some have not ended."""
    said = list(attempts)
    later: dict[int, VisitRecord] = {}
    for one in said:
        if isinstance(one, VisitRecord):
            later.setdefault(one.visit, one)
    first = sorted((one for one in said if isinstance(one, SlotRecord)), key=lambda r: not r.sure)
    if not first or len(later) < visits - 1:
        return None
    return completed(first[0], list(later.values()))

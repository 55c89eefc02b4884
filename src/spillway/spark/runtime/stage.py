"""One operator of a running query: turns the rows of a batch into results, and collects slot records.

    results   the DataFrame of results: split, exchange, slot tasks
    answers   slot records, which come back through an accumulator

The conductor works between two batches (coordinator/conductor.py). A query is one stage, or several in a
row (coordinator/chain.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.plan import BatchPlan, needs_every_slot
from spillway.coordinator.batch.references import References
from spillway.coordinator.chain import Answers
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.faults import Faults
from spillway.metrics.record import SlotRecord
from spillway.operators.equi.intermediate import time_columns
from spillway.policies.cluster.restless import Restless
from spillway.spark.api.session import cloned
from spillway.spark.runtime.anchors import slot_expression
from spillway.spark.runtime.home import Home
from spillway.spark.runtime.host import SparkHost
from spillway.spark.runtime.lanes import lanes_schema, markers, with_copies
from spillway.spark.runtime.mover import Mover
from spillway.spark.runtime.pace import Pace
from spillway.spark.runtime.placement import Placement
from spillway.spark.runtime.spec import QuerySpec
from spillway.spark.runtime.task import Records, SlotTask
from spillway.spark.runtime.visits import VisitTask, answered, in_visits


@dataclass(frozen=True)
class Start:
    """What a start of a stage finds, and what the user asks for."""

    checkpoint: Checkpoint
    state: Committed
    references: References
    slots: int
    #: Whether slots stay on their executors.
    anchored: bool
    #: Whether the sink may renumber the tasks; then a task without a row does not know its slot.
    renumbers: bool


class Stage:
    """The operator of a query while it runs."""

    def __init__(self, spark: SparkSession, spec: QuerySpec, start: Start) -> None:
        self.spec = spec
        self.checkpoint = start.checkpoint
        self.pace = Pace()
        self.home = Home(
            spec.query_id, uuid.uuid4().hex[:12], start.checkpoint.location, spec.adapt
        )
        self.placement = Placement(spark, anchored=start.anchored)
        self._renumbers = start.renumbers
        self._records = spark.sparkContext.accumulator({}, Records())
        self._own = cloned(spark)
        self.host = self._host(spark)
        marks = start.checkpoint.log.marks()
        coordinator = Coordinator.at_start(
            spec.terms, start.state, start.references, start.slots, marks
        )
        self.placement.place(start.state.routing.slots)
        self.conductor = Conductor(_faulty(coordinator, spec.faults), self.host)

    def _host(self, spark: SparkSession) -> SparkHost:
        spec, checkpoint = self.spec, self.checkpoint
        times = partial(time_columns, spec.operator.layouts, spec.lanes.streams)
        mover = Mover(cloned(spark), checkpoint, self.home, times, spec.faults, self.pace)
        streams = len(spec.plan.streams)
        host = SparkHost(
            checkpoint, streams, mover, self.placement, spec.faults, lambda: self.coordinator.last
        )
        mover.reach = host.reach
        return host

    @property
    def coordinator(self) -> Coordinator:
        """The current coordinator."""
        return self.conductor.coordinator

    @property
    def state(self) -> Committed:
        """The committed state, with the messages since."""
        return self.coordinator.state

    @property
    def stuck(self) -> bool:
        """Whether something waits for a batch, even one without rows."""
        if self.state.batch < 0:
            return False
        mover = self.host.mover
        if self.state.spooled_rows > 0 or mover.waiting:
            return True
        return self.conductor.ahead.changing and not mover.busy

    def close(self) -> None:
        """Ends the work between the batches."""
        self.host.close()
        self.placement.close()

    def no_rows(self) -> DataFrame:
        """No rows, but Spark cannot know that in advance, so every slot gets its task."""
        none = self._own.sparkContext.emptyRDD()
        schema = lanes_schema(self.spec.lanes)
        return self._own.createDataFrame(none, schema, verifySchema=False)

    def results(self, rows: DataFrame, plan: BatchPlan) -> DataFrame:
        """The results of a batch; Spark computes them when the sink evaluates them."""
        self._records.value = {}
        self.placement.place(plan.routing.slots)
        slot = F.expr(slot_expression(plan.routing.table, plan.routing.slots))
        if plan.copies:
            rows, slot = with_copies(rows, slot, plan.copies, plan.routing.groups)
        if self._renumbers and needs_every_slot(self.state, plan):
            rows = rows.unionAll(markers(rows.sparkSession, self.spec.lanes, plan.routing))
        if self.spec.sliced is not None:
            return self._visits(rows, plan)
        spec = self.spec
        sent = (self.home, plan, spec.lanes.streams, spec.operator, spec.identity, spec.faults)
        placed = self._exchanged(plan, rows, slot)
        return placed.mapInArrow(SlotTask(*sent).function(self._records), spec.schema)

    def _visits(self, rows: DataFrame, plan: BatchPlan) -> DataFrame:
        """The results of a join on predicates, whose rows visit all slots."""
        spec, join = self.spec, self.spec.sliced
        assert join is not None
        probing = self.coordinator.probing(plan)
        sent = (self.home, plan, spec.lanes.streams, spec.operator, spec.identity, spec.faults)
        return in_visits(
            rows,
            spec.lanes.structs,
            spec.schema,
            partial(self._exchanged, plan),
            lambda number: VisitTask(*sent, join=join, probing=probing, visit=number),
            self._records,
        )

    def _exchanged(self, plan: BatchPlan, rows: DataFrame, slot: Column) -> DataFrame:
        return self.placement.exchange(rows, slot, plan.routing.slots)

    def collect_answers(self, results: DataFrame, plan: BatchPlan) -> Answers:
        """One record per slot; an extra job evaluates slots that the sink left out."""
        records = self._arrived(plan.batch, by_place=not self._renumbers)
        if len(records) < plan.routing.slots:
            results.write.format("noop").mode("append").save()
            records = self._arrived(plan.batch, by_place=True)
        said = (record for same in self._records.value.values() for record in same)
        return Answers(records, tuple(one for one in said if isinstance(one, SlotRecord)))

    def _arrived(self, batch: int, *, by_place: bool) -> Mapping[int, SlotRecord]:
        """One record of each slot whose task was sure of its slot; with `by_place`, of any task."""
        chosen = {}
        rounds = len(self.spec.sliced.streams) - 1 if self.spec.sliced else 1
        for (at, slot), attempts in self._records.value.items():
            if at != batch or (record := answered(attempts, rounds)) is None:
                continue
            if record.sure or by_place:
                chosen[slot] = record
        return chosen


def _faulty(coordinator: Coordinator, faults: Faults) -> Coordinator:
    """The coordinator, with the behaviour that a test asks for."""
    rules = coordinator.rules
    if faults.always_move:
        rules = replace(rules, strategy=Restless(), interval_batches=1)
    return replace(coordinator, rules=rules, always_sends=faults.always_send)

"""One operator of a running query: turns the rows of a batch into results, and collects slot records.

    results   the DataFrame of results: split, exchange, slot tasks
    answers   slot records, which come back through an accumulator

The conductor works between two batches (coordinator/conductor.py). A query is one stage, or several in a
row (coordinator/chain.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.batch.references import References
from spillway.coordinator.chain import Answers, left_unread
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.faults import Faults
from spillway.metrics.record import SlotRecord
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.policies.cluster.restless import Restless
from spillway.slot.visits import answered
from spillway.spark.runtime.exchange.anchors import slot_expression
from spillway.spark.runtime.exchange.lanes import lanes_schema, with_copies, with_markers
from spillway.spark.runtime.exchange.placement import Placement
from spillway.spark.runtime.home import Home
from spillway.spark.runtime.host import SparkHost
from spillway.spark.runtime.moves.mover import Mover
from spillway.spark.runtime.moves.pace import Pace
from spillway.spark.runtime.session import cloned
from spillway.spark.runtime.spec import QuerySpec
from spillway.spark.runtime.task import Records, SlotTask
from spillway.spark.runtime.visits import VisitTask, in_visits


@dataclass(frozen=True)
class Start:
    """What a start of a stage finds, and what the user asks for."""

    checkpoint: Checkpoint
    state: Committed
    references: References
    slots: int
    #: Whether slots stay on their executors.
    anchored: bool


class Stage:
    """The operator of a query while it runs."""

    def __init__(self, spark: SparkSession, spec: QuerySpec, start: Start) -> None:
        self.spec = spec
        self.checkpoint = start.checkpoint
        self.pace = Pace()
        with ExitStack() as held:
            self._acquire(spark, start, held)
            #: What the stage has until it closes; a start that fails above has released it.
            self._held = held.pop_all()

    def _acquire(self, spark: SparkSession, start: Start, held: ExitStack) -> None:
        """Takes what must be released, each with its release."""
        spec = self.spec
        self.home = Home(
            spec.query_id, start.checkpoint.epoch, start.checkpoint.location, spec.adapt
        )
        self.placement = Placement(spark, anchored=start.anchored)
        held.callback(self.placement.close)
        self._evaluations = itertools.count()
        self._evaluation = -1
        self._records = spark.sparkContext.accumulator({}, Records())
        # Spark's registry would keep it, and the last records, until the program ends.
        held.callback(_accumulatorRegistry.pop, self._records.aid, None)
        self._own = cloned(spark)
        self.host = self._host(spark)
        held.callback(self.host.close)
        coordinator = Coordinator.at_start(spec.terms, start.state, start.references, start.slots)
        self.placement.place(start.state.routing.slots)
        self.conductor = Conductor(_faulty(coordinator, spec.faults), self.host)

    def _host(self, spark: SparkSession) -> SparkHost:
        spec, checkpoint = self.spec, self.checkpoint
        mover = Mover(cloned(spark), checkpoint, self.home, spec.faults, self.pace)
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
        if self.state.spooled_rows > 0 or self.coordinator.due or mover.waiting:
            return True
        return self.conductor.ahead.changing and not mover.busy

    def close(self) -> None:
        """Ends the work between the batches and releases everything; may be called again."""
        self._held.close()

    def no_rows(self) -> DataFrame:
        """The rows of a round: none."""
        return self._own.createDataFrame([], lanes_schema(self.spec.lanes))

    def results(self, rows: DataFrame, plan: BatchPlan) -> DataFrame:
        """The results of a batch; Spark computes them when the sink evaluates them."""
        self._records.value = {}
        self._evaluation = next(self._evaluations)
        self.placement.place(plan.routing.slots)
        slot = F.expr(slot_expression(plan.routing.table, plan.routing.slots))
        if plan.copies:
            rows, slot = with_copies(rows, slot, plan.copies, plan.routing.groups)
        rows, slot = with_markers(rows, slot, self.spec.lanes, plan.routing.slots)
        if self.spec.sliced is not None:
            return self._visits(rows, plan)
        placed = self._exchanged(plan, rows, slot)
        task = SlotTask(*self._sent(plan))
        return placed.mapInArrow(task.function(self._records), self.spec.schema)

    def _sent(
        self, plan: BatchPlan
    ) -> tuple[Home, BatchPlan, tuple[StreamColumns, ...], Operator, int, bool, Faults]:
        """What the tasks of a batch get."""
        spec, streams = self.spec, self.spec.lanes.streams
        number = self._evaluation
        return self.home, plan, streams, spec.operator, number, spec.identity, spec.faults

    def _visits(self, rows: DataFrame, plan: BatchPlan) -> DataFrame:
        """The results of a join on predicates, whose rows visit all slots."""
        spec, join = self.spec, self.spec.sliced
        assert join is not None
        probing = self.coordinator.probing(plan)
        sent = self._sent(plan)
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

    def collect_answers(self, results: DataFrame, plan: BatchPlan, *, may_skip: bool) -> Answers:
        """One record per slot.

        With `may_skip`, an extra job evaluates the slots if the sink has read none of them.
        """
        records, slots = self._arrived(), range(plan.routing.slots)
        if may_skip and not records:
            results.write.format("noop").mode("append").save()
            records = self._arrived()
        if unread := [slot for slot in slots if slot not in records]:
            raise left_unread(plan, unread)
        said = (record for same in self._records.value.values() for record in same)
        return Answers(records, tuple(one for one in said if isinstance(one, SlotRecord)))

    def _arrived(self) -> Mapping[int, SlotRecord]:
        """One record of each slot whose results were read to the end."""
        visits = len(self.spec.sliced.streams) - 1 if self.spec.sliced else 1
        found = {
            slot: answered(attempts, visits)
            for (number, slot), attempts in self._records.value.items()
            if number == self._evaluation
        }
        return {slot: record for slot, record in found.items() if record is not None}


def _faulty(coordinator: Coordinator, faults: Faults) -> Coordinator:
    """The coordinator, with the behaviour that a test asks for."""
    rules = coordinator.rules
    if faults.always_move:
        rules = replace(rules, strategy=Restless(), interval_batches=1)
    return replace(coordinator, rules=replace(rules, always_sends=faults.always_send))

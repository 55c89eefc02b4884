"""One operator of a running query: its committed state, its plans, its tasks, and what runs beside them.

A query is one stage, or several in a row: then the results of a stage are the rows of the next, in the
same Spark job, and every batch or round of a stage is a batch of the next.

    plan      what every slot is told, from the committed state
    results   rows of the input as the results of the operator: split, exchange, slot tasks
    answers   slot records, which come back through an accumulator
    commit    the next committed state, in the log

Groups move beside the batches (spark/runtime/mover.py). Between two batches a stage takes what was said
there, and lets what is due begin.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.janitor import Upkeep
from spillway.checkpoint.log import Mark, next_round_of
from spillway.coordinator.adaptation import Rules, adapt, give_up, rescale, resume, tire, waits
from spillway.coordinator.coordinator import (
    BatchPlan,
    Committed,
    Note,
    References,
    Scaling,
    commit_batch,
    new_note,
    noteworthy,
    plan_batch,
    plan_round,
)
from spillway.coordinator.reshaping import reshape, shapes_of
from spillway.coordinator.smoothing import smooth
from spillway.metrics.events import Event
from spillway.metrics.record import SlotRecord
from spillway.operators.equi.intermediate import time_columns
from spillway.policies.cluster.protocols import Protocols
from spillway.policies.local.rotation import Gaps
from spillway.policies.local.skew import Skew
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.settings import parse_bytes
from spillway.spark.api.session import cloned
from spillway.spark.runtime.anchors import Anchors, slot_expression
from spillway.spark.runtime.home import Home
from spillway.spark.runtime.lanes import lanes_schema, markers, with_copies
from spillway.spark.runtime.mover import Mover
from spillway.spark.runtime.pace import Pace
from spillway.spark.runtime.ring import Ring, adjusts
from spillway.spark.runtime.spec import QuerySpec
from spillway.spark.runtime.task import Records, SlotTask
from spillway.spark.runtime.visits import (
    Model,
    VisitTask,
    answered,
    explained_visits,
    in_visits,
    model_now,
    probing_of,
)

#: Steps of a move (DCAPE-TR 5.1, PLANS 3.2) that a batch is the answer to, by the phase it ran in; and
#: those that are due when it is committed, by the phase after it. That a move is taken back, or a track
#: given up, is a step of neither paper, and here the ninth.
_STEP_IN_BATCH = {
    Phase.COMPUTING: 2,
    Phase.DEACTIVATING: 4,
    Phase.REACTIVATING: 8,
    Phase.DELETING: 5,
    Phase.ROLLING_BACK: 9,
}
_STEP_AFTER_BATCH = {Phase.COMPUTING: 1, Phase.DEACTIVATING: 3, Phase.DUPLICATING: 3}


class Stage:
    """The operator of a query while it runs."""

    def __init__(
        self,
        spark: SparkSession,
        spec: QuerySpec,
        checkpoint: Checkpoint,
        state: Committed,
        references: References,
        slots: int,
        anchored: bool,
        renumbers: bool,
    ) -> None:
        self.spec = spec
        self.state = state
        self.checkpoint = checkpoint
        self.rules = Rules.of(spec.adapt, spec.life_us)
        #: Bytes of state that each slot may have in memory; None: no limit.
        self.memory = {s: spec.adapt.memory_of(s) for s in range(max(slots, state.routing.slots))}
        #: How much slots that are slower than others process in a batch; None: everything.
        self._skew = None
        if (buffer_bytes := spec.adapt.skew_bytes) is not None:
            self._skew = Skew(buffer_bytes, spec.adapt.batch_target_s)
        #: How groups take turns in memory; None: they leave it in generations.
        self._gaps = Gaps(spec.adapt.t_gap_s) if spec.adapt.spill_mode == "rotation" else None
        self.pace = Pace()
        #: Whether state is sent even to a slot that could take it over by name.
        self.always_sends = False
        #: Whether no more input comes.
        self._ended = False
        self.home = Home(spec.query_id, uuid.uuid4().hex[:12], checkpoint.location, spec.adapt)
        self.anchors: Anchors | None = None
        self._user = spark
        #: Whether what evaluates the results may renumber the tasks: then a task without a row does
        #: not know which slot it is.
        self._renumbers = renumbers
        #: How long the ring of a join is to be; None: slots of other operators are no ring.
        rings = adjusts(spec.operator) and not spec.identity
        self._ring = Ring(spec.adapt, slots) if rings else None
        #: The slots this start was asked for, until it has them; and those wished for since.
        self._slots_asked = slots if self._ring is None else self._ring.asked(state)
        self._wished: Scaling | None = None
        self._anchored = anchored
        self._records = spark.sparkContext.accumulator({}, Records())
        self._upkeep = Upkeep(checkpoint, references)
        times = partial(time_columns, spec.operator.layouts, spec.lanes.streams)
        moving = (cloned(spark), checkpoint, self.home, times)
        self._mover = Mover(*moving, spec.faults, self._reach, self.pace)
        self._own = cloned(spark)
        #: Whether no batch of this start has been committed.
        self._first = True
        #: What happened beside the batches since the last commit.
        self._beside: tuple[Event, ...] = ()
        #: The records of the last commit, by slot.
        self._last: Mapping[int, SlotRecord] = {}
        #: What that batch took.
        self._last_s = 0.0
        self._place_anchors()
        if self.rules.strategy.relocates:
            self._mover.warm_up()

    @property
    def limits(self) -> dict[int, int | None]:
        """Bytes of state at which each slot moves groups out of memory; None: it does not."""
        part = self.spec.adapt.memory_threshold
        if not self.rules.strategy.spills:
            return {}
        return {
            slot: None if limit is None else max(1, int(limit * part))
            for slot, limit in self.memory.items()
        }

    @property
    def stuck(self) -> bool:
        """Whether something waits for a batch that need not have rows."""
        if self.state.batch < 0:
            return False
        # A parallel track waits for rows, and a change of slots that waits for one does so as well.
        held = bool(self.state.moves) and not self.moving
        scaling = self.state.scaling is not None and not held
        changing = self._wished is not None or (scaling and not waits(self.state, self._last))
        spooled = self.state.spooled_rows > 0
        return spooled or self._mover.waiting or (changing and not self._mover.busy)

    @property
    def moving(self) -> bool:
        """Whether groups move and will do so without rows, too."""
        return any(self._ended or m.phase is not Phase.DUPLICATING for m in self.state.moves)

    def scale(self, slots: int) -> None:
        """Takes a wish for another number of slots; the next batch or round begins with it."""
        rescale(self.state, slots)
        passive = self._ring is not None and self._ring.passive(self._model(), len(self._last))
        self._wish(Scaling(slots, passive=passive))

    def _wish(self, wished: Scaling) -> None:
        if not wished.passive:
            self._mover.warm_up()
        self._wished = wished

    def end_input(self) -> None:
        """Takes note that no more input comes, so that no parallel track would ever end."""
        self._ended = True
        self.rules = replace(self.rules, protocols=Protocols())

    def finish_sending(self) -> None:
        """Waits for everything that is on its way."""
        self._mover.finish()

    def close(self) -> None:
        """Ends what runs beside the batches."""
        self._mover.close()
        self._upkeep.close()
        if self.anchors is not None:
            self.anchors.close()

    # One batch

    @property
    def steps(self) -> int:
        """Batches and rounds since the first start: what the next stage has had as batches."""
        return self.state.batch + 1 + self.state.rounds

    def begin_batch(self, batch: int) -> BatchPlan:
        """The plan of the next batch, noted where another start could make another one.

        The first batch of a start may have been begun before a crash; then it has the plan it had.
        """
        mark, note = Mark(batch), None
        if self._first:
            note = self.checkpoint.log.begun(mark)
        if note is None:
            self.catch_up()
        plan = plan_batch(
            self.state,
            batch,
            self._upkeep.garbage,
            sweep=self._first,
            memory_bytes=self.limits,
            budgets=self._skew.budgets() if self._skew else None,
            t_gaps_s=self._gaps.seconds(self.state.routing.slots) if self._gaps else None,
            shapes=shapes_of(self.state, self.spec.shaping),
            note=note,
        )
        if note is None and noteworthy(self.state, plan):
            self.checkpoint.log.begin(mark, plan.note)
        return plan

    @property
    def replays(self) -> bool:
        """Whether a batch was begun before this start, so that it comes again first."""
        return self._first and self.checkpoint.log.begun(Mark(self.state.batch + 1)) is not None

    def begin_round(self, cleanup: tuple[int, ...]) -> Note | None:
        """Notes a round that cleans up some groups; None if there is nothing for it to do.

        No rows come in a round, so it has no budget, and turns are given at once: what waits is
        processed.
        """
        state = self.state
        if not (cleanup or state.moves or state.scaling or state.spooled_rows):
            return None
        at_once = dict.fromkeys(range(state.routing.slots), 0.0) if self._gaps else None
        shapes = shapes_of(state, self.spec.shaping)
        note = new_note(state, self.limits, cleanup, t_gaps_s=at_once, shapes=shapes)
        self.checkpoint.log.begin(next_round_of(self.state), note)
        return note

    def open_round(self) -> Note | None:
        """The note of a round that was begun and has not ended."""
        return self.checkpoint.log.begun(next_round_of(self.state))

    def planned_round(self, note: Note) -> BatchPlan:
        """The plan of a batch without rows."""
        return plan_round(self.state, note, self._upkeep.garbage)

    def no_rows(self) -> DataFrame:
        """Rows that are not known to be none before they are read, so that every slot has its task."""
        none = self._own.sparkContext.emptyRDD()
        schema = lanes_schema(self.spec.lanes)
        return self._own.createDataFrame(none, schema, verifySchema=False)

    def results(self, rows: DataFrame, plan: BatchPlan) -> DataFrame:
        """The results of a batch, made where they are evaluated."""
        self._records.value = {}
        slot = F.expr(slot_expression(plan.routing.table, plan.routing.slots))
        if plan.copies:
            rows, slot = with_copies(rows, slot, plan.copies, plan.routing.groups)
        if self._renumbers and noteworthy(self.state, plan):
            rows = rows.unionAll(markers(rows.sparkSession, self.spec.lanes, plan.routing))
        spec = self.spec
        sent = (self.home, plan, spec.lanes.streams, spec.operator, spec.identity, spec.faults)
        if (join := self.spec.sliced) is not None:
            probing = probing_of(join, plan, self._last, self._last_s)
            return in_visits(
                rows,
                spec.lanes.structs,
                spec.schema,
                partial(self._exchanged, plan),
                lambda number: VisitTask(*sent, join=join, probing=probing, visit=number),
                self._records,
            )
        task = SlotTask(*sent)
        placed = self._exchanged(plan, rows, slot)
        return placed.mapInArrow(task.function(self._records), spec.schema)

    def _exchanged(self, plan: BatchPlan, rows: DataFrame, slot: Column) -> DataFrame:
        if self.anchors is None:
            return rows.repartitionById(plan.routing.slots, slot)
        return self.anchors.exchange(rows, slot)

    def explained_visits(self) -> list[str]:
        """What a join without keys costs; where rows visit all slots, also with other numbers."""
        if (join := self.spec.sliced) is None:
            return []
        lines = explained_visits(join, self._last, self._last_s, self.pace.period_s)
        more = [] if self._ring is None else self._ring.lines(self.state, self._wished)
        return [*lines, *more]

    def _model(self) -> Model | None:
        """The cost model of such a join by the last batch; None where that says nothing."""
        join = self.spec.sliced
        if join is None:
            return None
        return model_now(join, self._last, self._last_s, self.pace.period_s)

    def answers(self, results: DataFrame, plan: BatchPlan) -> Mapping[int, SlotRecord]:
        """One record per slot, evaluating the slots that the sink left out."""
        records = self._arrived(plan.batch, by_place=not self._renumbers)
        if len(records) < plan.routing.slots:
            results.write.format("noop").mode("append").save()
            records = self._arrived(plan.batch, by_place=True)
        return records

    def commit(
        self,
        plan: BatchPlan,
        records: Mapping[int, SlotRecord],
        seconds: float,
        period_s: float | None = None,
    ) -> None:
        """Makes a batch true that took so long, and began so long after the one before.

        What slots do is measured by the first, the query's own time, and what comes to them by the
        second, which is not known of the first batch of a start, and of rounds.
        """
        lateness = [s.window.lateness_us if s.window else None for s in self.spec.plan.streams]
        for move in plan.moves:
            purged = move.move in records[move.sender].purged
            self._reach(move, 4 if purged else _STEP_IN_BATCH.get(move.phase, 0))
        state = commit_batch(self.state, plan, records, lateness, seconds, self._beside)
        if not self._resizing:
            state = adapt(state, records, self.limits, self.rules, period_s or 0.0)
        came_s = seconds if period_s is None else period_s
        state = reshape(state, plan, records, self.limits, came_s, self.spec.shaping)
        if (join := self.spec.sliced) is not None:
            state = smooth(state, records, join.slicing)
        if not self.spec.identity:
            self.checkpoint.log.append(state)
        said = [record for same in self._records.value.values() for record in same]
        attempts = [record for record in said if isinstance(record, SlotRecord)]
        self._upkeep.after(plan, records, attempts, state)
        self.state, self._last, self._beside = state, records, ()
        self._last_s = seconds
        if self._ring is not None and self._ring.automatic:
            changing = self._wished is not None or self._slots_asked is not None
            due = self._ring.observed(state, records, self._model(), changing=changing)
            if due is not None:
                self._wish(due)
        if self._skew is not None:
            self._skew = self._skew.observed(records, is_round=state.round > 0)
        if self._gaps is not None:
            self._gaps = self._gaps.observed(records, seconds)
        self._first = self._first and state.round > 0
        for move in state.moves:
            self._reach(move, _STEP_AFTER_BATCH.get(move.phase, 0))
        self._send()

    def _arrived(self, batch: int, *, by_place: bool) -> dict[int, SlotRecord]:
        """The first record of each slot that was sure of itself; of others, if places are right."""
        chosen = {}
        rounds = len(self.spec.sliced.streams) - 1 if self.spec.sliced else 1
        for (at, slot), attempts in self._records.value.items():
            if at != batch or (record := answered(attempts, rounds)) is None:
                continue
            if record.sure or by_place:
                chosen[slot] = record
        return chosen

    # Between two batches

    def catch_up(self) -> None:
        """Takes what was said beside the batches, and what the user wishes."""
        if self._waits_too_long():
            self._mover.finish()
        self.state, events = resume(self.state, self._mover.said())
        self._beside += events
        if reason := self._impatience():
            self.state, events = give_up(self.state, reason)
        else:
            self.state, events = tire(self.state, self.rules, self._last_s)
        self._beside += events
        self._send()
        self._take_slots()

    def _waits_too_long(self) -> bool:
        """Whether so much waits for groups on their way that they must arrive before more comes."""
        most = parse_bytes("buffer", self.spec.adapt.buffer)
        if sum(record.parked_bytes for record in self._last.values()) > most:
            return True
        return self._crowded(self.state.moves, most) is not None

    def _crowded(self, moves: Iterable[GroupMove], most: int) -> int | None:
        """A slot of some moves, which so spills nothing, that has more by so much than it may."""
        limits, taking_part = self.limits, {slot for move in moves for slot in move.slots}
        held = {slot: sum(self._last[slot].state_bytes) for slot in taking_part & set(self._last)}
        full = (
            slot
            for slot, size in sorted(held.items())
            if (limit := limits.get(slot)) is not None and size > limit + most
        )
        return next(full, None)

    @property
    def _resizing(self) -> bool:
        """Whether this start waits for moves to end, to have another number of slots."""
        asked, slots = self._slots_asked, self.state.routing.slots
        return asked not in (None, slots) and self.state.scaling is None

    def _impatience(self) -> str:
        """Why parallel tracks are not waited for any more; "" if they are."""
        if self._ended:
            return "the input has ended"
        if self._resizing:
            return f"the query is to have {self._slots_asked} slots"
        # A track that is given up costs no result, and its slots can spill again.
        crowded = self._crowded((m for m in self.state.moves if isinstance(m, ParallelTrack)), 0)
        return "" if crowded is None else f"slot {crowded} has no memory left, and could not spill"

    def _send(self) -> None:
        """Begins to send what has departed and is not being sent."""
        for move in self.state.moves:
            departed = move.phase in (Phase.SENDING, Phase.RECEIVING)
            if departed and not self._mover.knows(move):
                name = self.state.manifests[move.sender]
                assert name is not None
                sender = self.checkpoint.manifest(name)
                together = self._in_one_place(move.sender, move.receiver)
                shapes = shapes_of(self.state, self.spec.shaping)
                made = [node.name for node in shapes[move.receiver].inner()] if shapes else []
                self._mover.send(move, sender, made, None if together else self._placed)

    def _in_one_place(self, slot: int, other: int) -> bool:
        """Whether two slots were last seen where they have one memory tier."""
        if self.always_sends or not {slot, other} <= set(self._last):
            return False
        here, there = (self._last[one].place(self.rules.place_names) for one in (slot, other))
        return here == there

    def _take_slots(self) -> None:
        """Comes to the number of slots that is asked for, once nothing moves."""
        asked, wished = self._slots_asked, self._wished
        if asked is not None and self.state.scaling is None and not self.state.moves:
            self._slots_asked = None
            if asked != self.state.routing.slots:
                join, streams = self.spec.sliced, len(self.spec.lanes.streams)
                copies = 1 if join is None else join.slicing.copies
                routing = self.state.routing.resized(asked, copies)
                self.state, references = self.checkpoint.rerouted(self.state, streams, routing)
                self._upkeep.references = references
        if wished is not None:
            self._wished = self._slots_asked = None
            self.state = rescale(
                self.state, wished.slots, passive=wished.passive, reason=wished.reason
            )
            for slot in range(self.state.routing.slots):
                self.memory.setdefault(slot, self.spec.adapt.memory_of(slot))
        self._place_anchors()

    def _place_anchors(self) -> None:
        slots = self.state.routing.slots
        if not self._anchored or (self.anchors is not None and self.anchors.slots == slots):
            return
        if self.anchors is not None:
            self.anchors.close()
        self.anchors = Anchors(self._user, slots)

    def _placed(self, rows: DataFrame, slot: Column, *, first: bool = False) -> DataFrame:
        """Rows where a slot is, whichever it is, for what runs beside the batches."""
        if self.anchors is not None:
            return self.anchors.exchange(rows, slot)
        # In one process every place is the right one.
        return rows if first else rows.repartition(1)

    def _reach(self, move: GroupMove, step: int) -> None:
        if not self.spec.faults.steps:
            return
        pids = {"driver": os.getpid()}
        for who, slot in (("sender", move.sender), ("receiver", move.receiver)):
            if slot in self._last:
                pids[who] = int(self._last[slot].worker.split("/")[1])
        self.spec.faults.reach_step(move.move, step, pids)

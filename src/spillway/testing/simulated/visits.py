"""The stage of a time-sliced join: all rows visit all slots, wave by wave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.coordinator.batch.plan import BatchPlan
from spillway.ids import SlotId
from spillway.operators.input import MARKER, null_number
from spillway.operators.theta.combinations import SLOT, manifest_in
from spillway.operators.theta.sliced import Probing, SlicedJoin
from spillway.routing.groups import group_of
from spillway.slot import identity
from spillway.slot.visits import LaterVisit, first_visit
from spillway.testing.simulated.rows import GROUPS, Exchanged, Row, exchanged, matches_nothing
from spillway.testing.simulated.sliced import Sliced
from spillway.testing.simulated.stages import SimulatedStage, TaskReport


class VisitedStage(SimulatedStage):
    """Slots that all rows visit."""

    subject: Sliced

    #: Rows that visited slots, stored there or not.
    visits = 0

    def probing(self, plan: BatchPlan) -> Probing:
        """The order in which rows visit slots."""
        return self.conductor.coordinator.probing(plan)

    @property
    def waves(self) -> int:
        """One for each stream but the first."""
        return len(self.streams) - 1

    def task(
        self,
        plan: BatchPlan,
        wave: int,
        given: Sequence[Row] | Sequence[pa.RecordBatch],
        partition: int,
        report: Callable[[TaskReport], None],
    ) -> Iterator[pa.RecordBatch]:
        """One visit to one slot."""
        number, probing = next(self.attempts), self.probing(plan)
        if wave == 1:
            rows = [row for row in given if isinstance(row, Row)]
            came = self._visiting(rows, plan, partition, probing.sources_at(partition), number)
        else:
            sent = [batch for batch in given if isinstance(batch, pa.RecordBatch)]
            came = self._sent(sent, partition, probing.sources_at(partition), number)
        slot, mine = identity.find_visited(came, first_visit=wave == 1)
        if slot is None:
            return iter(())
        if wave == 1:
            return first_visit(mine, self.attempted(plan, slot, report), probing)
        join = self.first_operator()
        assert isinstance(join, SlicedJoin)
        job, store = self.job(plan, slot), self.swept_store(plan, slot)
        return LaterVisit(wave, job, join, probing, store, report).run(mine)

    def _visiting(
        self,
        rows: Sequence[Row],
        plan: BatchPlan,
        partition: int,
        visiting: Sequence[int],
        attempt: int,
    ) -> list[pa.RecordBatch]:
        """The rows of a slot's first visit: those that look for partners, and those it stores."""
        owned = set(plan.routing.groups_of(SlotId(partition)))
        found = [Exchanged(MARKER, partition)]
        for row in rows:
            if matches_nothing(self.subject, row):
                if partition == 0:
                    found.append(Exchanged(null_number(row.stream), 0, row))
                continue
            place = self._place(row)
            if row.stream in visiting or self._groups(place) & owned:
                found.append(Exchanged(row.stream, place, row))
        self.visits += len(found) - 1
        return [_visiting_slot(batch, partition) for batch in exchanged(found, attempt)]

    def _groups(self, place: int) -> set[int]:
        """The groups of all copies of a place in time."""
        slicing = self.subject.slicing
        places = [slicing.copied(np.array([place], np.uint32), k)[0] for k in range(slicing.copies)]
        return set(group_of(np.array(places, np.uint32), GROUPS).tolist())

    def _place(self, row: Row) -> int:
        return int(self.subject.slicing.places(row.stream, np.array([row.at]))[0])

    def _sent(
        self, came: Sequence[pa.RecordBatch], slot: int, visiting: Any, attempt: int
    ) -> list[pa.RecordBatch]:
        """What a slot gets from the exchange between two visits, in any order."""
        own = [b for b in came if manifest_in(b) and b.column(0)[0].as_py() == slot]
        assert len(own) == 1
        rest = [b for b in came if manifest_in(b) is None and b.column(1)[0].as_py() in visiting]
        order = np.random.default_rng(attempt).permutation(len(rest) + 1)
        return [_visiting_slot([*rest, *own][at], slot, instead=True) for at in order]


def _visiting_slot(batch: pa.RecordBatch, slot: int, *, instead: bool = False) -> pa.RecordBatch:
    """The rows with the slot that they visit in their first column, or instead of the one there."""
    column = pa.array(np.full(batch.num_rows, slot, np.int32))
    if instead:
        return batch.set_column(0, batch.schema.names[0], column)
    return pa.RecordBatch.from_arrays([column, *batch.columns], names=[SLOT, *batch.schema.names])

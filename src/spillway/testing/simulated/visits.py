"""The stage of a time-sliced join: all rows visit all slots, wave by wave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.coordinator.batch.plan import BatchPlan
from spillway.operators.theta.combinations import manifest_in
from spillway.operators.theta.sliced import Probing, SlicedJoin
from spillway.routing.groups import group_of
from spillway.slot.job import SlotJob
from spillway.slot.visits import LaterVisit, first_visit
from spillway.testing.simulated.rows import GROUPS, Row, exchanged, matches_nothing
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
        slot: int,
        report: Callable[[TaskReport], None],
    ) -> Iterator[pa.RecordBatch]:
        """One visit to one slot."""
        number, probing = next(self.attempts), self.probing(plan)
        if wave == 1:
            attempt = self.attempted(plan, slot, report)
            rows = [row for row in given if isinstance(row, Row)]
            sources = probing.sources_at(slot)
            return first_visit(self._visiting(rows, attempt.job, sources, number), attempt, probing)
        join = self.first_operator()
        assert isinstance(join, SlicedJoin)
        job, store = self.job(plan, slot), self.swept_store(plan, slot)
        came = [batch for batch in given if isinstance(batch, pa.RecordBatch)]
        visit = LaterVisit(wave, job, join, probing, store, report)
        return visit.run(self._sent(came, slot, probing.sources_at(slot), number))

    def _visiting(
        self, rows: Sequence[Row], job: SlotJob, visiting: Sequence[int], attempt: int
    ) -> list[pa.RecordBatch]:
        """The rows of a slot's first visit: those that look for partners, and those it stores."""
        nulls = [matches_nothing(self.subject, row) for row in rows]
        h = [0 if null else self._place(row) for row, null in zip(rows, nulls, strict=True)]
        first = job.slot == 0
        mine = [at for at in range(len(rows)) if self._comes(rows[at], h[at], job, visiting)]
        mine = [at for at in mine if not nulls[at]] + [
            at for at, null in enumerate(nulls) if null and first
        ]
        self.visits += len(mine)
        some = ([rows[at] for at in mine], [h[at] for at in mine], attempt)
        return exchanged(*some, [nulls[at] for at in mine])

    def _comes(self, row: Row, place: int, job: SlotJob, visiting: Sequence[int]) -> bool:
        slicing = self.subject.slicing
        places = [slicing.copied(np.array([place], np.uint32), k)[0] for k in range(slicing.copies)]
        groups = set(group_of(np.array(places, np.uint32), GROUPS).tolist())
        return row.stream in visiting or bool(groups & set(job.owned))

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
        return [[*rest, *own][at] for at in order]

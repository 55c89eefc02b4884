"""Counts which run files are named, and finds those that a commit stops naming."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.effects import DiscardFiles
from spillway.metrics.record import SlotRecord
from spillway.protocols.move import Phase


@dataclass(frozen=True)
class References:
    """The number of slot manifests that name each run file."""

    counts: Mapping[str, int] = field(default_factory=dict)

    def updated(self, records: Sequence[SlotRecord]) -> tuple[References, tuple[str, ...]]:
        """Returns the counts after a batch, and the files that no manifest names any more."""
        counts = dict(self.counts)
        for record in records:
            for name in record.added:
                counts[name] = counts.get(name, 0) + 1
            for name in record.dropped:
                counts[name] = counts.get(name, 1) - 1
        gone = tuple(sorted(name for name, count in counts.items() if count <= 0))
        for name in gone:
            del counts[name]
        return References(counts), gone

    def after(
        self,
        plan: BatchPlan,
        records: Mapping[int, SlotRecord],
        attempts: Iterable[SlotRecord],
        state: Committed,
    ) -> tuple[References, DiscardFiles]:
        """Returns the counts after a commit, and the files to delete, of other attempts too."""
        references, gone = self.updated(list(records.values()))
        kept = {record.manifest for record in records.values()}
        repeated = [record for record in attempts if record.manifest not in kept]
        unnamed = {name for record in repeated for name in record.added}
        runs = (*gone, *sorted(unnamed - set(references.counts)))
        # A removed slot was drained, so its last manifest names no run.
        over = [record for record in records.values() if record.slot >= state.routing.slots]
        arrived = [move.part for move in plan.moves if move.phase is Phase.REACTIVATING]
        named = [*plan.manifests, *arrived, *(record.manifest for record in (*repeated, *over))]
        return references, DiscardFiles(runs, tuple(name for name in named if name))

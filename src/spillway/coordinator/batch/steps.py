"""Which steps of the papers' protocols a batch takes (DCAPE-TR 5.1, PLANS 3.2).

Rolling back a move, or giving up a track, is not a step of either paper; here it is the ninth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spillway.coordinator.batch.plan import BatchPlan
from spillway.metrics.record import SlotRecord
from spillway.protocols.move import GroupMove, Phase

#: The step that a batch answers, by the phase it ran in.
_IN_BATCH = {
    Phase.COMPUTING: 2,
    Phase.DEACTIVATING: 4,
    Phase.REACTIVATING: 8,
    Phase.DELETING: 5,
    Phase.ROLLING_BACK: 9,
}
#: The step of a parallel track's sender whose old rows are gone.
_PURGED = 4
#: The step that is due when a batch is committed, by the phase after it.
_AFTER_BATCH = {Phase.COMPUTING: 1, Phase.DEACTIVATING: 3, Phase.DUPLICATING: 3}


def steps_in_batch(
    plan: BatchPlan, records: Mapping[int, SlotRecord]
) -> Iterator[tuple[GroupMove, int]]:
    """Yields the moves of a batch, each with the step that the batch answers."""
    for move in plan.moves:
        step = _PURGED if move.move in records[move.sender].purged else _IN_BATCH.get(move.phase)
        if step is not None:
            yield move, step


def steps_after_batch(moves: Iterable[GroupMove]) -> Iterator[tuple[GroupMove, int]]:
    """Yields the moves after a commit, each with the step that is due now."""
    for move in moves:
        if (step := _AFTER_BATCH.get(move.phase)) is not None:
            yield move, step

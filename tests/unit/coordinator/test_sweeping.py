"""Which slots sweep the files of dead attempts from their hosts, and when."""

from __future__ import annotations

from dataclasses import replace

from spillway.coordinator.batch.committed import initial
from spillway.coordinator.batch.plan import SWEEP_BATCHES, BatchPlan, plan_batch
from spillway.routing.routing import Routing


def swept(plan: BatchPlan) -> list[int]:
    return [slot for slot in range(2) if plan.sweeps(slot)]


def test_one_slot_at_a_time_sweeps_its_host() -> None:
    state = replace(initial(Routing.even(4, 2), 1), batch=SWEEP_BATCHES - 1)
    assert swept(plan_batch(state, SWEEP_BATCHES)) == [1]
    assert swept(plan_batch(state, SWEEP_BATCHES, sweep=True)) == [0, 1]
    later = replace(state, batch=2 * SWEEP_BATCHES - 1)
    assert swept(plan_batch(later, 2 * SWEEP_BATCHES)) == [0]
    assert swept(plan_batch(replace(state, batch=9), 10)) == []

"""Builds the `SlotJob` of one slot for one batch, from the plan and the settings."""

from __future__ import annotations

from spillway.coordinator.batch.plan import BatchPlan
from spillway.ids import SlotId
from spillway.operators.equi.tree import TreeOperator
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.policies.local.controller import LocalController
from spillway.settings import Adapt, parse_bytes
from spillway.slot.job import SlotJob
from spillway.slot.limits import Limits
from spillway.slot.orders import pinned_groups


def job_of(
    plan: BatchPlan,
    slot: SlotId,
    adapt: Adapt,
    streams: tuple[StreamColumns, ...],
    *,
    attempt: str,
    worker: str,
) -> SlotJob:
    """Builds the job of a slot; `attempt` distinguishes its files from other attempts."""
    local = plan.note.local
    return SlotJob(
        batch=plan.batch,
        slot=slot,
        groups=plan.routing.groups,
        streams=streams,
        watermark_us=plan.watermark_us,
        piece_bytes=parse_bytes("piece_bytes", adapt.piece_bytes),
        attempt=attempt,
        worker=worker,
        limits=Limits(
            plan.memory_bytes[slot],
            local.spill_fraction,
            local.low_water,
            local.calm_batches,
            pinned_groups(plan.orders.get(slot, ())),
            plan.t_gap_of(slot),
        ),
        cleanup=plan.cleanup,
        orders=plan.orders.get(slot, ()),
        owned=plan.routing.groups_of(slot),
        budget=plan.budget_of(slot),
        now_s=plan.clock_s,
        shape=str(plan.shape_of(slot) or ""),
        is_round=plan.is_round,
    )


def controller_of(plan: BatchPlan, slot: SlotId) -> LocalController:
    """Returns the local controller of a slot."""
    local = plan.note.local
    return LocalController(
        local.victims, local.amortised, local.inactive_batches, local.seed + slot
    )


def operator_of(
    plan: BatchPlan,
    slot: SlotId,
    adapt: Adapt,
    streams: tuple[StreamColumns, ...],
    operator: Operator,
) -> Operator:
    """Returns the operator of a slot: slots may have different join shapes."""
    shape = plan.shape_of(slot)
    return operator if shape is None else TreeOperator(streams, shape, adapt.block_rows)

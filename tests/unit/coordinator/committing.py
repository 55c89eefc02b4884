"""Committed states and the records of slots, for tests of what is decided between batches."""

from __future__ import annotations

from dataclasses import replace

from spillway.coordinator.batch.commit import commit_batch
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.plan import plan_batch
from spillway.metrics.record import SlotRecord

GROUPS = 8


def record(slot: int, memory: int = 0, **values: object) -> SlotRecord:
    none = (0, 0)
    return SlotRecord(
        *(0, slot, f"manifests/{slot}", none, none, 0, (None, None), none, (memory, 0), none, "w"),
        **values,
    )


def records(*memory: int, **columns: list) -> dict[int, SlotRecord]:
    """One record per slot with so many bytes in memory, and other values in columns."""
    made = {slot: record(slot, held) for slot, held in enumerate(memory)}
    for name, values in columns.items():
        made = {s: replace(made[s], **{name: value}) for s, value in enumerate(values)}
    return made


def after(state: Committed, answers: dict[int, SlotRecord], seconds: float = 1.0) -> Committed:
    """The state after one more batch, before anything is begun."""
    return commit_batch(state, plan_batch(state, state.batch + 1), answers, (None, None), seconds)

"""Measurements of the slots between evaluations, and the view that policies get.

The query's own clock, which stops between batches, measures work, so utilisation compares slots
within the same batches. `elapsed_s` is stream time, from batch to batch, for comparison with
windows and rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from spillway.coordinator.batch.committed import Committed, Sample, wants_shape
from spillway.metrics.record import SlotRecord
from spillway.metrics.view import NORMAL, RELOCATING, RESHAPING, ClusterView, SlotView
from spillway.policies.cluster.cycle import Progress
from spillway.protocols.engine import busy

_Number = TypeVar("_Number", int, float)


def sampled(state: Committed, records: Mapping[int, SlotRecord], period_s: float) -> Committed:
    """Returns the state with a batch in its sample; `period_s` 0: the period is not known."""
    sample, slots = state.sample, range(state.routing.slots)
    made = _added(sample.rows_out, [records[s].rows_out - records[s].rows_cleaned for s in slots])
    took = _added(sample.rows_in, [sum(records[s].rows_in) for s in slots])
    busy_s = _added(sample.busy_s, [records[s].busy_s for s in slots])
    peak_s = sample.peak_s + max(records[s].busy_s for s in slots)
    measured = replace(sample, rows_out=made, rows_in=took, busy_s=busy_s, peak_s=peak_s)
    return replace(state, sample=replace(measured, elapsed_s=sample.elapsed_s + period_s))


def _added(before: Sequence[_Number], more: Sequence[_Number]) -> tuple[_Number, ...]:
    """Returns the sums by slot; a new slot had nothing before, and a removed one is dropped."""
    sums = tuple(old + new for old, new in zip(before, more, strict=False))
    return sums + tuple(more[len(before) :])


def measured_anew(state: Committed, state_bytes: int, progress: Progress) -> Committed:
    """Returns the state with a new measurement, after an evaluation."""
    none = (0,) * state.routing.slots
    sample = Sample(state.clock_s, state.batch, state_bytes, none, progress=progress)
    return replace(state, sample=sample)


def rescaled(state: Committed, slots: int) -> Sample:
    """Returns the sample after moves other than those of a FLUX cycle began, which end it.

    If nothing was measured, the measurement starts now.
    """
    sample = state.sample
    if not sample.busy_s:
        sample = replace(sample, clock_s=state.clock_s, batch=state.batch)
    rows_out = (*sample.rows_out, *(0 for _ in range(slots)))[:slots]
    return replace(sample, rows_out=rows_out, progress=Progress(tuner=sample.progress.tuner))


def only(sample: Sample, slots: int) -> Sample:
    """Returns the sample of the first slots."""
    by_slot = {name: getattr(sample, name)[:slots] for name in ("rows_out", "busy_s", "rows_in")}
    return replace(sample, **by_slot)


def view_of(
    state: Committed,
    records: Mapping[int, SlotRecord],
    limits: Mapping[int, int | None],
    place_names: int,
    *,
    stalled: bool,
) -> ClusterView:
    """Returns the view of the slots for policies.

    `place_names` is how many names of a worker identify its memory tier.
    """
    counts, taken = state.routing.counts(), busy(state.moves)
    slots = tuple(
        SlotView(
            slot,
            sum(records[slot].state_bytes),
            sum(records[slot].disk_bytes),
            limits.get(slot),
            counts[slot],
            state.sample.rows_out[slot],
            # A slot completes a spill within a batch, so none is found in that mode.
            RELOCATING if slot in taken else _mode(state, slot, records[slot]),
            records[slot].profile,
            state.sample.busy_s[slot],
            state.sample.rows_in[slot],
            _made_bytes(records[slot]),
            records[slot].place(place_names),
        )
        for slot in range(state.routing.slots)
    )
    # Forced spills that are no longer on disk, expired or back in memory, do not count.
    forced = min(state.forced_bytes, sum(slot.disk_bytes for slot in slots))
    growth = sum(slot.memory_bytes + slot.disk_bytes for slot in slots) - state.sample.state_bytes
    spans = state.clock_s - state.sample.clock_s, state.sample.peak_s, state.sample.elapsed_s
    return ClusterView(slots, max(0, growth), forced, *spans, stalled)


def _mode(state: Committed, slot: int, record: SlotRecord) -> str:
    """Returns the mode of a slot that takes part in no move.

    A slot that changes its shape is left alone until it has the new states: it would keep the old
    shape while groups leave it, and its present size does not predict its future one. If memory is
    short, or the slot count changes, nothing waits for that.
    """
    if state.scaling is not None or any(record.disk_bytes):
        return NORMAL
    return RESHAPING if wants_shape(state, slot, record) or record.lacking else NORMAL


def _made_bytes(record: SlotRecord) -> tuple[tuple[str, int], ...]:
    made = len(record.made)
    return tuple(
        zip(record.made, record.state_bytes[len(record.state_bytes) - made :], strict=True)
    )

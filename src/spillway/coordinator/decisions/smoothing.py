"""Workload smoothing and passive adjustment (PSP section 6): where to build future slices.

Slices ahead of the newest rows are empty, so any slot may build them. After every batch, the
coordinator compares the slots by their rows, in memory and on disk, weighted by the time per row.
It routes the next slices so that all slots have the same work. No row moves.

A passive change of the slot count also reroutes groups with rows: if streams have different
windows, few groups are ahead in all of them. From the next batch on, new slots build their share of
the slices, and retiring slots none. Visitors find the rows where they are
(policies/ring/covering.py). A retiring slot is empty when the watermark has passed its newest row by
the window. That takes a window plus a lateness of stream time, which half of the slices cover, or longer
while a stream is silent. New slots have their share of the rows after the same time.
`coordinator/decisions/adaptation.py` removes empty slots.

Copies of slices (CTR) stay where the routing has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spillway.coordinator.batch.committed import Committed
from spillway.metrics.record import SlotRecord
from spillway.policies.ring.slicing import smoothed
from spillway.routing.slices import Slicing

#: Future slices placed per slot; at most a quarter of all, since half of them may be live.
_AHEAD = 4
#: Slots whose times per row differ by less than this factor count as equally fast.
_ALIKE = 1.3


def smooth(state: Committed, records: Mapping[int, SlotRecord], slicing: Slicing) -> Committed:
    """Returns the state with a routing for future slices; the same state if all is well.

    While groups move, for another slot count or not, the moves decide who has what.
    """
    scaling = state.scaling
    if state.moves or slicing.copies > 1 or (scaling is not None and not scaling.passive):
        return state
    slots = state.routing.slots if scaling is None else scaling.slots
    state = _shared_out(state, slots)
    newest = [time for time in state.max_times if time is not None]
    if len(newest) < len(state.max_times):
        return state
    ahead = Counter(
        group
        for stream, time in enumerate(newest)
        for group in _after(slicing, stream, time, slots)
    )
    # A group has a slice of every stream: it is ahead when all of them are.
    shared = [group for group, times in ahead.items() if times == len(newest)]
    held = [
        float(sum(records[slot].held_rows)) if slot in records else 0.0
        for slot in range(state.routing.slots)
    ]
    rows = _by_group(state.routing.table, held, shared)
    expected = 2 * sum(held) / slicing.slices
    found = smoothed(
        state.routing.table, rows, shared, expected, slots, slowness=_slowness(records, slots)
    )
    return state if found is None else replace(state, routing=state.routing.changed(found.to))


def _shared_out(state: Committed, slots: int) -> Committed:
    """Returns the state in which all of `slots` slots build slices, and no others.

    Slots without groups get their share, in turns; so do the groups of retiring slots.
    """
    table = state.routing.table
    new = set(range(slots)) - set(table)
    to = {
        group: group % slots
        for group, slot in enumerate(table)
        if slot >= slots or group % slots in new
    }
    return replace(state, routing=state.routing.changed(to)) if to else state


def _after(slicing: Slicing, stream: int, time: int, slots: int) -> tuple[int, ...]:
    """Returns the groups of the next slices of a stream, in order."""
    first = time // slicing.widths_us[stream] + 1
    count = min(_AHEAD * slots, slicing.slices // 4)
    return tuple(bucket % slicing.slices for bucket in range(first, first + count))


def _by_group(table: Sequence[int], held: Sequence[float], empty: Sequence[int]) -> list[float]:
    """Spreads each slot's rows over its groups; future ones have none."""
    coming = set(empty)
    there = [0] * len(held)
    for group, slot in enumerate(table):
        there[slot] += group not in coming
    return [
        0.0 if group in coming else held[slot] / there[slot] for group, slot in enumerate(table)
    ]


def _slowness(records: Mapping[int, SlotRecord], slots: int) -> list[float]:
    """Returns the time per row in each slot, relative to the fastest.

    Small differences are ignored. A slot's time includes its other work, so one that is less busy
    than most is not slow.
    """
    known = [records.get(slot) for slot in range(slots)]
    busy = [0.0 if one is None else one.busy_s for one in known]
    taken = [0.0 if one is None else one.busy_s / max(sum(one.held_rows), 1) for one in known]
    least, usual = min((one for one in taken if one > 0), default=1.0), sum(busy) / slots
    return [
        one / least if one > _ALIKE * least and spent > usual else 1.0
        for one, spent in zip(taken, busy, strict=True)
    ]

"""Workload smoothing and passive adjustment (PSP section 6): where slices to come are built.

Slices behind the newest rows stay where they are; those ahead of them are empty, and may be built in any
slot. After every batch the slots are compared by the rows that they have, in memory and on disk, since
both are visited, weighed by what a row takes there, and the next slices are routed so that all have the
same work. No row moves.

A passive change of the number of slots is the same over another number of slots, and begins with more
than slices to come: where streams have other windows, few groups are to come in all of them at a time.
From the next batch on new slots build the slices of their share of the groups, and slots that are to go
build none, whether there are rows in these groups or not. The rows stay where they are, and visitors
find them there (policies/ring/covering.py): routing only says where new rows are stored. So a slot that
is to go need not wait for a turn of the slices, however late rows come and however far apart streams
are: its newest row leaves the window when the watermark, which is the lateness behind the slowest
stream, has passed it by the window. With streams that keep step that is a window and a lateness of
their time after the change, half a turn of the slices; with a stream that rests it takes for ever. A
new slot has its share of the rows after as long. `coordinator/adaptation.py` lets slots go that have no
row left.

Where slices are stored more than once (CTR) their copies stay where the routing has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spillway.coordinator.committed import Committed
from spillway.metrics.record import SlotRecord
from spillway.policies.ring.slicing import smoothed
from spillway.routing.slices import Slicing

#: Slices that are placed ahead for each slot; a quarter of all at most, since half of them may be live.
_AHEAD = 4
#: Slots whose rows take less than so many times as long as those of others are taken for equally fast.
_ALIKE = 1.3


def smooth(state: Committed, records: Mapping[int, SlotRecord], slicing: Slicing) -> Committed:
    """The state with a routing for the slices to come; the same one where all is well.

    While groups move, for another number of slots or not, who has what is decided by that.
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
    # A group has a slice of every stream: it is to come when all of them are.
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
    """The state in which all of so many slots build slices, and none beyond them.

    Slots that have no groups get theirs, in turns; so do those of slots that are to go.
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
    """The groups of the slices of a stream that come next, in order."""
    first = time // slicing.widths_us[stream] + 1
    count = min(_AHEAD * slots, slicing.slices // 4)
    return tuple(bucket % slicing.slices for bucket in range(first, first + count))


def _by_group(table: Sequence[int], held: Sequence[float], empty: Sequence[int]) -> list[float]:
    """Rows of groups such that each slot has what it has, and those to come have none."""
    coming = set(empty)
    there = [0] * len(held)
    for group, slot in enumerate(table):
        there[slot] += group not in coming
    return [
        0.0 if group in coming else held[slot] / there[slot] for group, slot in enumerate(table)
    ]


def _slowness(records: Mapping[int, SlotRecord], slots: int) -> list[float]:
    """What a row takes in each slot, over the fastest; those that are about as fast are alike.

    What a slot does besides is in its time too, so one that is less busy than most is not slow.
    """
    known = [records.get(slot) for slot in range(slots)]
    busy = [0.0 if one is None else one.busy_s for one in known]
    taken = [0.0 if one is None else one.busy_s / max(sum(one.held_rows), 1) for one in known]
    least, usual = min((one for one in taken if one > 0), default=1.0), sum(busy) / slots
    return [
        one / least if one > _ALIKE * least and spent > usual else 1.0
        for one, spent in zip(taken, busy, strict=True)
    ]

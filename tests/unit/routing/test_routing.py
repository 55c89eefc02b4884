from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from spillway.errors import SettingsError
from spillway.ids import HASH_END, SlotId
from spillway.routing.groups import group_bounds, group_of
from spillway.routing.routing import Routing, decode_table, encode_table
from spillway.routing.slices import interleaved


@pytest.mark.parametrize("groups", [1, 3, 7, 256, 1000, 65_536])
def test_group_bounds_are_where_the_group_changes(groups: int) -> None:
    bounds = group_bounds(groups)
    assert bounds[0] == 0
    assert bounds[-1] == HASH_END
    firsts = bounds[:-1].astype(np.uint32)
    assert group_of(firsts, groups).tolist() == list(range(groups))
    lasts = (bounds[1:] - 1).astype(np.uint32)
    assert group_of(lasts, groups).tolist() == list(range(groups))


@pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2), (4, 1), (1, 7), (6, 4)])
def test_resizing_is_even_and_moves_only_what_it_must(before: int, after: int) -> None:
    old = Routing.even(64, before)
    new = old.resized(after)
    held = [len(new.groups_of(SlotId(s))) for s in range(after)]
    assert sum(held) == 64
    assert max(held) - min(held) <= 1
    moved = sum(a != b for a, b in zip(old.table, new.table, strict=True))
    share = 64 // after
    least = sum(
        max(0, len(old.groups_of(SlotId(s))) - share - 1) for s in range(min(before, after))
    )
    gone = sum(len(old.groups_of(SlotId(s))) for s in range(after, before))
    assert least + gone <= moved <= least + gone + after
    assert new.version == old.version + 1


@pytest.mark.parametrize("copies", [2, 3, 4])
def test_resizing_keeps_copies_of_a_slice_in_different_slots(copies: int) -> None:
    slices = 25
    first = Routing(0, 4, interleaved(copies * slices, 4, copies))
    for path in ((2, 3, 4), (3, 5, 2, 8), (1, 4), (7, 6, 5, 4, 3), (9, 2, 9)):
        routing = first
        for slots in path:
            before, routing = routing, routing.resized(slots, copies)
            held = routing.counts()
            assert max(held) - min(held) <= 1
            stayed = sum(a == b for a, b in zip(before.table, routing.table, strict=True))
            if slots >= copies:
                for one in range(slices):
                    assert len(set(routing.table[one::slices])) == copies
                if before.slots >= copies:
                    kept = min(before.slots, slots) / max(before.slots, slots)
                    assert stayed >= 0.8 * kept * routing.groups


def test_ranges_of_all_slots_cover_every_hash_once() -> None:
    routing = Routing.even(10, 3).resized(4)
    ranges = sorted(
        (r.lo, r.hi) for s in range(routing.slots) for r in routing.ranges_of(SlotId(s))
    )
    assert ranges[0][0] == 0
    assert ranges[-1][1] == HASH_END
    assert all(a[1] == b[0] for a, b in pairwise(ranges))


def test_table_survives_the_log() -> None:
    table = Routing.even(33, 4).resized(3).table
    assert decode_table(encode_table(table)) == table


def test_more_slots_than_groups_is_refused() -> None:
    with pytest.raises(SettingsError, match="8 slots cannot share 4 groups"):
        Routing.even(4, 8)


@pytest.mark.parametrize("slot", [-1, 2])
def test_route_to_a_slot_that_is_not_there_is_refused(slot: int) -> None:
    told = f"the routing sends a group to slot {slot}, but the slots are 0 to 1"
    with pytest.raises(SettingsError, match=told):
        Routing(0, 2, (0, 1, slot))

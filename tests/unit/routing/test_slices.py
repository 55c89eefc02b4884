from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from spillway.errors import SettingsError
from spillway.policies.ring.covering import covers, visited
from spillway.routing.groups import group_of
from spillway.routing.intervals import Intervals
from spillway.routing.slices import Slicing, interleaved, slicing_for

TIMES = np.array([-(10**9), -17, -1, 0, 1, 16, 17, 10**9, 1_760_000_000_123_456], np.int64)


def as_spark(expression: str, t: int):
    """What Spark makes of the few things that our expressions are written with."""
    text = re.sub(r"(\d+)L", r"\1", expression).replace(" div ", " // ").replace("if(", "choose(")
    text = re.sub(r"^cast\((.*) as int\)$", r"\1", text)
    known = {
        "t": t,
        "pmod": lambda a, b: a % b,
        "shiftright": lambda a, b: a >> b,
        "choose": lambda c, a, b: a if c else b,
        "sequence": lambda a, b: list(range(a, b + 1)),
    }
    return eval(text, {}, known)


@pytest.mark.parametrize("groups", [4, 7, 256])
@pytest.mark.parametrize("width", [1, 17, 10**7, 10**12])
def test_group_of_a_place_is_its_bucket_round_the_groups(groups: int, width: int) -> None:
    slicing = Slicing((width,), groups)
    found = group_of(slicing.places(0, TIMES), groups).tolist()
    assert found == [int(t) // width % groups for t in TIMES]


def test_places_ascend_with_time_within_a_period() -> None:
    slicing = Slicing((10**12,), 256)
    times = np.sort(np.random.default_rng(1).integers(0, slicing.period_us(0), 1000))
    places = slicing.places(0, times).astype(np.int64)
    assert (np.diff(places) >= 0).all()
    assert slicing.shift(0) > 0


def test_rows_in_the_places_of_a_range_are_all_rows_in_the_range() -> None:
    rng = np.random.default_rng(2)
    for width, groups in ((3, 8), (10, 7), (10**12, 256)):
        slicing = Slicing((width,), groups)
        period = slicing.period_us(0)
        times = rng.integers(-period, 2 * period, 400)
        places = slicing.places(0, times).astype(np.int64)
        first = rng.integers(-period, period, 50)
        last = first + rng.integers(0, 2 * period, 50)
        ranges = slicing.ranges(0, first, last)
        for at in range(len(first)):
            low, high = ranges.first[at], ranges.last[at]
            inside = (places >= low) & (places <= high)
            if low > high:
                inside = (places >= low) | (places <= high)
            inside |= ranges.everywhere[at]
            assert not np.any((times >= first[at]) & (times <= last[at]) & ~inside)


def test_copies_of_a_slice_are_in_planes_of_their_own() -> None:
    slicing = Slicing((10,), 12, copies=3)
    first = slicing.places(0, TIMES)
    for copy in range(3):
        there = slicing.places(0, TIMES, copy)
        assert (slicing.copied(first, copy) == there).all()
        assert (group_of(there, 12) // 4 == copy).all()


def test_live_rows_cover_half_of_the_groups() -> None:
    slicing = slicing_for([600_000_000, 60_000_000], [0, 60_000_000], 64)
    for stream, live_us in enumerate((600_000_000, 120_000_000)):
        places = slicing.places(stream, np.arange(0, live_us, 100_000))
        assert len(np.unique(group_of(places, 64))) == 32


def test_copies_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingsError, match="8 groups cannot hold 3 copies"):
        Slicing((1,), 8, copies=3)


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_intervals_in_spark_are_those_of_numpy(stream: int) -> None:
    intervals = Intervals(17, 1, (5, 40, 1))
    which, numbers = intervals.copies(stream, TIMES)
    for at, t in enumerate(TIMES):
        mine = numbers[which == at].tolist()
        assert as_spark(intervals.sql(stream, "t"), int(t)) == mine
        assert len(mine) <= intervals.copies_of_each(stream)


@pytest.mark.parametrize("copies", [3, 10, 64])
@pytest.mark.parametrize("windows", [(5, 4000, 100), (900, 900, 1), (1, 1, 1)])
def test_shortest_intervals_are_those_of_so_many_copies(
    windows: tuple[int, ...], copies: int
) -> None:
    for master in range(3):
        shortest = Intervals(1, master, windows).shortest_us(copies)
        most = []
        for length in (shortest, max(1, shortest - 1)):
            intervals = Intervals(length, master, windows)
            most.append(intervals.copies_of_each(intervals.most_copied()))
            assert most[-1] == max(map(intervals.copies_of_each, range(3)))
        assert most[0] <= copies
        assert most[1] > copies or shortest == 1


@pytest.mark.parametrize("copies", [1, 2, 4])
@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_cover_has_every_slice_once_in_few_slots(slots: int, copies: int) -> None:
    table = interleaved(32, slots, copies)
    for chosen in (one for batch in range(7) for one in covers(table, copies, 3, batch)):
        assert [group % (32 // copies) for group in chosen] == list(range(32 // copies))
        assert len(visited(table, chosen, {})) <= max(1, slots - copies + 1)


@pytest.mark.parametrize(("slots", "copies"), [(2, 2), (3, 2), (4, 2), (6, 2), (6, 3), (8, 2)])
def test_covers_of_streams_share_the_work_of_a_batch_among_all_slots(
    slots: int, copies: int
) -> None:
    table = interleaved(192, slots, copies)
    work = Counter(table[group] for one in covers(table, copies, copies, 5) for group in one)
    assert sorted(work) == list(range(slots))
    assert max(work.values()) <= 1.2 * min(work.values())


@pytest.mark.parametrize("slots", [2, 3, 5, 8])
def test_covers_go_round_the_slots_from_batch_to_batch(slots: int) -> None:
    # One slice more than the slots can share evenly, and a slot that has nothing.
    table = tuple(slot + (slot > 1) for slot in interleaved(2 * (5 * slots + 1), slots, 2))
    for streams in (2, 3, 4):
        found = [one for batch in range(slots) for one in covers(table, 2, streams, batch)]
        work = Counter(table[group] for one in found for group in one)
        assert sorted(work) == sorted(set(table))
        assert max(work.values()) <= 1.6 * min(work.values())


def test_slot_that_a_chosen_group_is_leaving_is_visited_too() -> None:
    assert visited((0, 0, 1, 1), (0, 1), {2: (1,), 3: (2,)}) == (0, 2)


@pytest.mark.parametrize("width", [1, 17, 10**7, 10**12])
def test_slices_in_spark_are_those_of_numpy(width: int) -> None:
    slicing = Slicing((5, width), 12, copies=3)
    for t in TIMES.tolist():
        [group] = group_of(slicing.places(1, np.array([t])), 12).tolist()
        assert as_spark(slicing.sql(1, "t"), t) == group

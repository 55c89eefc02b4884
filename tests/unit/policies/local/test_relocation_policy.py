"""Which groups a sender gives: the most productive that fit, and never more than was asked for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.metrics.groups import GroupTable
from spillway.policies.local.relocation import movers


def table(size: list[int], **columns: list[float]) -> GroupTable:
    made = replace(GroupTable.empty(len(size), 1), bytes=np.array([size], np.int64))
    for name, values in columns.items():
        made = replace(made, **{name: np.array(values, getattr(made, name).dtype)})
    return made


#: Productivity 1, 3, 2, 0 and none in memory.
GROUPS = table([100, 100, 50, 200, 0], produced=[100, 300, 100, 0, 0], average=[9, 0, 0, 90, 0])
ALL = range(5)


@pytest.mark.parametrize(
    ("wanted", "groups"),
    [
        (100, (1,)),
        (150, (1, 2)),
        (250, (1, 2, 0)),
        (1000, (1, 2, 0, 3)),
    ],
)
def test_the_most_productive_groups_go_first(wanted: int, groups: tuple[int, ...]) -> None:
    assert movers(GROUPS, ALL, wanted).groups == groups


def test_recent_productivity_counts_if_amortised() -> None:
    assert movers(GROUPS, ALL, 200, amortised=True).groups == (3,)


def test_of_groups_that_are_alike_the_lower_number_goes() -> None:
    alike = table([10, 20, 10, 20], produced=[10, 21, 11, 22])
    assert movers(alike, range(4), 40).groups == (0, 1, 2)
    other = table([10, 20, 10, 20], produced=[10, 20, 10, 40])
    assert movers(other, range(4), 40).groups == (3, 0, 2)


def test_noise_does_not_cut_neighbours_apart() -> None:
    outputs = np.random.default_rng(3).normal(1000, 80, 40).astype(int).tolist()
    noisy = table([10] * 40, produced=outputs)
    assert movers(noisy, range(40), 100).groups == tuple(range(11))


def test_only_owned_groups_go() -> None:
    assert movers(GROUPS, [3, 0, 4, 0], 100).groups == (0,)
    assert movers(GROUPS, np.array([0, 3, 4]), 100).groups == (0,)
    assert movers(GROUPS, {0, 3, 4}, 100).groups == (0,)
    assert movers(GROUPS, [], 100, least_groups=2).groups == ()


@pytest.mark.parametrize(("wanted", "groups"), [(90, (1,)), (91, (0,)), (145, (0, 1))])
def test_a_tenth_more_than_was_asked_for_may_go(wanted: int, groups: tuple[int, ...]) -> None:
    sized = table([100, 59, 50], produced=[300, 59, 0])
    assert movers(sized, range(3), wanted).groups == groups


def test_a_group_that_does_not_fit_is_passed_over_and_the_next_are_tried() -> None:
    sized = table([60, 500, 30, 40, 10, 5], produced=[600, 4000, 200, 200, 20, 1])
    # 60 fit; 500, 30 and 40 do not; 10 do; 5 do not any more.
    assert movers(sized, range(6), 66).groups == (0, 4)


@pytest.mark.parametrize("column", ["disk_rows", "generations"])
def test_groups_with_rows_on_disk_stay(column: str) -> None:
    spilled = replace(GROUPS, **{column: np.array([0, 3, 0, 0, 3])})
    assert movers(spilled, ALL, 150).groups == (2, 0)
    assert set(movers(spilled, ALL, 0, least_groups=5).groups) == {0, 2, 3}


def test_everything_takes_groups_on_disk_and_groups_without_rows_too() -> None:
    spilled = replace(GROUPS, disk_rows=np.array([0, 3, 0, 0, 3]))
    choice = movers(spilled, ALL, 0, everything=True)
    assert choice.groups == (1, 2, 0, 3, 4)
    assert choice.reason == "everything: 5 groups, 450 bytes"
    assert movers(spilled, [4], 0, everything=True).groups == (4,)


def test_a_group_far_larger_than_asked_for_stays() -> None:
    choice = movers(table([151, 200]), range(2), 100)
    assert choice.groups == ()
    assert choice.reason == "none fits: 0 groups, 0 of 100 bytes"


def test_the_smallest_group_goes_if_it_is_at_most_half_as_large_again() -> None:
    choice = movers(table([150, 200]), range(2), 100)
    assert choice.groups == (0,)
    assert choice.reason == "smallest, because none fits: 1 group, 150 of 100 bytes"


def test_groups_without_bytes_do_not_go_for_bytes() -> None:
    assert movers(table([0, 0, 100]), range(3), 100).groups == (2,)
    assert movers(table([0, 0, 900]), range(3), 100).groups == ()
    assert movers(GROUPS, ALL, 0).groups == ()


def test_a_slot_without_state_gives_groups() -> None:
    assert movers(GroupTable.empty(0), [3, 5, 7], 0, least_groups=2).groups == (3, 5)
    assert movers(GroupTable.empty(0), [3, 5], 0, everything=True).groups == (3, 5)
    assert movers(GroupTable.empty(8, 2), [3, 5, 7], 10, least_groups=2).groups == (3, 5)


def test_the_smallest_are_added_until_there_are_enough_groups() -> None:
    choice = movers(GROUPS, ALL, 100, least_groups=3)
    assert choice.groups == (1, 4, 2)
    how = "most productive first, plus the smallest to make 3 in all"
    assert choice.reason == f"{how}: 3 groups, 150 of 100 bytes"


def test_groups_that_went_for_bytes_count() -> None:
    assert movers(GROUPS, ALL, 250, least_groups=2).groups == (1, 2, 0)


@pytest.mark.parametrize("least", [0, 1, 3, 99])
def test_a_slot_keeps_a_group_unless_everything_is_asked_for(least: int) -> None:
    three = table([100, 100, 100], produced=[1, 2, 4])
    assert movers(three, range(3), 10**6, least_groups=least).groups == (2, 1)
    assert movers(three, [1], 100, least_groups=least).groups == ()


def test_the_reason_names_what_was_taken() -> None:
    assert movers(GROUPS, ALL, 240).reason == "most productive first: 3 groups, 250 of 240 bytes"


def test_many_of_a_hundred_thousand_groups_are_chosen() -> None:
    count, draw = 100_000, np.random.default_rng(7)
    sizes = draw.integers(1, 10**6, count)
    many = table(sizes.tolist(), produced=draw.integers(0, 1000, count).tolist())
    owned = np.arange(count)
    choice = movers(many, owned, int(sizes.sum()) // 3, least_groups=60_000)
    assert len(choice.groups) == 60_000
    assert len(set(choice.groups)) == 60_000


GIVEN = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 50), st.sampled_from([0, 0, 0, 2])), max_size=30
)


@settings(max_examples=100, deadline=None)
@given(GIVEN, st.data(), st.integers(0, 1000), st.integers(0, 8), st.booleans())
def test_movers_are_owned_distinct_and_within_what_was_asked_for(
    groups, data, wanted, least, everything
) -> None:
    sizes, produced, on_disk = ([row[at] for row in groups] for at in range(3))
    made = table(sizes, produced=produced, disk_rows=on_disk)
    owned = [group for group in range(len(groups)) if data.draw(st.booleans())]
    taken = movers(made, owned, wanted, least_groups=least, everything=everything).groups
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(owned)
    if everything:
        assert set(taken) == set(owned)
        return
    assert not owned or len(taken) < len(owned)
    assert not any(on_disk[group] for group in taken)
    free = sum(not on_disk[group] for group in owned)
    assert len(taken) >= min(least, free, len(owned) - 1)
    if least == 0:
        assert sum(sizes[group] for group in taken) <= 1.5 * wanted


@settings(max_examples=100, deadline=None)
@given(GIVEN, st.integers(0, 1000))
def test_movers_by_bytes_are_what_one_by_one_would_take(groups, wanted) -> None:
    # The last group has no rows, so that there is always one to keep.
    sizes, produced = zip(*((size, out) for size, out, _ in [*groups, (0, 0, 0)]), strict=True)
    made = table(list(sizes), produced=list(produced))
    best = max(2.0**-40, *made.productivity())
    rates = [math.floor(math.log2(best / max(rate, 2.0**-40))) for rate in made.productivity()]
    taken, room = [], int(wanted * 1.1)
    for group in sorted(range(len(sizes)), key=lambda group: (rates[group], group)):
        if 0 < sizes[group] <= room:
            taken.append(group)
            room -= sizes[group]
    chosen = movers(made, range(len(sizes)), wanted).groups
    assert chosen == tuple(taken) or (not taken and len(chosen) == 1)

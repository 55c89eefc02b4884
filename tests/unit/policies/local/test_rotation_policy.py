"""Groups take turns in memory: who comes in, who leaves, and when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.metrics.events import Reloaded
from spillway.metrics.record import SlotRecord
from spillway.policies.local.rotation import Rotation, TurnGaps
from spillway.slot.controller import Turn, Waiting


def waiting(*rows: tuple[int, bool, float, int, float]) -> Waiting:
    """Groups 10, 11, …: bytes, in memory or not, since when, bytes and time of waiting input."""
    columns = list(zip(*rows, strict=True)) or [()] * 5
    kinds = (np.int64, np.bool_, np.float64, np.int64, np.float64)
    size, inside, since, spooled, first = (
        np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)
    )
    return Waiting(np.arange(10, 10 + len(size)), size, inside, since, spooled, first)


#: 10 came first, then 11; 12 and 13 wait, 13 for longer; 14 has no input.
FIVE = waiting(
    (40, True, 1.0, 0, 0.0),
    (40, True, 2.0, 0, 0.0),
    (40, False, 0.0, 5, 2.5),
    (40, False, 0.0, 5, 1.5),
    (40, False, 0.0, 0, 0.0),
)


def test_the_group_whose_input_waits_longest_comes_in_for_the_one_that_came_first() -> None:
    turn = Rotation(t_gap_s=1.0).turn(FIVE, 100, now_s=3.5)
    assert turn == Turn((10,), (13,), "1 turn of 1 s: input has waited 2 s")


def test_nobody_comes_before_the_last_to_come_had_its_time() -> None:
    turn = Rotation(t_gap_s=2.0).turn(FIVE, 100, now_s=3.5)
    assert turn == Turn((), (), "the last turn was less than 2 s ago")


def test_all_turns_that_are_due_are_given_at_once_as_far_as_they_fit() -> None:
    turn = Rotation(t_gap_s=0.5).turn(FIVE, 100, now_s=3.5)
    assert (turn.leave, turn.enter) == ((10, 11), (13, 12))
    assert turn.reason == "2 turns of 0.5 s: input has waited 2 s"
    few = Rotation(t_gap_s=0.5).turn(FIVE, 79, now_s=3.5)
    assert (few.leave, few.enter) == ((10,), ())
    few = Rotation(t_gap_s=0.5).turn(without(FIVE, 0), 79, now_s=3.5)
    assert (few.leave, few.enter) == ((11,), (13,))


def without(table: Waiting, place: int) -> Waiting:
    return Waiting(*(np.delete(column, place) for column in vars(table).values()))


def test_a_group_without_input_comes_in_only_if_there_is_room() -> None:
    idle = waiting((40, True, 1.0, 0, 0.0), (40, False, 0.0, 0, 0.0))
    turn = Rotation(1.0).turn(idle, 70, now_s=99.0)
    assert turn == Turn((), (), "no input waits for a group on disk")
    turn = Rotation(1.0).turn(idle, 100, now_s=1.0)
    assert turn == Turn((), (11,), "room for 50 bytes in memory")


def test_groups_with_input_come_into_free_memory_first_and_wait_for_no_turn() -> None:
    turn = Rotation(100.0).turn(FIVE, 200, now_s=3.5)
    assert turn == Turn((), (13, 12), "room for 100 bytes in memory")


def test_memory_is_not_filled_to_the_brim_unasked() -> None:
    assert Rotation(100.0, fill=0.9).turn(FIVE, 120, now_s=3.5).enter == ()
    assert Rotation(100.0, fill=1.0).turn(FIVE, 120, now_s=3.5).enter == (13,)


def test_the_first_to_have_come_leave_when_memory_becomes_less() -> None:
    turn = Rotation(100.0).turn(FIVE, 60, now_s=3.5)
    assert turn == Turn((10,), (), "80 bytes in memory, limit 60")


def test_a_group_with_more_than_all_memory_has_it_to_itself_for_its_turn() -> None:
    large = waiting((40, True, 1.0, 0, 0.0), (40, True, 2.0, 0, 0.0), (150, False, 0.0, 5, 1.0))
    turn = Rotation(1.0).turn(large, 100, now_s=3.0)
    assert (turn.leave, turn.enter) == ((10, 11), (12,))
    more = "the group has 150 bytes, which exceeds the memory of 100"
    assert turn.reason == f"1 turn of 1 s: input has waited 2 s; {more}"
    alone = waiting((40, False, 0.0, 5, 2.9), (150, True, 3.0, 0, 0.0))
    assert Rotation(1.0).turn(alone, 100, now_s=3.0).leave == ()
    assert Rotation(1.0).turn(alone, 100, now_s=4.0) == Turn(
        (11,), (10,), "1 turn of 1 s: input has waited 1.1 s"
    )


def test_a_slot_with_all_or_no_groups_in_memory() -> None:
    assert Rotation(1.0).turn(waiting((40, True, 1.0, 0, 0.0)), 50, now_s=9.0) == Turn(
        (), (), "all groups are in memory"
    )
    assert Rotation(1.0).turn(waiting(), 50, now_s=9.0).enter == ()
    assert Rotation(1.0).turn(waiting((60, False, 0.0, 5, 1.0)), 50, now_s=9.0).enter == (10,)


TABLES = st.lists(
    st.tuples(
        st.integers(1, 120), st.booleans(), st.floats(0, 9), st.integers(0, 3), st.floats(0, 9)
    ),
    max_size=12,
).map(lambda rows: waiting(*rows))


@settings(max_examples=200, deadline=None)
@given(TABLES, st.integers(1, 400), st.floats(0.0, 20.0), st.sampled_from([0.1, 1.0, 5.0]))
def test_what_is_in_memory_after_a_turn_fits(table, limit, now, gap) -> None:
    turn = Rotation(gap).turn(table, limit, now)
    before = set(table.groups[table.in_memory].tolist())
    assert set(turn.leave) <= before
    assert not set(turn.enter) & before
    assert len(set(turn.enter)) == len(turn.enter)
    size = dict(zip(table.groups.tolist(), table.state_bytes.tolist(), strict=True))
    after = (before - set(turn.leave)) | set(turn.enter)
    assert sum(size[group] for group in after) <= limit or len(after) == 1


def run(t_gap_s: float, seconds: float = 400.0) -> tuple[float, float, int]:
    """Six equal groups, room for three, reading and writing costs 0.5 s; waiting input is free.

    Returns the part of the time that is not spent on the disk, the average time that input waits, and
    the least number of turns that a group had.
    """
    rotation, now, lost = Rotation(t_gap_s), 0.0, 0.0
    inside, since = [True] * 3 + [False] * 3, [0.0, 0.1, 0.2, 0.0, 0.0, 0.0]
    left, waits, turns = [0.0] * 6, [], [0] * 6
    while now < seconds:
        rows = [(10, inside[g], since[g], int(not inside[g]), left[g]) for g in range(6)]
        turn = rotation.turn(waiting(*rows), 30, now)
        for group in (g - 10 for g in turn.leave):
            inside[group], left[group] = False, now
        for group in (g - 10 for g in turn.enter):
            now, lost = now + 0.5, lost + 0.5
            waits.append(now - left[group])
            inside[group], since[group] = True, now
            turns[group] += 1
        now += 0.25
    return 1 - lost / now, sum(waits) / len(waits), min(turns)


def test_longer_turns_leave_more_time_for_rows_and_let_input_wait_longer() -> None:
    free, waits, turns = zip(*(run(gap) for gap in (0.5, 2.0, 8.0)), strict=True)
    assert list(free) == sorted(free)
    assert list(waits) == sorted(waits)
    assert free[2] - free[0] > 0.2
    assert waits[2] / waits[0] > 4
    assert min(turns) > 0


@pytest.mark.parametrize("gap", [0.5, 2.0])
def test_every_group_has_its_turn_as_often_as_any_other(gap: float) -> None:
    _, _, least = run(gap)
    per_group = 400.0 / (gap + 0.5) / 6
    assert least > 0.7 * per_group - 1


def reloaded(groups: tuple[int, ...], seconds: float, spooled_bytes: int, busy_s: float):
    none = (0,)
    return SlotRecord(
        *(3, 0, "", none, none, 0, (None,), none, none, none, ""),
        spooled_bytes=spooled_bytes,
        busy_s=busy_s,
        events=(Reloaded(3, 0, groups, 100, seconds, "a turn"),) if groups else (),
    )


def test_t_gap_that_is_given_holds_for_every_slot() -> None:
    gaps = TurnGaps(2.0).observed({0: reloaded((1, 2), 9.0, 0, 1.0)}, 1.0)
    assert gaps.seconds(2) == {0: 2.0, 1: 2.0}


def test_t_gap_is_the_time_to_read_a_group_where_none_is_given() -> None:
    gaps = TurnGaps()
    assert gaps.seconds(2) == {0: 0.0, 1: 0.0}
    gaps = gaps.observed({0: reloaded((1, 2), 0.5, 70, 0.9)}, 1.0)
    assert gaps.seconds(2) == {0: 0.25, 1: 0.0}
    assert gaps.observed({0: reloaded((), 0.0, 900, 0.9)}, 1.0) == gaps


def test_turns_become_longer_while_more_and_more_waits() -> None:
    gaps = TurnGaps()
    for waiting in (100, 200, 400, 800):
        gaps = gaps.observed({0: reloaded((1,), 0.25, waiting, 1.0)}, 1.0)
    assert gaps.seconds(1)[0] > 0.25

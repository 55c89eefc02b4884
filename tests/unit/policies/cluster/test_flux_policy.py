"""FLUX's global policies: who gives one group to whom, and for how long statistics are collected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.metrics.groups import GroupTable
from spillway.metrics.view import NORMAL, RELOCATING, RESHAPING, ClusterView, SlotView
from spillway.policies.cluster.collection import collection_s
from spillway.policies.cluster.decision import Move
from spillway.policies.cluster.flux import Thresholds, load_moves
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.local.picking import picked
from spillway.slot.orders import LOAD, SIZE, Pick

MB = 10**6
FLUX = ["flux-load", "flux-memory", "flux-hybrid"]


def slots(count: int, **columns: list) -> tuple[SlotView, ...]:
    made = [SlotView(at, 0, 0, None, 10, 0) for at in range(count)]
    for name, values in columns.items():
        made = [replace(slot, **{name: value}) for slot, value in zip(made, values, strict=True)]
    return tuple(made)


def busy(*seconds: float, **columns: list) -> ClusterView:
    """Slots that worked so many of ten seconds, equally fast."""
    rows = [int(1000 * one) for one in seconds]
    made = slots(len(seconds), **{"busy_s": list(seconds), "rows_in": rows, **columns})
    return ClusterView(made, span_s=10.0)


def full(*megabytes: int, limits: list[int | None], **columns: list) -> ClusterView:
    """Slots with so much state, and limits of memory; what has no room is on disk."""
    state = [held * MB for held in megabytes]
    room = [
        held if limit is None else limit * MB for held, limit in zip(state, limits, strict=True)
    ]
    return ClusterView(
        slots(
            len(state),
            memory_bytes=[min(held, one) for held, one in zip(state, room, strict=True)],
            disk_bytes=[max(0, held - one) for held, one in zip(state, room, strict=True)],
            limit_bytes=[None if limit is None else limit * MB for limit in limits],
            **columns,
        )
    )


def pairs(decisions: tuple) -> list[tuple[int, int]]:
    return [(move.sender, move.receiver) for move in decisions]


def test_utilisation_is_the_part_of_the_time_that_a_slot_worked() -> None:
    view = busy(9.0, 0.0)
    assert [view.utilisation(slot) for slot in view.slots] == [0.9, 0.0]
    assert replace(view, span_s=0.0).utilisation(view.slots[0]) == 0.0


def test_the_busiest_gives_the_share_that_levels_it_with_the_idlest() -> None:
    [move] = Strategy("flux-load").decide(busy(9.0, 3.0))
    pick = Pick(LOAD, pytest.approx(1 / 3), None, pytest.approx(1.0), pytest.approx(1 / 1.2))
    assert move == Move(*(0, 1, 0, "U_max/U_min = 0.90/0.30 = 3.00 >= 1.20"), pick=pick)


def test_pairs_are_made_from_the_ends_towards_the_middle() -> None:
    assert pairs(Strategy("flux-load").decide(busy(6.0, 9.0, 1.0, 3.0, 5.0))) == [(1, 2), (0, 3)]


def test_slots_that_are_equally_busy_are_paired_by_their_numbers() -> None:
    view = busy(9.0, 1.0, 9.0, 1.0)
    assert pairs(Strategy("flux-load").decide(view)) == [(0, 3), (2, 1)]
    backwards = replace(view, slots=view.slots[::-1])
    assert Strategy("flux-load").decide(backwards) == Strategy("flux-load").decide(view)


@pytest.mark.parametrize(("most", "moves"), [(6.1, 1), (5.9, 0)])
def test_a_pair_below_the_imbalance_threshold_is_left_as_it_is(most: float, moves: int) -> None:
    assert len(Strategy("flux-load").decide(busy(most, 5.0))) == moves
    eager = Strategy("flux-load", flux=Thresholds(imbalance=1.05))
    assert len(eager.decide(busy(most, 5.0))) == 1


def test_nothing_is_given_to_a_slot_that_is_busy_itself() -> None:
    assert Strategy("flux-load", flux=Thresholds(1.05)).decide(busy(10.0, 9.1)) == ()
    assert len(Strategy("flux-load", flux=Thresholds(1.05, busy=0.95)).decide(busy(10.0, 9.1))) == 1


def test_a_sender_is_at_least_as_busy_as_slots_are_on_average() -> None:
    # The second pair differs by half, but its sender has less than the mean of 4.
    assert pairs(Strategy("flux-load").decide(busy(10.0, 3.0, 2.0, 1.0))) == [(0, 3)]


def test_an_idle_receiver_is_taken_to_be_as_fast_as_the_sender() -> None:
    [move] = Strategy("flux-load").decide(busy(8.0, 0.0))
    assert move.pick.share == 0.5
    assert move.reason == "U_max/U_min = 0.80/0.00 = inf >= 1.20"


def test_a_slow_receiver_gets_less_and_a_fast_one_more() -> None:
    def share(rows_in: int) -> float:
        [move] = Strategy("flux-load").decide(busy(9.0, 3.0, rows_in=[9000, rows_in]))
        return move.pick.share

    # What all rows of the sender would cost the receiver: 1.8, 0.9, 0.45 of the time.
    assert share(1500) == pytest.approx(0.6 / 2.7)
    assert share(3000) == pytest.approx(0.6 / 1.8)
    assert share(6000) == pytest.approx(0.6 / 1.35)


def test_a_receiver_with_hardly_a_row_is_not_taken_to_be_slow_beyond_reason() -> None:
    [move] = Strategy("flux-load").decide(busy(9.0, 3.0, rows_in=[9_000_000, 1]))
    assert move.pick.share == pytest.approx(0.6 / 4.5)


def test_a_slot_with_one_group_gives_nothing() -> None:
    assert Strategy("flux-load").decide(busy(9.0, 1.0, groups=[1, 9])) == ()
    assert Strategy("flux-memory").decide(full(9, 1, limits=[4, 9], groups=[1, 9])) == ()


def test_memory_goes_from_where_it_is_short_to_where_most_is_spare() -> None:
    # Slot 1 has a limit of half of what the others may have: FLUX 6.3.
    view = full(768, 768, 768, limits=[1024, 512, 1024])
    [move] = Strategy("flux-memory").decide(view)
    reason = "the sender lacks 256 MB of memory, the receiver has 256 MB free"
    assert move == Move(1, 2, 256 * MB, reason, pick=Pick(SIZE, most_bytes=256 * MB))


def test_a_group_without_room_may_go_where_it_has_room_though_the_pair_is_turned_round() -> None:
    [move] = Strategy("flux-memory").decide(full(102, 94, limits=[100, 100]))
    assert (move.bytes, move.pick.most_bytes) == (4 * MB, 6 * MB)
    sized = table(bytes_=[6 * MB, 90 * MB, 6 * MB])
    assert picked(sized, range(3), move.bytes, move.pick).groups == (0,)


def test_what_nobody_has_room_for_is_spread() -> None:
    # FLUX 6.4, heavy pressure: everybody has something on disk, half of the slots far more.
    [move] = Strategy("flux-memory").decide(full(768, 768, limits=[512, 762]))
    assert (move.sender, move.receiver, move.bytes) == (0, 1, 125 * MB)
    assert move.pick == Pick(SIZE)
    assert (
        move.reason
        == "the sender lacks 256 MB of memory, the receiver lacks 6 MB: ratio 42.67 >= 1.20"
    )
    assert Strategy("flux-memory").decide(full(637, 893, limits=[512, 782])) == ()


def test_slots_with_room_are_levelled_where_they_differ_by_the_threshold() -> None:
    assert Strategy("flux-memory").decide(full(59, 50, limits=[100, 100])) == ()
    [move] = Strategy("flux-memory").decide(full(80, 50, limits=[100, 100]))
    reason = "memory filled to 0.80 and 0.50, ratio >= 1.20"
    assert move == Move(0, 1, 15 * MB, reason, pick=Pick(SIZE))


def test_slots_without_limits_are_levelled_by_their_state() -> None:
    [move] = Strategy("flux-memory").decide(full(80, 50, limits=[None, None]))
    assert (move.sender, move.receiver, move.bytes) == (0, 1, 15 * MB)


def test_the_memory_policy_does_not_ask_how_busy_a_receiver_is() -> None:
    view = full(120, 20, limits=[100, 100], busy_s=[1.0, 10.0])
    assert pairs(Strategy("flux-memory").decide(replace(view, span_s=10.0))) == [(0, 1)]


def test_the_hybrid_goes_by_memory_while_something_is_on_disk() -> None:
    view = full(120, 20, limits=[100, 100], busy_s=[1.0, 9.0], rows_in=[10, 90])
    [move] = Strategy("flux-hybrid").decide(replace(view, span_s=10.0))
    assert (move.sender, move.receiver, move.pick.by) == (0, 1, SIZE)


def test_the_hybrid_goes_by_load_once_all_is_in_memory_as_far_as_there_is_room() -> None:
    view = full(90, 20, limits=[100, 100], busy_s=[1.0, 9.0], rows_in=[100, 900])
    [move] = Strategy("flux-hybrid").decide(replace(view, span_s=10.0))
    assert (move.sender, move.receiver) == (1, 0)
    assert (move.pick.share, move.pick.most_bytes) == (pytest.approx(0.8 / 1.8), 10 * MB)
    assert move.reason.endswith(">= 1.20, room for 10 MB")
    crammed = full(100, 20, limits=[100, 100], busy_s=[1.0, 9.0], rows_in=[100, 900])
    assert Strategy("flux-hybrid").decide(replace(crammed, span_s=10.0)) == ()
    free = full(90, 20, limits=[None, None], busy_s=[1.0, 9.0], rows_in=[100, 900])
    [move] = Strategy("flux-hybrid").decide(replace(free, span_s=10.0))
    assert move.pick.most_bytes is None


@pytest.mark.parametrize(
    ("last", "moving", "least", "expected"),
    [
        (1.0, 5.0, 0.01, 5.0),
        (8.0, 5.0, 0.01, 5.0),
        (8.0, None, 0.01, 4.0),
        (8.0, 0.001, 0.25, 0.25),
        (0.3, None, 0.25, 0.25),
        (0.0, None, 0.25, 0.25),
    ],
)
def test_statistics_are_collected_as_long_as_the_last_moves_took(
    last, moving, least, expected
) -> None:
    assert collection_s(last, moving, least) == expected


def table(bytes_: list[int], **columns: list[float]) -> GroupTable:
    made = replace(GroupTable.empty(len(bytes_), 1), bytes=np.array([bytes_], np.int64))
    for name, values in columns.items():
        made = replace(made, **{name: np.array(values, getattr(made, name).dtype)})
    return made


#: Loads of 0.1, 0.2, 0.3, 0.4 and none.
LOADED = table([10, 20, 30, 40, 50], load=[1, 2, 3, 4, 0])


@pytest.mark.parametrize(
    ("share", "groups"), [(0.05, ()), (0.1, (0,)), (0.25, (1,)), (0.3, (2,)), (0.9, (3,))]
)
def test_the_busiest_group_goes_that_does_not_turn_the_pair_round(share, groups) -> None:
    assert picked(LOADED, range(5), 0, Pick(LOAD, share)).groups == groups


@pytest.mark.parametrize(
    ("cost", "ceiling", "groups"),
    [
        # 0.4 of the load would bring the receiver to 0.7 + 0.1 of the sender's load; 0.3 leaves 0.7.
        (1.0, 0.9, (2,)),
        # At half the cost, 0.75: still not better.
        (0.5, 0.9, (2,)),
    ],
)
def test_a_pair_is_not_turned_round_if_it_is_better_off_otherwise(cost, ceiling, groups) -> None:
    assert picked(LOADED, range(5), 0, Pick(LOAD, 0.3, None, cost, ceiling)).groups == groups


def test_a_hot_group_leaves_a_slow_slot_if_the_other_ends_clearly_below_it() -> None:
    hot = table([1, 1, 1], load=[1, 1, 8])
    # The receiver is twice as fast: levelling takes 0.47 of the load, the hot group has 0.8.
    pick = Pick(LOAD, 0.47, None, cost=0.5, ceiling=1 / 1.2)
    choice = picked(hot, range(3), 0, pick)
    assert choice.groups == (2,)
    assert choice.reason == (
        "by load: 1 group, 0.800 of the load, the receiver ends at 0.70 of the sender's present load"
    )
    assert picked(hot, range(3), 0, replace(pick, cost=1.0)).groups == (0,)
    assert picked(hot, range(3), 0, replace(pick, ceiling=0.6)).groups == (0,)
    assert picked(hot, range(3), 0, replace(pick, most_bytes=0)).groups == ()


def test_the_share_is_of_the_groups_that_the_slot_owns() -> None:
    assert picked(LOADED, [0, 2], 0, Pick(LOAD, 0.3)).groups == (0,)
    assert picked(LOADED, np.array([2, 0]), 0, Pick(LOAD, 0.75)).groups == (2,)


def test_a_group_without_room_at_the_receiver_stays() -> None:
    choice = picked(LOADED, range(5), 0, Pick(LOAD, 0.9, most_bytes=25))
    assert choice.groups == (1,)
    assert choice.reason == (
        "by load: 1 group, 0.200 of the load, at most 0.900, and at most 25 bytes"
    )
    choice = picked(LOADED, range(5), 0, Pick(LOAD, 0.9, most_bytes=5))
    assert choice.groups == ()
    assert choice.reason == (
        "no group by load: none has at most 0.900 of the load, and at most 5 bytes"
    )


def test_of_equally_busy_groups_the_smaller_goes_then_the_lower_number() -> None:
    alike = table([30, 10, 10], load=[1, 1, 1])
    assert picked(alike, range(3), 0, Pick(LOAD, 0.5)).groups == (1,)


@pytest.mark.parametrize("column", ["disk_rows", "generations"])
def test_groups_on_disk_go_only_if_no_other_will_do(column: str) -> None:
    frozen = replace(LOADED, **{column: np.array([0, 0, 7, 7, 0])})
    assert picked(frozen, range(5), 0, Pick(LOAD, 0.9)).groups == (1,)
    assert picked(frozen, [2, 3], 0, Pick(LOAD, 0.5)).groups == (2,)
    assert picked(frozen, range(4), 45, Pick(SIZE)).groups == (1,)
    assert picked(frozen, [2, 3], 45, Pick(SIZE)).groups == (3,)


def test_the_largest_group_of_at_most_the_bytes_goes() -> None:
    choice = picked(LOADED, range(5), 35, Pick(SIZE))
    assert choice.groups == (2,)
    assert choice.reason == "largest that fits: 1 group, 30 of 35 bytes"
    choice = picked(LOADED, range(5), 9, Pick(SIZE))
    assert choice.groups == ()
    assert choice.reason == "no group by size: none has at most 9 bytes"


def test_the_smallest_group_goes_if_none_fits_and_the_receiver_has_room() -> None:
    choice = picked(LOADED, range(5), 9, Pick(SIZE, most_bytes=15))
    assert choice.groups == (0,)
    assert choice.reason == "smallest, because none fits: 1 group, 10 of 9 bytes"
    assert picked(LOADED, range(5), 9, Pick(SIZE, most_bytes=9)).groups == ()


def test_what_a_group_has_on_disk_counts_as_its_size() -> None:
    frozen = replace(LOADED, disk_bytes=np.array([90, 90, 90, 0, 0]))
    assert picked(frozen, [0, 1, 2], 115, Pick(SIZE)).groups == (1,)


@pytest.mark.parametrize("pick", [Pick(LOAD, 1.0), Pick(SIZE, most_bytes=10**9)])
def test_a_slot_keeps_its_last_group_and_one_without_state_gives_none(pick: Pick) -> None:
    assert picked(LOADED, [3], 10**9, pick).groups == ()
    assert picked(GroupTable.empty(0), range(4), 10**9, pick).groups == ()
    assert picked(GroupTable.empty(4, 2), range(4), 10**9, pick).groups == ()


VIEWS = st.builds(
    lambda made, span: ClusterView(
        tuple(replace(slot, slot=at) for at, slot in enumerate(made)), span_s=span
    ),
    st.lists(
        st.builds(
            SlotView,
            st.just(0),
            st.integers(0, 2**40),
            st.sampled_from([0, 0, 5, 2**39]),
            st.sampled_from([None, 1, 2**38, 2**40]),
            st.integers(0, 5),
            st.just(0),
            st.sampled_from([NORMAL, NORMAL, NORMAL, RELOCATING, RESHAPING]),
            busy_s=st.floats(0, 10),
            rows_in=st.integers(0, 10**6),
        ),
        max_size=9,
    ),
    st.floats(0.0, 10.0),
)


@settings(max_examples=200, deadline=None)
@given(VIEWS, st.sampled_from(FLUX), st.floats(1.0, 3.0))
def test_a_round_names_a_slot_once_and_only_slots_in_normal_mode(view, name, imbalance) -> None:
    decided = Strategy(name, flux=Thresholds(imbalance)).decide(view)
    named = [slot for move in decided for slot in (move.sender, move.receiver)]
    assert len(named) == len(set(named)) <= len(view.slots)
    assert all(view.slots[slot].mode == NORMAL for slot in named)
    for move in decided:
        assert move.pick is not None
        assert 0 < move.pick.share <= 1
        assert view.slots[move.sender].groups > 1


def test_a_span_too_short_to_measure_and_slots_that_are_alike_move_nothing() -> None:
    made = [SlotView(at, 0, 0, None, 4, 0, busy_s=at * 2.0) for at in range(2)]
    assert load_moves(ClusterView(tuple(made), span_s=1e-300), Thresholds()) == ()
    alike = [SlotView(at, 0, 0, None, 4, 0, busy_s=2.0) for at in range(2)]
    assert load_moves(ClusterView(tuple(alike), span_s=9.0), Thresholds(1.0)) == ()


class Toy:
    """Slots of any speed that process groups of any load, and get as many rows as they can take."""

    def __init__(self, loads: list[int], speeds: list[float], owners: list[int]) -> None:
        self.load = np.array(loads, np.float64)
        self.speeds = speeds
        self.owners = np.array(owners)

    def busy_s(self) -> list[float]:
        found = [self.load[self.owners == s].sum() / v for s, v in enumerate(self.speeds)]
        return [float(one) for one in found]

    def view(self) -> ClusterView:
        held = self.busy_s()
        made = slots(
            len(held),
            busy_s=held,
            rows_in=[round(one * v) for one, v in zip(held, self.speeds, strict=True)],
            groups=np.bincount(self.owners, minlength=len(held)).tolist(),
        )
        return ClusterView(made, span_s=max(held))

    def round(self, strategy: Strategy) -> int:
        """One round of moves; each leaves the pair level, or turned round but clearly less busy."""
        groups, moved = table([1] * len(self.load), load=self.load.tolist()), 0
        for move in strategy.decide(self.view()):
            owned = np.flatnonzero(self.owners == move.sender)
            for group in picked(groups, owned, move.bytes, move.pick).groups:
                before = self.busy_s()[move.sender]
                self.owners[group] = move.receiver
                moved += 1
                most = max(self.busy_s()[move.sender], before / strategy.flux.imbalance)
                assert self.busy_s()[move.receiver] <= most * (1 + 1e-6)
        return moved


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 6))
def test_balancing_comes_to_an_end_and_never_makes_a_pair_busier(data, count) -> None:
    loads = data.draw(st.lists(st.integers(1, 1000), min_size=count, max_size=40))
    # Everybody has a group from the start, so that it is known how fast everybody is.
    others = len(loads) - count
    more = st.lists(st.integers(0, count - 1), min_size=others, max_size=others)
    owners = [*range(count), *data.draw(more)]
    speeds = data.draw(st.lists(st.sampled_from([1.0, 2.0]), min_size=count, max_size=count))
    toy = Toy(loads, speeds, owners)
    peak = max(toy.busy_s())
    for _ in range(400):
        moved = toy.round(Strategy("flux-load", flux=Thresholds(busy=1.0)))
        assert max(toy.busy_s()) <= peak * (1 + 1e-6)
        peak = max(toy.busy_s())
        if not moved:
            return
    raise AssertionError("it does not come to an end")


def test_one_slot_of_half_the_speed_is_relieved_until_all_are_equally_busy() -> None:
    # FLUX 5.4: 32 slots with 64 groups each; one gets half of its processor.
    loads, owners = [10] * 32 * 64, [at // 64 for at in range(32 * 64)]
    toy = Toy(loads, [1.0] * 31 + [0.5], owners)
    moves = sum(toy.round(Strategy("flux-load")) for _ in range(100))
    held = toy.busy_s()
    assert max(held) / min(held) < 1.2
    # The fewest moves that come below the threshold are 25; the paper's policy takes 32.
    assert 25 <= moves <= 32


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3)), min_size=4, max_size=40),
    st.lists(st.integers(50, 400), min_size=4, max_size=4),
)
def test_memory_moves_come_to_an_end_and_never_leave_more_without_room(groups, limits) -> None:
    sizes, owners = (np.array(column, np.int64) for column in zip(*groups, strict=True))
    lacking = None
    for _ in range(400):
        held = np.bincount(owners, weights=sizes, minlength=4).astype(int).tolist()
        now = sum(max(0, one - limit) for one, limit in zip(held, limits, strict=True))
        assert lacking is None or now <= lacking
        lacking, before = now, owners.copy()
        view = ClusterView(
            slots(
                4,
                memory_bytes=[min(pair) for pair in zip(held, limits, strict=True)],
                disk_bytes=[max(0, a - b) for a, b in zip(held, limits, strict=True)],
                limit_bytes=limits,
                groups=np.bincount(owners, minlength=4).tolist(),
            )
        )
        for move in Strategy("flux-memory").decide(view):
            owned = np.flatnonzero(before == move.sender)
            for group in picked(table(sizes.tolist()), owned, move.bytes, move.pick).groups:
                owners[group] = move.receiver
        if (owners == before).all():
            return
    raise AssertionError("it does not come to an end")

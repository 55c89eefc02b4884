"""Another number of slots by moves: new slots get their share, slots that go give all they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.metrics.groups import GroupTable
from spillway.metrics.view import NORMAL, RELOCATING, RESHAPING, ClusterView, SlotView
from spillway.policies.cluster.decision import Move
from spillway.policies.cluster.scaling import drained, filled, scaling_moves
from spillway.policies.local.relocation import movers


def view(*memory: int, **columns: list) -> ClusterView:
    made = [SlotView(at, held, 0, None, 10 if held else 0, 0) for at, held in enumerate(memory)]
    for name, values in columns.items():
        made = [replace(slot, **{name: value}) for slot, value in zip(made, values, strict=True)]
    return ClusterView(tuple(made))


def amounts(moves: tuple[Move, ...]) -> list[tuple[int, int, int | str]]:
    return [(m.sender, m.receiver, "everything" if m.everything else m.bytes) for m in moves]


def test_new_slots_are_filled_from_the_fullest() -> None:
    moves = scaling_moves(view(100, 120, 0, 0), 4, {2: 0, 3: 0})
    assert amounts(moves) == [(1, 2, 55), (0, 3, 45)]
    assert {move.groups for move in moves} == {1}
    assert moves[0].reason == "slot 2 is new: 55 bytes towards a mean of 55"


def test_a_new_slot_waits_while_no_slot_is_free_to_give() -> None:
    assert amounts(scaling_moves(view(100, 0, 0, 0), 4, {1: 0, 2: 0, 3: 0})) == [(0, 1, 25)]
    # Slot 1 has its share, and keeps it.
    assert amounts(scaling_moves(view(75, 25, 0, 0), 4, {1: 1, 2: 0, 3: 0})) == [(0, 2, 25)]


@pytest.mark.parametrize("mode", [RELOCATING, RESHAPING])
def test_slots_that_are_adapting_wait(mode: str) -> None:
    busy = view(100, 100, 0, 0, mode=[mode, NORMAL, mode, NORMAL])
    assert amounts(scaling_moves(busy, 4, {2: 0, 3: 0})) == [(1, 3, 50)]
    assert amounts(scaling_moves(view(9, 9, 9, mode=[NORMAL, NORMAL, mode]), 2, {})) == []
    going = view(100, 100, 100, mode=[mode, NORMAL, NORMAL])
    assert amounts(scaling_moves(going, 2, {})) == [(2, 1, 50)]


def test_only_slots_that_are_being_filled_get_state() -> None:
    assert scaling_moves(view(100, 100, 0, 0), 4, {}) == ()
    assert amounts(scaling_moves(view(100, 100, 0, 0), 4, {3: 0})) == [(0, 3, 50)]


@pytest.mark.parametrize(
    ("held", "groups", "tries", "done"),
    [(80, 1, 0, True), (79, 1, 0, False), (80, 0, 0, False), (0, 0, 2, False), (0, 0, 3, True)],
)
def test_a_slot_is_filled_with_most_of_its_share_or_out_of_tries(held, groups, tries, done) -> None:
    some = view(120, 180 - held, held, groups=[10, 10, groups])
    assert filled(some, 3, {2: tries}) == ((2,) if done else ())
    assert (scaling_moves(some, 3, {2: tries}) == ()) is done


def test_a_slot_that_no_longer_is_to_be_filled_needs_no_moves() -> None:
    assert filled(view(100, 0, 0), 2, {1: 0, 2: 0}) == (2,)


def test_a_query_without_state_shares_its_groups() -> None:
    empty = view(0, 0, 0, groups=[128, 128, 0])
    [move] = scaling_moves(empty, 3, {2: 0})
    assert (move.sender, move.receiver, move.bytes, move.groups) == (0, 2, 0, 43)
    assert move.reason == "slot 2 is new: 43 groups towards a mean of 85"


def test_fewer_bytes_than_slots_are_no_state_to_share() -> None:
    [move] = scaling_moves(view(2, 0, groups=[4, 0]), 2, {1: 0})
    assert (move.bytes, move.groups) == (1, 1)
    [move] = scaling_moves(view(1, 0, groups=[4, 0]), 2, {1: 0})
    assert (move.bytes, move.groups) == (0, 2)


def test_where_all_state_is_in_one_group_the_other_groups_are_shared() -> None:
    lumpy = view(100, 0, 0, groups=[1, 10, 0])
    [move] = scaling_moves(lumpy, 3, {2: 0})
    assert (move.sender, move.receiver, move.bytes, move.groups) == (1, 2, 0, 3)
    after = view(100, 0, 0, groups=[1, 7, 3])
    assert scaling_moves(after, 3, {2: 1}) == ()
    assert filled(after, 3, {2: 1}) == (2,)


def test_as_many_slots_go_as_stay_so_each_gives_everything() -> None:
    moves = scaling_moves(view(100, 300, 50, 200), 2, {})
    assert amounts(moves) == [(3, 0, "everything"), (2, 1, "everything")]
    assert (moves[0].bytes, moves[0].groups) == (200, 10)
    assert moves[0].reason == "slot 3 retires: everything"


def test_a_slot_that_goes_fills_the_others_up_to_the_mean() -> None:
    [move] = scaling_moves(view(100, 110, 90), 2, {})
    assert (move.sender, move.receiver, move.bytes, move.groups) == (2, 0, 50, 1)
    assert move.reason == "slot 2 retires: 50 bytes towards a mean of 150"


@pytest.mark.parametrize(
    ("memory", "amount"),
    [((70, 100, 30), "everything"), ((70, 97, 33), "everything"), ((72, 95, 33), 28)],
)
def test_what_fits_or_nearly_fits_goes_at_once(memory, amount) -> None:
    assert amounts(scaling_moves(view(*memory), 2, {})) == [(2, 0, amount)]


def test_a_slot_with_rows_on_disk_or_with_one_group_is_drained_at_once() -> None:
    spilled = view(100, 100, 100, disk_bytes=[0, 0, 1])
    assert amounts(scaling_moves(spilled, 2, {})) == [(2, 0, "everything")]
    single = view(100, 100, 100, groups=[5, 5, 1])
    assert amounts(scaling_moves(single, 2, {})) == [(2, 0, "everything")]


def test_a_slot_without_state_that_goes_shares_out_its_groups() -> None:
    empty = view(0, 0, 0, groups=[86, 85, 85])
    [move] = scaling_moves(empty, 2, {})
    assert (move.sender, move.receiver, move.bytes, move.groups) == (2, 1, 0, 43)


def test_slots_are_drained_when_they_have_no_groups() -> None:
    assert not drained(view(1, 1, 0, groups=[1, 1, 1]), 2)
    assert drained(view(1, 1, 0), 2)
    assert drained(view(1, 1, 1), 3)


class Cluster:
    """Groups with sizes, in slots; moves are carried out as the senders' controllers choose."""

    def __init__(self, sizes: list[int], routing: list[int], on_disk: list[int]) -> None:
        self.routing = np.array(routing)
        self.table = replace(
            GroupTable.empty(len(sizes), 1),
            bytes=np.array([sizes], np.int64),
            disk_rows=np.array(on_disk, np.int64),
            disk_bytes=np.array(on_disk, np.int64),
        )

    def owned(self, slot: int) -> np.ndarray:
        return np.flatnonzero(self.routing == slot)

    def memory(self, slot: int) -> int:
        return int(self.table.size[self.owned(slot)].sum())

    def view(self, slots: int) -> ClusterView:
        return ClusterView(tuple(self._slot(slot) for slot in range(slots)))

    def _slot(self, slot: int) -> SlotView:
        owned = self.owned(slot)
        on_disk = int(self.table.disk_bytes[owned].sum())
        return SlotView(slot, self.memory(slot), on_disk, None, len(owned), 0)

    def apply(self, move: Move) -> None:
        how = {"least_groups": move.groups, "everything": move.everything}
        choice = movers(self.table, self.owned(move.sender), move.bytes, **how)
        self.routing[list(choice.groups)] = move.receiver

    def scale(self, before: int, after: int) -> int:
        """Moves until none is left to make; the number of rounds."""
        tries = dict.fromkeys(range(before, after), 0)
        rounds = 0
        while moves := scaling_moves(self.view(max(before, after)), after, tries):
            assert_disjoint(moves)
            rounds += 1
            for move in moves:
                self.apply(move)
                if move.receiver in tries:
                    tries[move.receiver] += 1
        assert_reached(self.view(max(before, after)), after, tries)
        return rounds


def assert_disjoint(moves: tuple[Move, ...]) -> None:
    named = [slot for move in moves for slot in (move.sender, move.receiver)]
    assert len(named) == len(set(named))
    assert all(move.bytes >= 0 and move.groups >= 1 and move.reason for move in moves)


def assert_reached(seen: ClusterView, slots: int, tries: Mapping[int, int]) -> None:
    assert drained(seen, slots)
    assert filled(seen, slots, tries) == tuple(tries)


CHANGES = [(2, 4), (4, 2), (3, 2), (2, 3), (1, 4), (4, 1), (5, 2), (2, 5), (9, 10), (10, 9), (3, 8)]


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_scaling_ends_with_every_slot_near_the_mean(before: int, after: int) -> None:
    sizes = np.random.default_rng([before, after]).integers(50, 150, 256).tolist()
    cluster = Cluster(sizes, [group * before // 256 for group in range(256)], [0] * 256)
    rounds = cluster.scale(before, after)
    mean = sum(sizes) / after
    assert all(0.7 * mean <= cluster.memory(slot) <= 1.3 * mean for slot in range(after))
    assert rounds <= 2 * max(before, after)


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_scaling_without_state_ends_with_the_groups_spread(before: int, after: int) -> None:
    cluster = Cluster([0] * 256, [group * before // 256 for group in range(256)], [0] * 256)
    rounds = cluster.scale(before, after)
    mean = 256 / after
    assert all(0.7 * mean <= len(cluster.owned(slot)) <= 1.3 * mean for slot in range(after))
    assert rounds <= 2 * max(before, after)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(1, 6))
def test_scaling_ends_whatever_the_groups_have(data, before: int, after: int) -> None:
    groups = data.draw(st.integers(max(before, after), 20))
    sizes = st.lists(st.sampled_from([0, 0, 1, 10, 1000]), min_size=groups, max_size=groups)
    on_disk = st.lists(st.sampled_from([0, 0, 0, 5]), min_size=groups, max_size=groups)
    routing = st.lists(st.integers(0, before - 1), min_size=groups, max_size=groups)
    cluster = Cluster(data.draw(sizes), data.draw(routing), data.draw(on_disk))
    assert cluster.scale(before, after) <= groups + max(before, after) ** 2

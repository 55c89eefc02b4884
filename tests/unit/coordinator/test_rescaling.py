"""Other numbers of slots, and moves in parts: what the coordinator goes on with between batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from committing import GROUPS, after, records

from spillway.coordinator.batch.commit import commit_batch
from spillway.coordinator.batch.committed import Committed, Scaling, initial
from spillway.coordinator.batch.plan import new_note, plan_round
from spillway.coordinator.decisions.adaptation import Rules, adapt, begin, rescale, resume, waits
from spillway.errors import SettingsError
from spillway.metrics.events import (
    MoveAsked,
    Scaled,
)
from spillway.metrics.record import Chosen
from spillway.plan.shape import parse
from spillway.policies.cluster.decision import Move
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.shape.proposal import Proposal
from spillway.policies.shape.shaping import SlotShape
from spillway.protocols.messages import (
    Received,
    ReceivePartitions,
    SendFailed,
)
from spillway.protocols.move import Phase
from spillway.routing.routing import Routing

EVERY_BATCH = Rules(Strategy("lazy-disk"), interval_batches=1)


@pytest.fixture
def new() -> Committed:
    return initial(Routing.even(GROUPS, 2), 2)


@pytest.mark.parametrize("slots", [0, -1, GROUPS + 1])
def test_impossible_numbers_of_slots_are_refused(new, slots: int) -> None:
    with pytest.raises(SettingsError) as refused:
        rescale(new, slots)
    assert str(refused.value) == (
        f"{slots} slots cannot share 8 groups\n  hint: use at least one slot, and at most 8"
    )


def test_query_has_new_slots_at_once_and_they_are_empty(new) -> None:
    state = rescale(after(new, records(10, 10)), 4)
    assert state.routing.counts() == (4, 4, 0, 0)
    assert state.routing.version == 1
    assert state.manifests == ("manifests/0", "manifests/1", None, None)
    assert state.scaling == Scaling(4, ((2, 0), (3, 0)))


def test_slots_that_are_to_go_stay_until_they_are_drained(new) -> None:
    state = rescale(after(new, records(10, 10)), 1)
    assert state.routing == new.routing
    assert state.scaling == Scaling(1)


def test_second_wish_keeps_filling_the_slots_that_were_being_filled(new) -> None:
    first = replace(rescale(new, 4), scaling=Scaling(4, ((2, 1), (3, 0))))
    assert rescale(first, 5).scaling == Scaling(5, ((2, 1), (3, 0), (4, 0)))
    assert rescale(first, 3).scaling == Scaling(3, ((2, 1),))
    assert rescale(first, 2).scaling == Scaling(2)


def test_slots_that_were_to_go_and_are_wanted_again_are_filled(new) -> None:
    fewer = rescale(new, 1)
    assert rescale(fewer, 2).scaling == Scaling(2, ((1, 0),))
    assert rescale(fewer, 3).scaling == Scaling(3, ((1, 0), (2, 0)))


def test_new_slot_is_filled_whatever_the_strategy_and_each_move_is_counted(new) -> None:
    answers = records(90, 10, 0)
    state = after(rescale(new, 3), answers)
    state = adapt(state, answers, {}, Rules(Strategy("none")))
    assert [(move.sender, move.receiver) for move in state.moves] == [(0, 2)]
    assert state.scaling == Scaling(3, ((2, 1),))
    assert isinstance(state.events[-1], MoveAsked)


def test_drained_slots_are_cut_off_and_scaling_ends_with_its_event(new) -> None:
    answers = records(90, 0)
    drained = replace(after(new, answers), routing=Routing(3, 2, (0,) * GROUPS))
    state = adapt(rescale(drained, 1), answers, {}, EVERY_BATCH)
    assert state.scaling is None
    assert state.routing == Routing(4, 1, (0,) * GROUPS)
    assert state.manifests == ("manifests/0",)
    assert state.sample.rows_out == (0,)
    assert state.events == (Scaled(0, 1, (), 0, 0.0, "1 slots now share the groups"),)


def test_slot_with_rows_is_never_cut_off(new) -> None:
    answers = records(90, 0, state_rows=[(9, 0), (0, 3)], disk_rows=[(0, 0), (0, 0)])
    rerouted = replace(after(new, answers), routing=Routing(3, 2, (0,) * GROUPS))
    for passive in (False, True):
        state = adapt(rescale(rerouted, 1, passive=passive), answers, {}, EVERY_BATCH)
        assert state.routing.slots == 2
        assert state.scaling == Scaling(1, passive=passive)
        assert state.moves == ()
    on_disk = records(90, 0, disk_rows=[(0, 0), (0, 3)])
    assert adapt(rescale(rerouted, 1, passive=True), on_disk, {}, EVERY_BATCH).scaling is not None
    none = records(90, 0)
    ended = adapt(rescale(rerouted, 1, passive=True, reason="why"), none, {}, EVERY_BATCH)
    assert ended.routing == Routing(4, 1, (0,) * GROUPS)
    assert ended.events == (Scaled(0, 1, (), 0, 0.0, "1 slots now share the groups: why"),)


def test_passive_change_begins_no_move_and_ends_when_new_slots_have_groups(new) -> None:
    answers = records(90, 90, 0, 0)
    state = adapt(after(rescale(new, 4, passive=True), answers), answers, {}, EVERY_BATCH)
    assert (state.moves, state.scaling) == ((), Scaling(4, passive=True))
    assert not waits(replace(state, round=1), answers)
    shared = replace(state, routing=Routing(3, 4, (0, 1, 2, 3) * 2))
    state = adapt(after(shared, answers), answers, {}, EVERY_BATCH)
    assert (state.moves, state.scaling) == ((), None)
    assert state.routing == shared.routing
    assert isinstance(state.events[-1], Scaled)


def test_passive_change_leaves_groups_to_the_routing_of_slices(new) -> None:
    answers = records(90, 0)
    state = adapt(rescale(after(new, answers), 1, passive=True), answers, {}, EVERY_BATCH)
    assert state.routing == new.routing
    assert (state.moves, state.scaling) == ((), Scaling(1, passive=True))


def test_rounds_are_of_no_use_while_rows_have_to_expire(new) -> None:
    held = records(90, 0, state_rows=[(9, 0), (0, 3)])
    rerouted = replace(after(new, held), routing=Routing(3, 2, (0,) * GROUPS))
    state = rescale(rerouted, 1, passive=True)
    # The first round lets go what expired with the last batch.
    assert not waits(state, held)
    state = replace(state, round=1)
    assert waits(state, held)
    assert not waits(state, records(90, 0))
    assert not waits(replace(state, routing=new.routing), held)
    assert not waits(replace(state, scaling=None), held)
    assert not waits(begin(state, [Move(0, 1, 10, "a test")]), held)


def test_another_wish_may_change_how_slots_come_and_go(new) -> None:
    first = rescale(new, 4)
    assert rescale(first, 3, passive=True).scaling == Scaling(3, passive=True)
    again = rescale(rescale(new, 1, passive=True), 2)
    assert again.scaling == Scaling(2, ((1, 0),))


def test_scaling_does_not_end_while_something_moves(new) -> None:
    answers = records(90, 0)
    drained = replace(after(new, answers), routing=Routing(3, 2, (0,) * GROUPS))
    moving = begin(rescale(drained, 1), [Move(1, 0, 0, "a test", everything=True)])
    state = adapt(moving, answers, {}, EVERY_BATCH)
    assert state.scaling == Scaling(1)
    assert state.routing.slots == 2


def test_scaling_goes_on_in_rounds(new) -> None:
    answers = records(90, 10, 0)
    state = rescale(after(new, records(90, 10)), 3)
    plan = plan_round(state, new_note(state, {}))
    state = commit_batch(state, plan, answers, (None, None))
    assert len(adapt(state, answers, {}, EVERY_BATCH).moves) == 1


def ended(state: Committed, move: int, groups: tuple[int, ...]) -> Committed:
    """The state when a move that was just begun has come to its end, with nothing decided."""
    chosen = Chosen(move, groups, 1, "test")
    state = after(state, records(0, 0, chosen=[(chosen,), ()]))
    state = after(state, records(0, 0))
    said = [ReceivePartitions(move), Received(move, "part", 1)]
    state, _ = resume(state, [(one, 0.0) for one in said])
    return after(state, records(0, 0))


def test_large_amount_moves_in_parts_one_after_the_other(new) -> None:
    state = begin(new, [Move(0, 1, 25, "full")], portion_bytes=10)
    asked = []
    for number in range(3):
        [move] = state.moves
        assert (move.move, move.slots, move.reason) == (number, (0, 1), "full")
        asked.append((move.wanted_bytes, move.left_bytes))
        state = ended(state, number, (number,))
        told = [event.bytes for event in state.events if isinstance(event, MoveAsked)]
        assert told == [[10], [5], []][number]
    assert asked == [(10, 15), (10, 5), (5, 0)]
    assert state.moves == ()
    assert state.moves_begun == 3
    assert state.routing.table[:4] == (1, 1, 1, 0)


def test_parts_end_where_the_sender_has_nothing_more_to_give(new) -> None:
    state = begin(new, [Move(0, 1, 25, "full")], portion_bytes=10)
    state = ended(state, 0, (0,))
    state = after(state, records(0, 0, chosen=[(Chosen(1, (), 0, "none fits"),), ()]))
    assert state.moves == ()


def test_parts_give_way_to_a_slot_that_would_have_another_shape(new) -> None:
    for proposal, moves in ((Proposal(), 1), (Proposal(parse("(a b)"), 1), 0)):
        shapes = (SlotShape(parse("(a b)"), proposal), SlotShape(parse("(a b)"), Proposal()))
        state = replace(begin(new, [Move(0, 1, 25, "full")], portion_bytes=10), shapes=shapes)
        assert len(ended(state, 0, (0,)).moves) == moves


def test_move_of_everything_is_one_part(new) -> None:
    state = begin(new, [Move(0, 1, 25, "goes", 4, everything=True)], portion_bytes=10)
    assert (state.moves[0].wanted_bytes, state.moves[0].left_bytes) == (25, 0)


def test_move_that_was_given_up_is_not_followed(new) -> None:
    state = begin(new, [Move(0, 1, 25, "full")], portion_bytes=10)
    state = after(state, records(0, 0, chosen=[(Chosen(0, (0,), 1, "test"),), ()]))
    state = after(state, records(0, 0))
    state, _ = resume(state, [(SendFailed(0, "lost"), 0.0)] * 3)
    assert state.moves[0].phase is Phase.ROLLING_BACK
    assert after(state, records(0, 0)).moves == ()

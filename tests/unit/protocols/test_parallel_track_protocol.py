"""The parallel track: its table, its code and the paper's five messages say the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_relocation_protocol import MESSAGES

from spillway.codec import decode, encode
from spillway.coordinator.batch.moves import announced, answers, copied, orders_of, routed, told_of
from spillway.errors import QueryError
from spillway.metrics.events import (
    STEPS,
    TRACK_STEPS,
    Event,
    GroupsDeleted,
    MoveRolledBack,
    TrackGivenUp,
)
from spillway.metrics.record import Chosen, SlotRecord
from spillway.protocols.engine import PROTOCOLS, begun, delivered, following
from spillway.protocols.messages import (
    AllOldPurged,
    ComputePartitionsToMove,
    DuplicatePartitions,
    EndOfPartitions,
    GivenUp,
    Message,
    PartitionsToMove,
)
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.parallel_track import SAYS, TRANSITIONS, ParallelTrack
from spillway.protocols.relocation import Relocation
from spillway.routing.routing import Routing
from spillway.settings import MOVES
from spillway.slot.orders import (
    Choose,
    Delete,
    Duplicate,
    Pick,
    Rejoin,
    Shadow,
)

MOVE = ParallelTrack(4, 0, 1, 100, 2, False, "M_least/M_max = 0.40 < 0.80")
PHASES = [*SAYS, Phase.ENDED]
HEARD: list[Message] = [
    PartitionsToMove(4, (2, 5), 90),
    AllOldPurged(4),
    EndOfPartitions(4),
]
#: PLANS 3.2, in its order.
PAPER = [
    "ComputePartitionsToMove",
    "PartitionsToMove",
    "DuplicatePartitions",
    "AllOldPurged",
    "DeletePartitions",
]


def in_phase(phase: Phase) -> ParallelTrack:
    chosen = phase not in (Phase.COMPUTING, Phase.ENDED)
    return replace(MOVE, phase=phase, groups=(2, 5) if chosen else (), bytes=90 * chosen)


def answer(slot: int, **more: object) -> SlotRecord:
    none = (0, 0)
    fixed = (7, slot, "m", none, none, 0, (None, None), none, none, none, "w")
    return SlotRecord(*fixed, **more)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("message", MESSAGES, ids=str)
def test_table_and_code_agree(phase: Phase, message: Message) -> None:
    move = in_phase(phase)
    before = encode(move)
    allowed = TRANSITIONS.get((phase, type(message)))
    if allowed is None:
        with pytest.raises(QueryError) as refused:
            move.step(message, 9.0)
        assert f"move 4 is {phase.value} and cannot accept {message}" in str(refused.value)
    else:
        after = move.step(message, 9.0)
        assert after.phase in allowed
        assert after.since_s == 9.0
    assert encode(move) == before


def test_every_phase_of_the_table_is_reached_by_some_message() -> None:
    reached = {
        (phase, kind, in_phase(phase).step(message).phase)
        for (phase, kind) in TRANSITIONS
        for message in MESSAGES
        if type(message) is kind
    }
    assert reached == {(*key, phase) for key, phases in TRANSITIONS.items() for phase in phases}


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_but_the_last_says_something_and_leads_to_the_end(phase: Phase) -> None:
    ending = {Phase.ENDED}
    for _ in Phase:
        ending |= {before for (before, _), afters in TRANSITIONS.items() if afters & ending}
    assert phase in ending
    assert in_phase(phase).says == (None if phase is Phase.ENDED else SAYS[phase](4))


def test_messages_of_the_paper_occur_in_its_order() -> None:
    move = MOVE
    spoken = [move.says]
    for message in HEARD:
        spoken.append(message)
        move = move.step(message)
        spoken.append(move.says)
    names = [type(one).__name__ for one in spoken if one is not None]
    assert names == [*PAPER, "EndOfPartitions"]
    assert [event.message for event in TRACK_STEPS] == PAPER
    assert TRACK_STEPS[:2] == STEPS[:2]


@pytest.mark.parametrize("phase", PHASES)
def test_track_comes_back_from_json_as_it_was(phase: Phase) -> None:
    for one in (in_phase(phase), replace(in_phase(phase), pick=Pick("load", 0.25, 700))):
        assert decode(GroupMove, encode(one)) == one


def test_every_protocol_can_be_asked_for() -> None:
    assert [*PROTOCOLS, "auto"] == list(MOVES)


def test_orders_and_routing_follow_the_phases() -> None:
    routing, groups = Routing.even(6, 2), (4, (1, 2))

    def told(phase: Phase) -> dict:
        return orders_of([replace(in_phase(phase), groups=groups[1])], (), ("a", "b"))

    assert told(Phase.COMPUTING) == {0: (Choose(4, 100, 2, in_memory=True),)}
    assert told(Phase.DUPLICATING) == {0: (Duplicate(*groups),), 1: (Shadow(*groups),)}
    assert told(Phase.DELETING) == {0: (Delete(*groups),)}
    assert told(Phase.ROLLING_BACK) == {0: (Rejoin(4),), 1: (Delete(*groups),)}
    for phase, slot in [(Phase.DUPLICATING, 1), (Phase.ROLLING_BACK, 0)]:
        table = routed(routing, [replace(in_phase(phase), groups=(1, 2))]).table
        assert (table[1], table[2]) == (slot, slot)
    assert copied([in_phase(Phase.DUPLICATING)]) == {2: 0, 5: 0}
    assert copied([in_phase(Phase.DELETING), in_phase(Phase.ROLLING_BACK)]) == {}
    orders = [order for phase in SAYS for told_ in told(phase).values() for order in told_]
    assert [decode(type(one), encode(one)) for one in orders] == orders


def test_records_and_commits_answer_the_phases() -> None:
    chosen = Chosen(4, (2, 5), 90, "why")
    silent = {0: answer(0, chosen=(chosen,)), 1: answer(1)}
    purged = {0: answer(0, purged=(4,)), 1: answer(1)}
    asked = PartitionsToMove(4, (2, 5), 90, "why")
    assert answers([in_phase(Phase.COMPUTING)], silent) == [asked]
    assert answers([in_phase(Phase.DUPLICATING)], silent) == []
    assert answers([in_phase(Phase.DUPLICATING)], purged) == [AllOldPurged(4)]
    for phase in (Phase.DELETING, Phase.ROLLING_BACK):
        assert answers([in_phase(phase)], purged) == [EndOfPartitions(4)]


def test_duplication_is_announced_once() -> None:
    moves, heard = delivered([MOVE], [PartitionsToMove(4, (2, 5), 90)])
    assert announced(moves, heard) == [(DuplicatePartitions(4), moves[0])]
    assert announced(moves, []) == []
    assert following(heard, 9) == []


def test_every_step_is_told() -> None:
    move, told = MOVE, [told_of(ComputePartitionsToMove(4), MOVE, 0.0, batch=1)]
    for number, message in enumerate(HEARD):
        told.append(told_of(message, move, 2.0, batch=number))
        move = move.step(message, 1.0)
        if number == 0:
            told.append(told_of(move.says, move, 2.0, batch=number))
    assert tuple(map(type, told)) == TRACK_STEPS
    assert [decode(Event, encode(one)) for one in told] == told
    assert isinstance(told[-1], GroupsDeleted)
    back = in_phase(Phase.ROLLING_BACK)
    assert type(told_of(EndOfPartitions(4), back, 0.0, batch=1)) is MoveRolledBack
    given_up = told_of(GivenUp(4, "no memory"), in_phase(Phase.DUPLICATING), 0.0, batch=1)
    assert (type(given_up), given_up.reason, given_up.groups) == (TrackGivenUp, "no memory", (2, 5))


def test_slot_takes_part_in_one_move_whatever_its_protocol() -> None:
    with pytest.raises(QueryError, match="slot 2 cannot send to slot 1 now"):
        begun([MOVE], [Relocation(5, 2, 1, 1, 0, False, "another")])

"""The relocation protocol: its table, its code and the paper's eight messages say the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.codec import decode, encode
from spillway.errors import BUG, QueryError
from spillway.metrics.events import STEPS
from spillway.protocols.engine import begun, busy, delivered
from spillway.protocols.messages import (
    AllOldPurged,
    ComputePartitionsToMove,
    Deactivated,
    DeactivatePartitions,
    DeletePartitions,
    DuplicatePartitions,
    EndOfPartitions,
    GivenUp,
    Message,
    PartitionsToMove,
    Reactivated,
    ReactivatePartitions,
    Received,
    ReceivePartitions,
    SendFailed,
    SendPartitions,
)
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.relocation import MOST_FAILURES, SAYS, TRANSITIONS, Relocation
from spillway.slot.orders import Pick

MOVE = Relocation(4, 0, 1, 100, 2, False, "M_least/M_max = 0.40 < 0.80")

#: Of each type of message, those that could lead to different phases.
MESSAGES: list[Message] = [
    ComputePartitionsToMove(4),
    PartitionsToMove(4, (), 0),
    PartitionsToMove(4, (2, 5), 90, "most productive"),
    DeactivatePartitions(4),
    Deactivated(4),
    SendPartitions(4),
    ReceivePartitions(4),
    Received(4, "manifests/part.json", 88),
    ReactivatePartitions(4),
    Reactivated(4),
    SendFailed(4, "a host is gone"),
    DuplicatePartitions(4),
    AllOldPurged(4),
    DeletePartitions(4),
    EndOfPartitions(4),
    GivenUp(4, "the input has ended"),
]

#: Those that a relocation has.
PHASES = [*SAYS, Phase.ENDED]

#: What the coordinator hears in a run that goes well.
HEARD: list[Message] = [
    PartitionsToMove(4, (2, 5), 90),
    Deactivated(4),
    ReceivePartitions(4),
    Received(4, "manifests/part.json", 88),
    Reactivated(4),
]

#: DCAPE-TR 5.1, in its order.
PAPER = [
    "ComputePartitionsToMove",
    "PartitionsToMove",
    "DeactivatePartitions",
    "Deactivated",
    "SendPartitions",
    "ReceivePartitions",
    "Received",
    "ReactivatePartitions",
]


def in_phase(phase: Phase, failures: int = 0) -> Relocation:
    chosen = phase not in (Phase.COMPUTING, Phase.ENDED)
    groups, size = ((2, 5), 90) if chosen else ((), 0)
    part = "manifests/part.json" if phase is Phase.REACTIVATING else ""
    return replace(MOVE, phase=phase, groups=groups, bytes=size, part=part, failures=failures)


def all_messages(kind: type[Message] = Message) -> set[type[Message]]:
    below = kind.__subclasses__()
    return {*below, *(one for each in below for one in all_messages(each))}


def test_every_message_is_tried() -> None:
    assert {type(message) for message in MESSAGES} == all_messages()


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("message", MESSAGES, ids=str)
@pytest.mark.parametrize("failures", range(MOST_FAILURES))
def test_table_and_code_agree(phase: Phase, message: Message, failures: int) -> None:
    move = in_phase(phase, failures)
    before = encode(move)
    allowed = TRANSITIONS.get((phase, type(message)))
    if allowed is None:
        with pytest.raises(QueryError) as refused:
            move.step(message, 9.0)
        assert f"move 4 is {phase.value} and cannot accept {message}" in str(refused.value)
        assert f"from slot 0 to slot 1, {len(move.groups)} groups" in str(refused.value)
    else:
        after = move.step(message, 9.0)
        assert after.phase in allowed
        assert after.since_s == 9.0
    assert encode(move) == before


def test_every_phase_of_the_table_is_reached_by_some_message() -> None:
    reached = {
        (phase, type(message), move.step(message).phase)
        for (phase, kind) in TRANSITIONS
        for message in MESSAGES
        if type(message) is kind
        for move in (in_phase(phase, failures) for failures in range(MOST_FAILURES))
    }
    assert reached == {(*key, phase) for key, phases in TRANSITIONS.items() for phase in phases}


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_but_the_last_says_something_and_can_be_left(phase: Phase) -> None:
    exits = {
        after for (before, _), afters in TRANSITIONS.items() if before is phase for after in afters
    }
    says = in_phase(phase).says
    if phase is Phase.ENDED:
        assert (says, exits) == (None, set())
    else:
        assert says == SAYS[phase](4)
        assert exits - {phase}


def test_every_phase_leads_to_the_end() -> None:
    ending = {Phase.ENDED}
    for _ in Phase:
        ending |= {before for (before, _), afters in TRANSITIONS.items() if afters & ending}
    assert ending == set(PHASES)


def test_messages_of_the_paper_occur_in_its_order() -> None:
    move = MOVE
    spoken = [move.says]
    for message in HEARD:
        spoken.append(message)
        move = move.step(message)
        spoken.append(move.says)
    names = [type(one).__name__ for one in spoken if one is not None]
    # A receiving coordinator would say again what it said when sending began.
    assert names == [*PAPER[:6], "SendPartitions", *PAPER[6:], "Reactivated"]
    assert [event.message for event in STEPS] == PAPER
    assert move.phase is Phase.ENDED


def test_message_to_another_move_is_refused() -> None:
    with pytest.raises(QueryError, match="move 4 is computing and cannot accept"):
        MOVE.step(PartitionsToMove(5, (1,), 9))


def test_sender_that_has_nothing_to_send_ends_the_move() -> None:
    assert MOVE.step(PartitionsToMove(4, (), 0)).phase is Phase.ENDED


@pytest.mark.parametrize("begun_to_arrive", [False, True])
def test_failures_are_repeated_and_then_rolled_back(begun_to_arrive: bool) -> None:
    move = in_phase(Phase.SENDING)
    for failures in range(1, MOST_FAILURES + 1):
        assert move.phase is Phase.SENDING
        move = move.step(ReceivePartitions(4)) if begun_to_arrive else move
        move = move.step(SendFailed(4, "a test"))
        assert move.failures == failures
    assert move.phase is Phase.ROLLING_BACK
    assert (move.groups, move.part) == ((2, 5), "")
    assert move.step(Reactivated(4)).phase is Phase.ENDED


@pytest.mark.parametrize("phase", Phase)
def test_move_comes_back_from_json_as_it_was(phase: Phase) -> None:
    move = replace(in_phase(phase, failures=2), since_s=12.5, everything=True)
    for one in (move, replace(move, pick=Pick("load", 0.25, 700))):
        assert decode(GroupMove, encode(one)) == one


def other(move: int, sender: int, receiver: int) -> Relocation:
    return replace(MOVE, move=move, sender=sender, receiver=receiver)


@pytest.mark.parametrize(("sender", "receiver"), [(0, 2), (2, 0), (1, 2), (2, 1), (1, 0), (2, 2)])
def test_slot_takes_part_in_one_move_at_a_time(sender: int, receiver: int) -> None:
    with pytest.raises(QueryError) as refused:
        begun((MOVE,), [other(5, sender, receiver)])
    assert str(refused.value) == (
        f"slot {sender} cannot send to slot {receiver} now\n"
        f"  detail: slots already in moves: [0, 1]\n  hint: {BUG}"
    )


def test_slots_are_busy_as_long_as_their_move_goes_on() -> None:
    moves = begun((MOVE,), [other(5, 3, 2)])
    assert busy(moves) == {0, 1, 2, 3}
    left, _ = delivered(moves, [PartitionsToMove(4, (), 0)])
    assert busy(left) == {2, 3}


def test_message_to_no_move_is_refused() -> None:
    with pytest.raises(
        QueryError, match=r"Deactivated\(move=7\) is for move 7, which is not in progress"
    ):
        delivered((MOVE,), [Deactivated(7)])


def test_ended_moves_are_gone_and_others_are_as_they_were() -> None:
    waiting = other(5, 3, 2)
    moves, heard = delivered((MOVE, waiting), HEARD, 3.0)
    assert moves == (waiting,)
    assert [message for message, _ in heard] == HEARD
    assert heard[0][1] == MOVE
    assert heard[-1][1].phase is Phase.REACTIVATING


def test_what_was_being_received_before_a_crash_is_sent_again() -> None:
    """The record of a batch may have a move that is receiving; the next start sends it once more."""
    receiving = replace(Relocation(1, 0, 1, 10, 0, False, "a test"), phase=Phase.RECEIVING)
    assert receiving.step(ReceivePartitions(1)).phase is Phase.RECEIVING
    assert receiving.step(ReceivePartitions(1)).step(Received(1, "part", 5)).part == "part"

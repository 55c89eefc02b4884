"""Moves of any number and protocol, in any order, with any crash: no group is ever lost or served twice.

The machine drives the coordinator as the loop does, with records that are made up: batches and rounds
commit and go through the log's text; what was received or failed is said between them; a crash goes
back to the last record, sometimes with the note of a batch that was begun. A model knows where the
state of each group is and which rows wait for it, and every order must make sense there.
"""

from __future__ import annotations

import itertools
from copy import deepcopy
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from spillway.checkpoint.log import note_of, note_text, record_of, record_text
from spillway.coordinator.adaptation import begin, give_up, resume
from spillway.coordinator.commit import commit_batch
from spillway.coordinator.committed import Committed, initial
from spillway.coordinator.plan import BatchPlan, Note, new_note, plan_batch, plan_round
from spillway.ids import SlotId
from spillway.metrics.events import (
    STEPS,
    TRACK_STEPS,
    Event,
    GroupsChosen,
    MoveEvent,
    SendingFailed,
    TrackGivenUp,
)
from spillway.metrics.record import Chosen, SlotRecord
from spillway.policies.cluster.strategy import Move
from spillway.protocols.engine import busy
from spillway.protocols.messages import Received, ReceivePartitions, SendFailed, SendPartitions
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.protocols.relocation import MOST_FAILURES
from spillway.routing.routing import Routing
from spillway.slot.orders import (
    Arrive,
    Choose,
    Delete,
    Depart,
    Duplicate,
    Leave,
    Park,
    Rejoin,
    Shadow,
    TakeBack,
)

GROUPS, STREAMS = 12, 2
SENT = (Phase.SENDING, Phase.RECEIVING)


def through_text(state: Committed) -> Committed:
    return record_of(record_text(state))


def note_through_text(note: Note) -> Note:
    return note_of(note_text(note))


@dataclass
class Places:
    """Where the state of every group is, and its rows."""

    #: The slot that has the state of a group, and the move it is cut out for, if it is.
    slot: dict[int, int]
    move: dict[int, int | None] = field(default_factory=dict)
    #: Batches whose rows are in the state of a group, in the order they were processed.
    rows: dict[int, list[int]] = field(default_factory=dict)
    #: By slot and move, the rows that wait for each group.
    parked: dict[tuple[int, int], dict[int, list[int]]] = field(default_factory=dict)
    #: The groups that two slots serve: their move, and the rows of the one that has no others.
    track: dict[int, int] = field(default_factory=dict)
    newer: dict[int, list[int]] = field(default_factory=dict)
    #: What each slot last wrote.
    manifests: dict[int, str | None] = field(default_factory=dict)

    def run(self, plan: BatchPlan, parts: dict[int, str], *, rows: bool) -> None:
        """One batch or round; anything that a slot could not do fails."""
        told = [(slot, order) for slot, orders in plan.orders.items() for order in orders]
        flushed: set[int] = set()
        moves = {move.move: move for move in plan.moves}
        # The sender cuts groups out in the same batch that lets their rows wait, so it goes first.
        for slot, order in sorted(told, key=lambda one: isinstance(one[1], Park | Leave | Delete)):
            move = moves[order.move]
            match order:
                case Choose():
                    assert slot == move.sender
                case Depart(groups=groups):
                    assert groups
                    assert all(self.slot[g] == slot for g in groups)
                    assert all(self.move[g] is None for g in groups)
                    self.move |= dict.fromkeys(groups, order.move)
                case Park(groups=groups):
                    assert slot == move.receiver
                    assert {self.move[g] for g in groups} == {order.move}
                case Arrive(part=part):
                    assert part == parts[order.move] != ""
                    self._serve(slot, order.move, self.parked.pop((slot, order.move), {}))
                    flushed.add(order.move)
                case TakeBack(parked_in=name):
                    assert all(self.slot[g] == slot for g in self.cut_out(order.move))
                    assert name == self.manifests[move.receiver]
                    there = (move.receiver, order.move)
                    self._serve(slot, order.move, deepcopy(self.parked.get(there, {})))
                    flushed.add(order.move)
                case Duplicate(groups=groups):
                    assert {self.slot[g] for g in groups} == {slot} == {move.sender}
                    assert all(self.move[g] is None for g in groups)
                    assert {self.track.get(g, order.move) for g in groups} == {order.move}
                    self.track |= dict.fromkeys(groups, order.move)
                    self.newer = {g: [] for g in groups} | self.newer
                case Shadow(groups=groups):
                    assert slot == move.receiver
                case Delete(groups=groups) if slot == move.sender:
                    assert self._end_track(order.move) == sorted(groups)
                    self.slot |= dict.fromkeys(groups, move.receiver)
                case Rejoin():
                    assert slot == move.sender
                    # It may be given up before its first batch.
                    assert self._end_track(order.move) in (sorted(move.groups), [])
                case Delete(groups=groups):
                    assert slot == move.receiver
                    assert not set(groups) & set(self.track)
                case Leave():
                    assert order.move in flushed
                    self.parked.pop((slot, order.move), None)
        if rows:
            self._take_rows(plan)

    def cut_out(self, move: int) -> list[int]:
        return [group for group, one in self.move.items() if one == move]

    def _end_track(self, move: int) -> list[int]:
        """One slot serves the groups of a track from now on; returns them."""
        groups = sorted(group for group, one in self.track.items() if one == move)
        for group in groups:
            del self.track[group], self.newer[group]
        return groups

    def _serve(self, slot: int, move: int, waiting: dict[int, list[int]]) -> None:
        """A slot has the groups of a move from now on; the rows that waited come first."""
        assert self.cut_out(move)
        for group in self.cut_out(move):
            self.slot[group], self.move[group] = slot, None
            self.rows[group] += waiting.pop(group, [])
        assert waiting == {}

    def _take_rows(self, plan: BatchPlan) -> None:
        """Every group gets a row, where the routing sends it."""
        moves = {move.move: move for move in plan.moves}
        assert set(plan.copies) == set(self.track)
        for group, slot in enumerate(plan.routing.table):
            if group in self.track:
                assert slot == moves[self.track[group]].receiver
                assert plan.copies[group] == self.slot[group] != slot
                self.rows[group].append(plan.batch)
                self.newer[group].append(plan.batch)
                continue
            parks = [o for o in plan.orders.get(slot, ()) if isinstance(o, Park)]
            waits = [order.move for order in parks if group in order.groups]
            if waits:
                here = self.parked.setdefault((slot, waits[0]), {})
                here.setdefault(group, []).append(plan.batch)
            else:
                assert (self.slot[group], self.move[group]) == (slot, None)
                self.rows[group].append(plan.batch)


class Relocations(RuleBasedStateMachine):
    """A coordinator, its log, and a model of the slots."""

    @initialize(slots=st.integers(2, 6))
    def start(self, slots: int) -> None:
        self.state = self.logged = initial(Routing.even(GROUPS, slots), STREAMS)
        everything = range(GROUPS)
        self.places = Places(
            dict(enumerate(self.state.routing.table)),
            dict.fromkeys(everything),
            {group: [] for group in everything},
            manifests=dict.fromkeys(range(slots)),
        )
        #: Names of what was received, as far as the coordinator knows of it.
        self.parts: dict[int, str] = {}
        #: Moves that the next commit begins, as an evaluation would.
        self.asked: list[Move] = []
        self.beside: tuple[Event, ...] = ()
        #: A batch that was begun before a crash: its plan then, and the note.
        self.begun: tuple[BatchPlan, Note] | None = None
        self.told: dict[int, list[MoveEvent]] = {}
        self.names = itertools.count()
        #: Moves of which a crash has taken events that were not committed.
        self.interrupted: set[int] = set()

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        taken = busy(self.state.moves) | {s for m in self.asked for s in (m.sender, m.receiver)}
        free = [slot for slot in range(self.state.routing.slots) if slot not in taken]
        if len(free) > 1:
            pair = data.draw(st.permutations(free))
            everything = data.draw(st.booleans())
            protocol = data.draw(st.sampled_from(["mslb", "ptlb"]))
            how = {"everything": everything, "protocol": protocol}
            self.asked.append(Move(pair[0], pair[1], 10, "a test", **how))

    @rule(data=st.data(), round_=st.booleans(), limit=st.none() | st.integers(1, 9))
    def run(self, data: st.DataObject, round_: bool, limit: int | None) -> None:
        plan = self.planned(round_ and self.begun is None, limit)
        self.places.run(plan, self.parts, rows=plan.batch > self.state.batch)
        records = {
            slot: self.record(data, plan, slot, f"manifests/{next(self.names)}")
            for slot in range(plan.routing.slots)
        }
        state = commit_batch(self.state, plan, records, [None] * STREAMS, 1.0, self.beside)
        for move in self.asked:
            state = begin(state, [move])
        self.state = self.logged = through_text(state)
        assert self.logged == state
        self.places.manifests = {slot: one.manifest for slot, one in records.items()}
        self.tell(plan)
        self.asked, self.beside, self.begun = [], (), None

    @precondition(lambda self: self.begun is None)
    @rule(data=st.data(), fails=st.sampled_from([False, False, True]))
    def say(self, data: st.DataObject, fails: bool) -> None:
        """One of the moves that are being sent hears of it, perhaps of the beginning only."""
        sent = [move for move in self.state.moves if move.phase in SENT]
        if not sent:
            return
        move = data.draw(st.sampled_from(sent))
        said = [SendPartitions(move.move)]
        if fails:
            said.append(SendFailed(move.move, "a test"))
        else:
            if move.phase is Phase.SENDING:
                said.append(ReceivePartitions(move.move))
            if data.draw(st.integers(0, 3)):
                name = f"manifests/part-{next(self.names)}"
                said.append(Received(move.move, name, 1))
                self.parts[move.move] = name
        self.state, events = resume(self.state, [(message, 0.5) for message in said])
        self.beside += events

    @precondition(lambda self: self.begun is None)
    @rule()
    def give_up(self) -> None:
        self.state, events = give_up(self.state, "a test")
        self.beside += events

    @precondition(lambda self: self.begun is None)
    @rule(begins=st.booleans(), limit=st.none() | st.integers(1, 9))
    def crash(self, begins: bool, limit: int | None) -> None:
        """Back to the last record; slots may have done a batch already, which then never was."""
        if begins:
            plan = self.planned(False, limit)
            deepcopy(self.places).run(plan, self.parts, rows=True)
            self.begun = plan, note_through_text(plan.note)
        self.interrupted |= {event.move for event in self.beside if isinstance(event, MoveEvent)}
        self.state, self.asked, self.beside = self.logged, [], ()

    def planned(self, round_: bool, limit: int | None) -> BatchPlan:
        limits = dict.fromkeys(range(self.state.routing.slots), limit)
        if round_:
            return plan_round(self.state, new_note(self.state, limits))
        number = self.state.batch + 1
        if self.begun is None:
            return plan_batch(self.state, number, memory_bytes=limits)
        before, note = self.begun
        again = plan_batch(self.state, number, memory_bytes=limits, note=note)
        assert again == before
        return again

    def record(self, data: st.DataObject, plan: BatchPlan, slot: int, manifest: str) -> SlotRecord:
        orders = [order for order in plan.orders.get(slot, ()) if isinstance(order, Choose)]
        owned = plan.routing.groups_of(SlotId(slot))
        chosen = tuple(
            Chosen(order.move, self.choice(data, order, owned), 8, "a test") for order in orders
        )
        purged = tuple(
            move.move
            for move in plan.moves
            if (move.phase, move.sender) == (Phase.DUPLICATING, slot) and data.draw(st.booleans())
        )
        none = (0,) * STREAMS
        return SlotRecord(
            *(plan.batch, slot, manifest, none, none, 0, (None,) * STREAMS, none, none, none, "w"),
            chosen=chosen,
            purged=purged,
        )

    def choice(self, data: st.DataObject, order: Choose, owned: tuple[int, ...]) -> tuple[int, ...]:
        if order.everything or not owned:
            return owned
        return tuple(sorted(data.draw(st.sets(st.sampled_from(owned), max_size=3))))

    def tell(self, plan: BatchPlan) -> None:
        for event in self.logged.events:
            if isinstance(event, MoveEvent):
                self.told.setdefault(event.move, []).append(event)
        going_on = {move.move for move in self.logged.moves}
        for move in plan.moves:
            if move.move not in going_on:
                self.ended(move)

    def ended(self, move: GroupMove) -> None:
        """Nothing of a move is left, and it was told step by step."""
        serves = move.sender if move.phase is Phase.ROLLING_BACK else move.receiver
        assert {self.places.slot[group] for group in move.groups} <= {serves}
        assert self.places.cut_out(move.move) == []
        assert all(one != move.move for _, one in self.places.parked)
        kinds = [type(event) for event in self.told[move.move]]
        if move.move in self.interrupted:
            return
        if move.phase is Phase.DELETING:
            assert kinds == list(TRACK_STEPS)
        elif isinstance(move, ParallelTrack) and move.phase is Phase.ROLLING_BACK:
            assert kinds.count(TrackGivenUp) == 1
        elif move.phase is Phase.REACTIVATING:
            well = [one for at, one in enumerate(kinds) if one not in kinds[:at]]
            assert [one for one in well if one is not SendingFailed] == list(STEPS)
        elif move.phase is Phase.ROLLING_BACK:
            assert kinds.count(SendingFailed) == MOST_FAILURES
        else:
            assert kinds[-1] is GroupsChosen

    @invariant()
    def moves_are_apart(self) -> None:
        if not hasattr(self, "state"):
            return
        moves = self.state.moves
        slots = [slot for move in moves for slot in move.slots]
        groups = [group for move in moves for group in move.groups]
        assert len(set(slots)) == len(slots)
        assert len(set(groups)) == len(groups)

    @invariant()
    def rows_reach_the_slot_that_has_or_will_have_the_state(self) -> None:
        if not hasattr(self, "state"):
            return
        moves = {move.move: move for move in self.logged.moves}
        for group, slot in enumerate(self.logged.routing.table):
            away = self.places.move[group]
            away = self.places.track.get(group, away)
            serves = self.places.slot[group] if away is None else moves[away].receiver
            assert slot == serves
        assert {move for _, move in self.places.parked} <= set(moves)

    @invariant()
    def no_row_is_lost_or_overtaken(self) -> None:
        """Rows of a group are processed in the order they came, and those that wait came last."""
        if not hasattr(self, "state"):
            return
        came = None
        for group, rows in self.places.rows.items():
            newer = self.places.newer.get(group, [])
            assert rows[len(rows) - len(newer) :] == newer
            waits = [one[group] for one in self.places.parked.values() if group in one]
            assert len(waits) <= 1
            mine = rows + [batch for one in waits for batch in one]
            assert came in (None, mine)
            came = mine
        assert came == sorted(came or [])


Relocations.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestRelocations = Relocations.TestCase

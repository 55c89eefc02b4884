"""Moves of any number and protocol, in any order, with any crash: no group is ever lost or served twice.

The machine runs the product's conductor and coordinator with made-up records: batches and rounds
commit and go through the log's text; what was received or failed is said between them; a crash goes
back to the last record, sometimes with the note of a batch or round that was begun. A model knows
where the state of each group is and which rows wait for it; every order must make sense there.
"""

from __future__ import annotations

import itertools
from copy import deepcopy
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from spillway.codec import decode, encode
from spillway.coordinator.batch.committed import Committed, Mark, initial
from spillway.coordinator.batch.plan import BatchPlan, Note
from spillway.coordinator.batch.references import References
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.effects import DiscardFiles, SendGroups, StepReached
from spillway.coordinator.terms import Terms
from spillway.coordinator.took import Took
from spillway.coordinator.wishes import LimitMemory
from spillway.ids import SlotId
from spillway.metrics.events import (
    STEPS,
    TRACK_STEPS,
    GroupsChosen,
    MoveEvent,
    SendingFailed,
    TrackGivenUp,
)
from spillway.metrics.record import Chosen, SlotRecord
from spillway.policies.cluster.decision import Move
from spillway.protocols.engine import busy
from spillway.protocols.messages import (
    Message,
    Received,
    ReceivePartitions,
    SendFailed,
    SendPartitions,
)
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
from spillway.testing.simulated.told import Script, told_rules
from tier import examples

GROUPS, STREAMS = 12, 2


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


class TextHost:
    """Keeps notes and records as text, as a checkpoint does; what is sent arrives when told to."""

    def __init__(self) -> None:
        self.notes: dict[Mark, bytes] = {}
        self.record: bytes | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forgets what a crash takes."""
        #: The moves that are being sent, and whether the receiver has heard of it.
        self.due: dict[int, bool] = {}
        self.said: list[tuple[Message, float]] = []

    def note(self, mark: Mark) -> Note | None:
        return decode(Note, self.notes[mark]) if mark in self.notes else None

    def write_note(self, mark: Mark, note: Note) -> None:
        self.notes[mark] = encode(note)
        assert decode(Note, self.notes[mark]) == note

    def append(self, state: Committed) -> None:
        self.record = encode(state)
        assert decode(Committed, self.record) == state

    def send(self, groups: SendGroups) -> None:
        assert groups.move.move not in self.due
        self.due[groups.move.move] = False
        self.said.append((SendPartitions(groups.move.move), 0.5))

    def messages(self) -> list[tuple[Message, float]]:
        said, self.said = self.said, []
        return said

    def finish_sending(self) -> None:
        raise AssertionError("nothing waits")

    def reroute(self, state: Committed, routing: Routing) -> tuple[Committed, References]:
        raise AssertionError("the number of slots stays")

    def discard(self, files: DiscardFiles) -> None: ...

    def prepare_moves(self) -> None: ...

    def reach(self, step: StepReached) -> None: ...


class Relocations(RuleBasedStateMachine):
    """A coordinator, its log, and a model of the slots."""

    @initialize(slots=st.integers(2, 6))
    def start(self, slots: int) -> None:
        self.host, self.script = TextHost(), Script()
        self.first = self.logged = initial(Routing.even(GROUPS, slots), STREAMS)
        self.open()
        everything = range(GROUPS)
        self.places = Places(
            dict(enumerate(self.first.routing.table)),
            dict.fromkeys(everything),
            {group: [] for group in everything},
            manifests=dict.fromkeys(range(slots)),
        )
        #: Names of what was received, as far as the coordinator knows of it.
        self.parts: dict[int, str] = {}
        #: The plan of a batch or round that was begun before a crash.
        self.begun: BatchPlan | None = None
        self.told: dict[int, list[MoveEvent]] = {}
        self.names = itertools.count()
        #: Moves of which a crash has taken events that were not committed.
        self.interrupted: set[int] = set()

    def open(self) -> None:
        """A start of the query."""
        self.host.begin_anew()
        self.script.decisions.clear()
        terms, rules = Terms((None,) * STREAMS), told_rules(self.script, 1e9)
        self.conductor = Conductor(Coordinator(terms, self.logged, rules), self.host)

    @property
    def state(self) -> Committed:
        return self.conductor.state

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        asked = {s for m in self.script.decisions for s in (m.sender, m.receiver)}
        taken = busy(self.state.moves) | asked
        free = [slot for slot in range(self.state.routing.slots) if slot not in taken]
        if len(free) > 1:
            pair = data.draw(st.permutations(free))
            everything = data.draw(st.booleans())
            protocol = data.draw(st.sampled_from(["mslb", "ptlb"]))
            how = {"everything": everything, "protocol": protocol}
            self.script.decisions.append(Move(pair[0], pair[1], 10, "a test", **how))

    @rule(data=st.data(), round_=st.booleans(), limit=st.none() | st.integers(1, 9))
    def run(self, data: st.DataObject, round_: bool, limit: int | None) -> None:
        plan = self.planned(round_, limit)
        if plan is None:
            return
        self.places.run(plan, self.parts, rows=plan.batch > self.state.batch)
        records = {
            slot: self.record(data, plan, slot, f"manifests/{next(self.names)}")
            for slot in range(plan.routing.slots)
        }
        self.conductor.commit(plan, records, Took(1.0))
        self.logged = decode(Committed, self.host.record)
        self.places.manifests = {slot: one.manifest for slot, one in records.items()}
        self.tell(plan)
        self.begun, self.script.impatient = None, False

    @precondition(lambda self: self.host.due)
    @rule(data=st.data(), fails=st.sampled_from([False, False, True]))
    def say(self, data: st.DataObject, fails: bool) -> None:
        """One of the moves that are being sent hears of it, perhaps of the beginning only."""
        move = data.draw(st.sampled_from(sorted(self.host.due)))
        if fails:
            self.host.said.append((SendFailed(move, "a test"), 0.5))
            del self.host.due[move]
            return
        if not self.host.due[move]:
            self.host.said.append((ReceivePartitions(move), 0.5))
            self.host.due[move] = True
        if data.draw(st.integers(0, 3)):
            name = f"manifests/part-{next(self.names)}"
            self.host.said.append((Received(move, name, 1), 0.5))
            self.parts[move] = name
            del self.host.due[move]

    @rule()
    def give_up(self) -> None:
        self.script.impatient = True

    @precondition(lambda self: self.begun is None)
    @rule(begins=st.booleans(), round_=st.booleans(), limit=st.none() | st.integers(1, 9))
    def crash(self, begins: bool, round_: bool, limit: int | None) -> None:
        """Back to the last record; slots may have done a batch already, which then never was."""
        if begins and (plan := self.planned(round_, limit)) is not None:
            deepcopy(self.places).run(plan, self.parts, rows=plan.batch > self.state.batch)
            self.begun = plan
        lost = [*self.conductor.coordinator.told, *(message for message, _ in self.host.said)]
        self.interrupted |= {one.move for one in lost}
        self.open()

    def planned(self, round_: bool, limit: int | None) -> BatchPlan | None:
        limits = dict.fromkeys(range(self.state.routing.slots), limit)
        self.conductor.wish(LimitMemory(limits))
        if self.begun is not None:
            return self.again(self.begun)
        if round_ and self.state.batch >= 0:
            return self.conductor.begin_round(0, ())
        return self.conductor.begin_batch(self.state.batch + 1)

    def again(self, before: BatchPlan) -> BatchPlan:
        """The plan of what was begun: it must be what it was."""
        again = self.conductor.open_round()
        if again is None:
            again = self.conductor.begin_batch(before.batch)
        assert replace(again, sweep=before.sweep) == before
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
        if not hasattr(self, "conductor"):
            return
        moves = self.state.moves
        slots = [slot for move in moves for slot in move.slots]
        groups = [group for move in moves for group in move.groups]
        assert len(set(slots)) == len(slots)
        assert len(set(groups)) == len(groups)

    @invariant()
    def rows_reach_the_slot_that_has_or_will_have_the_state(self) -> None:
        if not hasattr(self, "conductor"):
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
        if not hasattr(self, "conductor"):
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


Relocations.TestCase.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None
)
TestRelocations = Relocations.TestCase

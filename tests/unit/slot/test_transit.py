"""Orders, as a slot carries them out: what waits, what comes, what goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillway.codec import decode, encode
from spillway.ids import HASH_END, SlotId, Version
from spillway.operators.cumulative import Cumulative
from spillway.operators.operator import Made, Results, Work
from spillway.operators.stats import OperatorStats
from spillway.policies.local.controller import LocalController
from spillway.routing.groups import group_of
from spillway.slot.admission import Fate, admission_of
from spillway.slot.intake import Intake
from spillway.slot.orders import (
    Arrive,
    Choose,
    Depart,
    Force,
    Leave,
    Order,
    Park,
    Pick,
    TakeBack,
)
from spillway.slot.transit import Transit
from spillway.state.layout.moving import of_move
from spillway.state.layout.shelf import StreamLayout
from spillway.state.manifest.combining import part_manifest
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot.state import SlotState

GROUPS, MOVE = 8, 3
#: One row per group and stream has this many hashes between it and the next.
STEP = HASH_END // GROUPS

ORDERS: list[Order] = [
    Choose(1, 500),
    Choose(1, 500, 2, True),
    Choose(1, 500, pick=Pick("size", most_bytes=900)),
    Depart(2, (3, 4)),
    Park(2, (3, 4)),
    Arrive(2, "manifests/part.json"),
    Leave(2),
    TakeBack(2, "manifests/receiver.json"),
    TakeBack(2, None),
    Force(700, "R_max/R_min = 3.0 > 2.0"),
    Force(700, "least productive of all slots", 5),
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_order_comes_back_from_json_as_it_was(order: Order) -> None:
    assert decode(type(order), encode(order)) == order


class Listener:
    """An operator that notes what it was given and how many rows the state had."""

    layouts = (StreamLayout("a"), StreamLayout("b"))
    untracked = ""

    def __init__(self) -> None:
        self.heard: list[tuple[int, list[list[int]]]] = []

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        return tuple(deltas)

    def process(self, state: SlotState, deltas: Sequence[RunData], work: Work) -> Made:
        there = sum(segment.rows for stream in range(2) for segment in state.segments(stream))
        self.heard.append((there, [ids(delta) for delta in deltas]))
        work.stats.count_outputs(np.concatenate([delta.h for delta in deltas]))
        yield pa.RecordBatch.from_pydict({"rows": [sum(delta.rows for delta in deltas)]})

    def missing(self, base, delta, work) -> Made:
        yield from ()


class Whole(Listener, Cumulative):
    """One that gets a batch when all its rows are there."""

    def results(self, old: Sequence[Segment], delta: RunData, stats: OperatorStats) -> Results:
        self.heard.append((sum(segment.rows for segment in old), [ids(delta)]))
        yield from ()
        return (delta,)


def rows(groups: Sequence[int], first: int) -> RunData:
    """A row for each of the groups, numbered from the first on."""
    h = np.array([group * STEP + 1 for group in groups], np.uint32)
    numbers = pa.array(np.arange(len(groups)) + first)
    return RunData(pa.RecordBatch.from_arrays([pa.array(h), numbers], ["_h", "c0"]))


def ids(data: RunData) -> list[int]:
    return data.batch.column(1).to_pylist() if data.batch.num_columns > 1 else []


@pytest.fixture
def store(tmp_path: Path) -> Store:
    tiers = [LocalTier(kind, tmp_path / kind) for kind in ("memory", "disk")]
    return Store(*tiers, open_durable(str(tmp_path / "durable")), OpenRuns(), 0)


class Slot:
    """One slot over some batches of two streams."""

    def __init__(self, slot: int, store: Store, shelf: dict[str, Manifest]) -> None:
        self.manifest = empty_manifest(SlotId(slot), 2)
        self.operator = Listener()
        self.batches = 0
        self._store = store
        self._shelf = shelf

    def batch(self, orders: Sequence[Order], *deltas: RunData) -> list[list[int]]:
        """Runs one batch; returns the rows of each stream that did not have to wait."""
        state = SlotState(
            self.manifest,
            self._store,
            self.operator.layouts,
            groups=GROUPS,
            version=Version(self.batches),
            attempt=f"t{self.manifest.slot}",
        )
        transit = Transit(state, orders, self._shelf.__getitem__)
        for _ in transit.before_batch(Intake(state, self.operator, OperatorStats(GROUPS))):
            pass
        self.staged = sum(rows.rows for found in state.staging.take() for rows in found if rows)
        admission = admission_of(state, self.operator, orders, np.zeros(GROUPS, np.bool_))
        for _ in Intake(state, self.operator, OperatorStats(GROUPS), admission).admit(deltas):
            pass
        kept = admission.arriving.cut(deltas)[Fate.PROCESS]
        for stream, delta in enumerate(kept):
            state.add(stream, delta)
        self.manifest = state.next_manifest({}, 0)
        self.chosen = transit.chosen(range(GROUPS), LocalController())
        self.parked_bytes = state.parked_bytes
        self.batches += 1
        return [ids(delta) for delta in kept]

    def groups(self) -> set[int]:
        """The groups that have rows that are probed."""
        return set(np.flatnonzero(self.manifest.groups.rows.sum(axis=0)).tolist())


@pytest.fixture
def shelf() -> dict[str, Manifest]:
    return {}


@pytest.fixture
def sender(store: Store, shelf: dict[str, Manifest]) -> Slot:
    """A slot with rows 0 to 3 of one stream and 10 to 13 of the other, in groups 0 to 3."""
    slot = Slot(0, store, shelf)
    slot.batch((), rows(range(4), 0), rows(range(4), 10))
    return slot


@pytest.fixture
def receiver(store: Store, shelf: dict[str, Manifest]) -> Slot:
    slot = Slot(1, store, shelf)
    slot.batch((), rows([6], 60), rows([6], 70))
    return slot


def received(sender: Slot, shelf: dict[str, Manifest]) -> str:
    """What has departed, as if it had been sent."""
    departure = of_move(sender.manifest.departures, MOVE)
    assert departure is not None
    part = part_manifest(SlotId(1), departure, departure.streams, sender.manifest.groups)
    shelf["part"] = part
    return "part"


def test_groups_of_the_rows_here_are_what_they_seem() -> None:
    assert group_of(rows(range(GROUPS), 0).h, GROUPS).tolist() == list(range(GROUPS))


def test_parked_rows_are_set_aside_and_no_others(receiver: Slot) -> None:
    left, right = rows(range(GROUPS), 100), rows([2, 3, 5], 200)
    kept = receiver.batch([Park(MOVE, (1, 2, 5))], left, right)
    assert kept == [[100, 103, 104, 106, 107], [201]]
    parked = of_move(receiver.manifest.parked, MOVE)
    assert parked is not None
    assert [sum(p.run.rows for x in s for p in x.slices) for s in parked.streams] == [3, 2]
    assert receiver.parked_bytes > 0
    assert receiver.groups() == {0, 3, 4, 6, 7}
    assert receiver.operator.heard == []


def test_batch_without_rows_for_moving_groups_is_as_it_came(receiver: Slot) -> None:
    assert receiver.batch([Park(MOVE, (1,))], rows([4, 6], 100), rows([], 0)) == [[100, 101], []]
    assert receiver.manifest.parked == ()
    assert receiver.parked_bytes == 0


def test_departed_groups_are_not_probed_any_more_and_nothing_is_lost(sender: Slot) -> None:
    sender.batch([Depart(MOVE, (1, 2))])
    assert sender.groups() == {0, 3}
    [departure] = sender.manifest.departures
    assert departure.groups == (1, 2)
    assert all(size > 0 for sizes in departure.sizes for size in sizes)
    assert sender.manifest.state_rows == (4, 4)


def test_arrived_groups_take_the_rows_that_waited_before_anything_else(
    sender: Slot, receiver: Slot, shelf: dict[str, Manifest]
) -> None:
    sender.batch([Depart(MOVE, (1, 2))])
    for at in (100, 200):
        receiver.batch([Park(MOVE, (1, 2))], rows([1, 6], at), rows([2], at + 50))
    kept = receiver.batch([Arrive(MOVE, received(sender, shelf))], rows([1], 300), rows([], 0))
    # Rows 60 and 70, three that did not wait, and four of the departure were there.
    assert receiver.operator.heard == [(8, [[100, 200], [150, 250]])]
    assert kept == [[300], []]
    assert receiver.groups() == {1, 2, 6}
    assert receiver.manifest.parked == ()
    assert receiver.manifest.state_rows == (8, 5)
    outputs = receiver.manifest.groups.outputs
    assert (outputs[1], outputs[2]) == (2, 2)


def test_rows_that_waited_are_staged_where_a_batch_is_processed_whole(
    sender: Slot, receiver: Slot, shelf: dict[str, Manifest]
) -> None:
    receiver.operator = Whole()
    sender.batch([Depart(MOVE, (1, 2))])
    receiver.batch([Park(MOVE, (1, 2))], rows([1, 6], 100), rows([2], 150))
    receiver.batch([Arrive(MOVE, received(sender, shelf))])
    assert receiver.staged == 2
    assert receiver.operator.heard == []
    assert receiver.manifest.parked == ()


def test_groups_arrive_also_where_nothing_waited(
    sender: Slot, receiver: Slot, shelf: dict[str, Manifest]
) -> None:
    sender.batch([Depart(MOVE, (1, 2))])
    receiver.batch([Arrive(MOVE, received(sender, shelf))])
    assert receiver.operator.heard == []
    assert receiver.groups() == {1, 2, 6}


def test_leaving_lets_go_of_what_departed_and_of_what_waited(sender: Slot, receiver: Slot) -> None:
    sender.batch([Depart(MOVE, (1, 2))])
    receiver.batch([Park(MOVE, (1, 2))], rows([1, 2], 100), rows([], 0))
    for slot, others in ((sender, {0, 3}), (receiver, {6})):
        slot.batch([Leave(MOVE)])
        assert (slot.manifest.departures, slot.manifest.parked) == ((), ())
        assert slot.groups() == others
        assert slot.operator.heard == []
    assert len(sender.manifest.runs()) == 2
    assert sender.manifest.groups.last_insert[1] < 0


def test_groups_that_are_taken_back_get_the_rows_that_waited_elsewhere(
    sender: Slot, receiver: Slot, shelf: dict[str, Manifest]
) -> None:
    before = sender.manifest.groups
    sender.batch([Depart(MOVE, (1, 2))])
    receiver.batch([Park(MOVE, (1, 2))], rows([1, 2], 100), rows([], 0))
    shelf["receiver"] = receiver.manifest
    sender.batch([TakeBack(MOVE, "receiver")], rows([1], 300), rows([], 0))
    assert sender.operator.heard == [(8, [[100, 101], []])]
    assert sender.groups() == {0, 1, 2, 3}
    assert sender.manifest.departures == ()
    more = sender.manifest.groups.rows - before.rows
    assert more.tolist() == [[0, 2, 1, 0, 0, 0, 0, 0], [0] * GROUPS]


def test_groups_are_taken_back_also_where_no_row_can_have_waited(sender: Slot) -> None:
    sender.batch([Depart(MOVE, (1, 2))])
    sender.batch([TakeBack(MOVE, None)])
    assert sender.groups() == {0, 1, 2, 3}
    assert sender.operator.heard == []


def test_groups_to_send_are_chosen_from_those_that_are_not_away(sender: Slot) -> None:
    sender.batch([Depart(MOVE, (1, 2)), Choose(MOVE + 1, 0, everything=True)])
    [answer] = sender.chosen
    assert answer.move == MOVE + 1
    assert set(answer.groups) == set(range(GROUPS)) - {1, 2}
    assert answer.bytes == int(sender.manifest.groups.size.sum())


def test_one_group_to_send_is_picked_by_its_load(sender: Slot) -> None:
    sender.batch([], rows([1] * 30 + [2] * 20 + [3] * 10, 300), rows([], 0))
    sender.batch([Choose(MOVE, 0, pick=Pick("load", share=0.4))])
    [answer] = sender.chosen
    assert answer.groups == (2,)
    assert answer.bytes == int(sender.manifest.groups.size[2])

"""The coordinator over simulated joins: the code that runs a query, driven by virtual time.

As in spillway_lab/simulator/cluster/control.py, a batch lies between two commits. Every slot answers
with a record; a `Conductor` commits them and plans the next orders and shapes. This module makes the
records and carries out orders.

A slot knows the rows that it got, processed or not, the rows and combinations that it stores, and how
many pairs match. Waiting rows take memory as state does: a slot that is behind is full (PLANS 3.2
compares the memory of machines).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from spillway.coordinator.batch.committed import Committed, initial
from spillway.coordinator.terms import Terms
from spillway.coordinator.took import Took
from spillway.ids import SlotId
from spillway.metrics.counts import Counts, Sampled
from spillway.metrics.events import Event
from spillway.metrics.groups import GroupNews, GroupSizes, GroupTable, Ints
from spillway.metrics.record import Chosen, SlotRecord
from spillway.policies.local.controller import LocalController
from spillway.policies.shape.costs import JoinRates, StreamRates
from spillway.policies.shape.proposal import Reshape
from spillway.policies.shape.shaping import TREE, Shaping, SlotShape
from spillway.protocols.move import GroupMove, Phase
from spillway.routing.routing import Routing
from spillway.slot.orders import Arrive, Choose, Delete, Depart, Duplicate, Order
from spillway_lab.simulator.host import MANIFEST, VirtualHost, conducted, next_batch
from spillway_lab.simulator.join.joining import Joining
from spillway_lab.simulator.join.scenario import NAMES, JoinScenario
from spillway_lab.simulator.join.shipping import Shipping


class Kept(Shaping):
    """Every slot keeps its shape."""

    def decided(
        self, slot: int, known: SlotShape, room_bytes: float | None
    ) -> tuple[Reshape | None, SlotShape]:
        """No change, whatever was measured."""
        del slot, room_bytes
        return None, known


class JoinControl:
    """The coordinator, and the controllers of the slots."""

    def __init__(self, scenario: JoinScenario) -> None:
        settings = scenario.settings
        self._scenario = scenario
        self._controller = LocalController(
            settings.victims, settings.amortised, settings.inactive_batches, settings.seed
        )
        routing = Routing.shared(scenario.groups, scenario.shares)
        self.joining = Joining(scenario, np.array(routing.table, np.int64))
        self.shipping = Shipping(self.joining)
        state = replace(initial(routing, len(NAMES)), shapes=_planned_shapes(scenario))
        self.conductor = conducted(_terms(scenario), state, VirtualHost(self.shipping))
        self._table = GroupTable.empty(scenario.groups, len(NAMES))
        self._counted = np.zeros(scenario.groups)
        self._since = 0
        self._plan = self.conductor.begin_batch(0)

    @property
    def state(self) -> Committed:
        """The committed state, with the messages since."""
        return self.conductor.state

    @property
    def table(self) -> GroupTable:
        """The statistics of the groups after the last batch."""
        return self._table

    def commit(self, now: int) -> tuple[Event, ...]:
        """Ends the batch and begins the next one; returns the events."""
        took = Took((now - self._since) * self._scenario.tick_s)
        self._count(now)
        records = {slot: self._record(slot, now) for slot in range(self._scenario.slots)}
        self._plan, events = next_batch(self.conductor, self._plan, records, took)
        self._since = now
        self._obey(now)
        return events

    def _obey(self, now: int) -> None:
        joining = self.joining
        for slot in range(self._scenario.slots):
            shape = self._plan.shape_of(slot)
            if shape is not None and shape != joining.shape[slot]:
                joining.reshape(slot, shape)
        moves = {move.move: move for move in self._plan.moves}
        for slot, orders in self._plan.orders.items():
            for order in orders:
                self._carry_out(slot, order, moves, now)

    def _carry_out(self, slot: int, order: Order, moves: dict[int, GroupMove], now: int) -> None:
        joining = self.joining
        match order:
            case Depart(groups=groups):
                joining.depart(np.array(groups, np.int64), now)
            case Arrive(move=number):
                joining.arrive(np.array(moves[number].groups, np.int64), slot)
            case Duplicate(move=number, groups=groups) if not joining.doubled(groups):
                joining.duplicate(np.array(groups, np.int64), moves[number].receiver, now)
            case Delete(groups=groups):
                joining.delete(np.array(groups, np.int64))
            case _:
                # Rows wait or continue where they are; slots choose at the end of the batch.
                pass

    def _count(self, now: int) -> None:
        """Adds new results to the statistics of the groups; fractions of a row stay."""
        news = GroupNews.none(self._plan.batch, len(self._table))
        made = np.floor(self.joining.made - self._counted)
        self._counted += made
        before = self.joining.combinations.before
        news.add_rows((before[:, :, now] - before[:, :, self._since]).sum(axis=0).astype(np.int64))
        news.add_outputs(made.astype(np.int64))
        groups = np.arange(len(self._table))
        size = self.joining.bytes(groups) + self.joining.queued_bytes(groups, now)
        rows = self.joining.stored(groups).astype(np.int64)
        none = np.zeros(len(groups), np.int64)
        whole = np.stack([rows, none, none]), np.stack([size.astype(np.int64), none, none])
        self._table = self._table.after(GroupSizes(*whole, none, none, none), news)

    def _record(self, slot: int, now: int) -> SlotRecord:
        joining = self.joining
        groups = np.array(self._plan.routing.groups_of(SlotId(slot)), np.int64)
        measured = _Measured.of(joining, slot, groups, self._since, now)
        made = tuple(node.name for node in joining.shape[slot].inner())
        record = SlotRecord(
            self._plan.batch,
            slot,
            MANIFEST,
            rows_in=measured.rows_in,
            rows_late=(0,) * len(NAMES),
            rows_out=measured.rows_out,
            max_times=(None,) * len(NAMES),
            state_rows=measured.state_rows,
            state_bytes=measured.state_bytes,
            layers=(0,) * (len(NAMES) + len(made)),
            worker="",
            shape=str(joining.shape[slot]),
            made=made,
            sampled=measured.sampled,
            chosen=self._chosen(slot),
            purged=tuple(
                move.move
                for move in self._plan.moves
                if move.phase is Phase.DUPLICATING and move.sender == slot
                if joining.purged(np.array(move.groups, np.int64))
            ),
            busy_s=float(joining.busy_s[slot]),
        )
        joining.busy_s[slot] = 0.0
        return record

    def _chosen(self, slot: int) -> tuple[Chosen, ...]:
        found = []
        for order in self._plan.orders.get(slot, ()):
            if isinstance(order, Choose):
                owned = self._plan.routing.groups_of(SlotId(slot))
                choice = self._controller.movers(
                    self._table.only(owned),
                    owned,
                    order.bytes,
                    least_groups=order.groups,
                    everything=order.everything,
                    pick=order.pick,
                )
                size = int(self._table.size[list(choice.groups)].sum())
                found.append(Chosen(order.move, choice.groups, size, choice.reason))
        return tuple(found)


@dataclass(frozen=True)
class _Measured:
    """What a slot reports at the end of a batch."""

    rows_in: tuple[int, ...]
    rows_out: int
    state_rows: tuple[int, ...]
    state_bytes: tuple[int, ...]
    sampled: Counts

    @classmethod
    def of(cls, joining: Joining, slot: int, groups: Ints, since: int, now: int) -> _Measured:
        before, scenario = joining.combinations.before, joining.scenario
        came = before[:, groups, now] - before[:, groups, since]
        units = joining.units_of(slot)
        rows = joining.rows(units)
        size = float(joining.bytes(units).sum())
        held = rows.sum(axis=1)
        made = len(list(joining.shape[slot].inner()))
        left = max(0.0, size - float(held.sum()) * scenario.row_bytes)
        waiting = int(joining.queued_bytes(units, now).sum())
        # All rows of a slot form pairs, but only rows of the same group can match.
        matches = rows @ rows.T * scenario.matching
        sampled: Counts = {
            Sampled(str(i), str(j)): (float(held[i] * held[j]), float(matches[i, j]))
            for i, j in permutations(range(len(NAMES)), 2)
            if held[i] * held[j] > 0
        }
        out = int(joining.slot_made[slot])
        joining.slot_made[slot] -= out
        return cls(
            tuple(came.sum(axis=1).astype(np.int64).tolist()),
            out,
            (
                *held.astype(np.int64).tolist(),
                *(int(joining.stored(units).sum() - held.sum()),) * made,
            ),
            (*(held * scenario.row_bytes).astype(np.int64).tolist(), waiting, *(int(left),) * made),
            sampled,
        )


def _terms(scenario: JoinScenario) -> Terms:
    """The join as the coordinator sees it; slots have no limits, since nothing spills."""
    life_us = round(scenario.window_s * scenario.track_windows * 1e6)
    shaping = Shaping(NAMES, TREE) if scenario.optimise else Kept(NAMES, TREE)
    return Terms((None,) * len(NAMES), scenario.settings, life_us, shaping)


def _planned_shapes(scenario: JoinScenario) -> tuple[SlotShape, ...]:
    """The first shapes, as chosen for equal streams."""
    streams = tuple(StreamRates(name, 1.0, 1.0, scenario.row_bytes) for name in NAMES)
    rates = JoinRates(streams, {})
    return tuple(SlotShape(shape, rates=rates, chosen=True) for shape in scenario.first_shapes)

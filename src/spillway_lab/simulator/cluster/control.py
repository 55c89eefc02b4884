"""The coordinator over the simulated cluster: the code that runs a query, driven by virtual time.

A batch lies between two commits. At its end every slot answers with a record; a `Conductor` commits them
and plans the next batch (spillway/coordinator/conductor.py). This module carries out orders on arrays
and makes the records. A slot finishes its disk work before it chooses or deactivates groups (FLUX 6.3),
and the commit waits for it. As in a query, slots have limits only under a strategy that spills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spillway.coordinator.batch.committed import Committed, initial
from spillway.coordinator.decisions.adaptation import Rules
from spillway.coordinator.terms import Terms
from spillway.coordinator.took import Took
from spillway.coordinator.wishes import LimitMemory
from spillway.metrics.events import Event
from spillway.metrics.groups import GroupNews, GroupSizes, GroupTable, Ints
from spillway.metrics.record import Chosen, SlotRecord
from spillway.metrics.view import profile
from spillway.policies.local.controller import LocalController
from spillway.protocols.engine import busy
from spillway.routing.routing import Routing
from spillway.slot.orders import Arrive, Choose, Depart, Force, Leave, Order, Park, TakeBack
from spillway_lab.simulator.cluster.cluster import Cluster, Tick
from spillway_lab.simulator.host import MANIFEST, Carrier, VirtualHost, conducted, next_batch


class Control:
    """The coordinator, and the controllers of the slots."""

    def __init__(self, cluster: Cluster, carrier: Carrier) -> None:
        scenario, settings = cluster.scenario, cluster.scenario.settings
        self._cluster = cluster
        self.controller = LocalController(
            settings.victims, settings.amortised, settings.inactive_batches, settings.seed
        )
        groups, shares = scenario.groups, settings.shares
        routing = Routing.shared(groups, shares) if shares else Routing.even(groups, scenario.slots)
        # Simulated slots spill when their memory is full, not at a fraction of it.
        terms = Terms((None,), settings.changed(memory_threshold=1.0))
        self.conductor = conducted(terms, initial(routing, streams=1), VirtualHost(carrier))
        self.table = GroupTable.empty(scenario.groups, streams=1)
        self._profiles = self.rules.strategy.name == "global-disk"
        self._rows = np.zeros(scenario.slots)
        self._busy_s = np.zeros(scenario.slots)
        self._spilled: list[int] = []
        self._events: dict[int, list[Event]] = {}
        self._limit_memory(0.0)
        self._plan = self.conductor.begin_batch(0)

    @property
    def state(self) -> Committed:
        """The committed state, with the messages since."""
        return self.conductor.state

    @property
    def rules(self) -> Rules:
        """The strategy, and the interval at which it compares slots."""
        return self.conductor.coordinator.rules

    @property
    def relocating(self) -> set[int]:
        """The slots that take part in a move."""
        return busy(self.state.moves)

    @property
    def batch(self) -> int:
        """The running batch."""
        return self._plan.batch

    @property
    def asked(self) -> set[int]:
        """The slots that have orders to choose or deactivate groups in this batch."""
        return {
            slot
            for slot, orders in self._plan.orders.items()
            if any(isinstance(order, Choose | Depart) for order in orders)
        }

    def owned(self, slot: int) -> Ints:
        """The groups of a slot that are not in transit."""
        cluster = self._cluster
        return np.flatnonzero((cluster.slot == slot) & ~cluster.stalled)

    def statistics(self, slot: int) -> GroupTable:
        """The current statistics of a slot's groups, as its controller sees them."""
        return self.current().only(self.owned(slot).tolist())

    def add(self, tick: Tick) -> None:
        """Adds one tick to the records."""
        self._rows += tick.processed
        self._busy_s += tick.busy_s

    def add_event(self, event: Event, *, moved_out: Sequence[int] = ()) -> None:
        """Adds what a slot did to its groups by itself to its record."""
        self._events.setdefault(event.slot, []).append(event)
        self._spilled.extend(moved_out)

    def commit(self, now_s: float) -> tuple[Event, ...]:
        """Ends the batch and begins the next one; returns the events."""
        self._count()
        took = Took(now_s - self.state.clock_s)
        self._limit_memory(now_s)
        self._plan, events = next_batch(self.conductor, self._plan, self._records(), took)
        return events

    def _limit_memory(self, now_s: float) -> None:
        """Sets how much memory slots may use now.

        Memory that others take is gone at once: unlike a user's setting, it does not wait for a batch.
        """
        limits = dict(enumerate(self._cluster.limits(now_s).tolist()))
        self.conductor.take(LimitMemory(limits))

    def obey(self) -> list[tuple[int, Force]]:
        """Carries out the orders of the new batch; returns the spills for the disks."""
        forces = []
        for slot, orders in self._plan.orders.items():
            for order in orders:
                if isinstance(order, Force):
                    forces.append((slot, order))
                else:
                    self._carry_out(slot, order)
        return forces

    def _carry_out(self, slot: int, order: Order) -> None:
        cluster = self._cluster
        match order:
            case Depart(groups=groups):
                cluster.stalled[list(groups)] = True
            case Arrive(move=move):
                self._install(slot, self._groups_of(move))
            case TakeBack(move=move):
                self._install(slot, self._groups_of(move))
            case Choose() | Park() | Leave() | Force():
                # Slots choose at the end of the batch; rows wait at the sources; nothing is kept.
                pass

    def _groups_of(self, number: int) -> list[int]:
        return [g for move in self._plan.moves if move.move == number for g in move.groups]

    def _install(self, slot: int, groups: list[int]) -> None:
        cluster = self._cluster
        cluster.slot[groups] = slot
        cluster.stalled[groups] = cluster.away[groups] = False
        cluster.forget_sums()
        rows = float(cluster.state_rows[groups].sum())
        cluster.owed_s[slot] += rows * cluster.scenario.machine.install_s

    def _count(self) -> None:
        """Adds processed rows to the statistics of the groups; fractions of a row stay."""
        cluster = self._cluster
        news = GroupNews.none(self._plan.batch, len(self.table))
        rows = np.floor(cluster.done).astype(np.int64)
        cluster.done -= rows
        news.add_rows(rows)
        news.add_outputs((rows * cluster.scenario.workload.results).astype(np.int64))
        news.end_parts(self._spilled)
        self._spilled = []
        self.table = self.table.after(self._sizes(), news)

    def _sizes(self) -> GroupSizes:
        cluster = self._cluster
        return GroupSizes(
            cluster.state_rows.astype(np.int64)[None],
            cluster.sizes()[None],
            cluster.disk_rows.astype(np.int64),
            cluster.disk_sizes(),
            (cluster.disk_rows > 0).astype(np.int64),
        )

    def current(self) -> GroupTable:
        """The statistics of all groups now."""
        return replace(self.table, **vars(self._sizes()))

    def _records(self) -> dict[int, SlotRecord]:
        cluster = self._cluster
        memory, disk = cluster.memory_bytes.tolist(), cluster.disk_bytes.tolist()
        rows, busy_s = np.rint(self._rows).astype(np.int64).tolist(), self._busy_s.tolist()
        results = cluster.scenario.workload.results
        found = {
            slot: SlotRecord(
                self._plan.batch,
                slot,
                MANIFEST,
                rows_in=(rows[slot],),
                rows_late=(0,),
                rows_out=int(rows[slot] * results),
                max_times=(None,),
                state_rows=(0,),
                state_bytes=(memory[slot],),
                layers=(0,),
                worker="",
                disk_bytes=(disk[slot],),
                profile=profile(self.statistics(slot)) if self._profiles else (),
                chosen=self._chosen(slot),
                events=tuple(self._events.get(slot, ())),
                busy_s=busy_s[slot],
            )
            for slot in range(cluster.scenario.slots)
        }
        self._rows[:] = self._busy_s[:] = 0.0
        self._events = {}
        return found

    def _chosen(self, slot: int) -> tuple[Chosen, ...]:
        """What the slot's controller chooses, if ordered to."""
        return tuple(
            self._choice(slot, order)
            for order in self._plan.orders.get(slot, ())
            if isinstance(order, Choose)
        )

    def _choice(self, slot: int, order: Choose) -> Chosen:
        table = self.statistics(slot)
        choice = self.controller.movers(
            table,
            self.owned(slot).tolist(),
            order.bytes,
            least_groups=order.groups,
            everything=order.everything,
            pick=order.pick,
        )
        at = list(choice.groups)
        size = int(table.size[at].sum() + table.disk_bytes[at].sum())
        return Chosen(order.move, choice.groups, size, choice.reason)

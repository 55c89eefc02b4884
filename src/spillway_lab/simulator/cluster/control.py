"""The coordinator over the simulated cluster: the code that a query runs under, driven by virtual time.

Between two commits lies a batch. At its end every slot answers with a record, as a slot task does;
`commit_batch` and `adapt` make the next state of it, `plan_batch` the orders of the next batch. Here is
only what carries orders out on arrays and makes records of them. A slot that is at its disk chooses and
deactivates groups when it is done with what it does there (FLUX 6.3), and the commit waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spillway.coordinator.adaptation import Rules, adapt, resume
from spillway.coordinator.coordinator import BatchPlan, commit_batch, initial, plan_batch
from spillway.metrics.events import Event
from spillway.metrics.groups import GroupNews, GroupSizes, GroupTable, Ints
from spillway.metrics.record import Chosen, SlotRecord
from spillway.metrics.view import profile
from spillway.policies.local.controller import LocalController
from spillway.protocols.engine import busy
from spillway.protocols.messages import Message
from spillway.routing.routing import Routing
from spillway.slot.orders import Arrive, Choose, Depart, Force, Leave, Order, Park, TakeBack
from spillway_lab.simulator.cluster.cluster import Cluster, Step


class Control:
    """The coordinator's state, and the controllers of the slots."""

    def __init__(self, cluster: Cluster) -> None:
        scenario, settings = cluster.scenario, cluster.scenario.settings
        self._cluster = cluster
        self.rules = Rules.of(settings)
        self.controller = LocalController(
            settings.victims, settings.amortised, settings.inactive_batches, settings.seed
        )
        groups, shares = scenario.groups, settings.shares
        routing = Routing.shared(groups, shares) if shares else Routing.even(groups, scenario.slots)
        self.state = initial(routing, streams=1)
        self.table = GroupTable.empty(scenario.groups, streams=1)
        self._profiles = self.rules.strategy.name == "global-disk"
        self._rows = np.zeros(scenario.slots)
        self._busy_s = np.zeros(scenario.slots)
        self._spilled: list[int] = []
        self._events: dict[int, list[Event]] = {}
        self._plan = self._planned(0.0)

    @property
    def relocating(self) -> set[int]:
        """The slots that take part in a move."""
        return busy(self.state.moves)

    @property
    def batch(self) -> int:
        """The batch that runs."""
        return self._plan.batch

    @property
    def asked(self) -> set[int]:
        """The slots that are to choose groups, or to deactivate them, in this batch."""
        return {
            slot
            for slot, orders in self._plan.orders.items()
            if any(isinstance(order, Choose | Depart) for order in orders)
        }

    def owned(self, slot: int) -> Ints:
        """The groups of a slot that are not on their way."""
        cluster = self._cluster
        return np.flatnonzero((cluster.slot == slot) & ~cluster.stalled)

    def statistics(self, slot: int) -> GroupTable:
        """What the controller of a slot sees of its groups, as they are now."""
        return self._current().only(self.owned(slot).tolist())

    def add(self, step: Step) -> None:
        """What one step did, for the records."""
        self._rows += step.processed
        self._busy_s += step.busy_s

    def happened(self, event: Event, *, moved_out: Sequence[int] = ()) -> None:
        """What a slot did to its groups by itself, for its record."""
        self._events.setdefault(event.slot, []).append(event)
        self._spilled.extend(moved_out)

    def commit(self, now_s: float, said: Sequence[tuple[Message, float]]) -> tuple[Event, ...]:
        """Ends the batch, and begins the next one; gives the events."""
        self._count()
        plan, limits = self._plan, self._limits(now_s)
        records = self._records()
        seconds = now_s - self.state.clock_s
        state = commit_batch(self.state, plan, records, (None,), seconds)
        state = adapt(state, records, limits, self.rules)
        self.state, heard = resume(state, said)
        self._plan = self._planned(now_s)
        return (*state.events, *heard)

    def _planned(self, now_s: float) -> BatchPlan:
        limits = self._limits(now_s)
        return plan_batch(self.state, self.state.batch + 1, memory_bytes=limits)

    def _limits(self, now_s: float) -> dict[int, int | None]:
        return dict(enumerate(self._cluster.limits(now_s).tolist()))

    def obey(self) -> list[tuple[int, Force]]:
        """Carries out the orders of the batch that begins; gives the spills that are for the disks."""
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
                # Chosen at the end of the batch; the rows wait at the sources; nothing is kept.
                pass

    def _groups_of(self, number: int) -> list[int]:
        return [g for move in self._plan.moves if move.move == number for g in move.groups]

    def _install(self, slot: int, groups: list[int]) -> None:
        cluster = self._cluster
        cluster.slot[groups] = slot
        cluster.stalled[groups] = cluster.away[groups] = False
        cluster.changed()
        rows = float(cluster.state_rows[groups].sum())
        cluster.owed_s[slot] += rows * cluster.scenario.machine.install_s

    def _count(self) -> None:
        """Takes what was processed over into the statistics of the groups; fractions stay."""
        cluster = self._cluster
        news = GroupNews.none(self._plan.batch, len(self.table))
        rows = np.floor(cluster.done).astype(np.int64)
        cluster.done -= rows
        news.took(rows)
        news.produced((rows * cluster.scenario.workload.results).astype(np.int64))
        news.moved_out(self._spilled)
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

    def _current(self) -> GroupTable:
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
                "",
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
        """What the slot's controller chooses, where it is asked to."""
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

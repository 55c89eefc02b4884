"""The coordinator's own cost between two batches of a large cluster, without Spark.

A thousand slots with a hundred thousand groups report a batch. The coordinator commits it, compares
slots, begins moves and plans the next batch; its host encodes record and note. Nothing is written, since
the speed of a store is not the coordinator's.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from spillway.checkpoint.record import Begun, Owner, Record, begun_text, record_text
from spillway.coordinator.batch.committed import Committed, Mark, initial
from spillway.coordinator.batch.plan import BatchPlan, Note
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.decisions.adaptation import Rules
from spillway.coordinator.terms import Terms
from spillway.coordinator.took import Took
from spillway.metrics.record import Chosen, SlotRecord
from spillway.metrics.view import CLASSES
from spillway.policies.cluster.strategy import Strategy
from spillway.protocols.messages import Received, ReceivePartitions
from spillway.protocols.move import GroupMove
from spillway.routing.routing import Routing
from spillway.slot.orders import Choose
from spillway_lab.simulator.host import Carrier, VirtualHost

SLOTS, GROUPS = 1_000, 100_000
_BATCHES = 12
_LIMIT_BYTES = 1 << 30
#: Seconds on the query's clock: of a batch, and of the transfer of a move.
_BATCH_S, _SENT_S = 1.0, 0.1


#: Of records that nobody reads.
_OWNER = Owner("bench", 1, 0.0, "")


class _Prompt(Carrier):
    """Delivers state before the next batch begins."""

    def begin(self, move: GroupMove) -> None:
        """Reports at once that the state has arrived."""
        arrived = Received(move.move, f"manifests/part-{move.move}.json", 1)
        self._messages += [(ReceivePartitions(move.move), _SENT_S), (arrived, _SENT_S)]


class _TextHost(VirtualHost):
    """Encodes notes and records, as a host with a store does."""

    def write_note(self, mark: Mark, note: Note) -> None:
        """Encodes the note."""
        super().write_note(mark, note)
        begun_text(Begun(*mark, note))

    def append(self, state: Committed) -> None:
        """Encodes the record."""
        super().append(state)
        record_text(Record(0, 1, _OWNER, 0, state=state))


def coordinator_s(slots: int = SLOTS, groups: int = GROUPS, seed: int = 0) -> float:
    """Median seconds that the coordinator takes between two batches while groups move."""
    rng = np.random.default_rng(seed)
    conductor = _conductor(slots, groups)
    plan, took = conductor.begin_batch(0), []
    for batch in range(_BATCHES):
        records = _records(plan, rng)
        begun = time.perf_counter()
        conductor.commit(plan, records, Took(_BATCH_S))
        plan = conductor.begin_batch(batch + 1)
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def _conductor(slots: int, groups: int) -> Conductor:
    rules = Rules(Strategy("global-disk"), interval_batches=1)
    state = initial(Routing.even(groups, slots), 2)
    memory = dict.fromkeys(range(slots), _LIMIT_BYTES)
    coordinator = Coordinator(Terms((None, None)), state, rules, memory=memory)
    return Conductor(coordinator, _TextHost(_Prompt()))


def _records(plan: BatchPlan, rng: np.random.Generator) -> dict[int, SlotRecord]:
    """Records of slots whose state differs by up to a factor of two, so that most move groups."""
    batch, slots = plan.batch, plan.routing.slots
    held = rng.integers(_LIMIT_BYTES // 2, _LIMIT_BYTES, slots)
    owned = _owned(plan.routing)
    return {
        slot: SlotRecord(
            batch=batch,
            slot=slot,
            manifest=f"manifests/{batch:09d}-{slot}.json",
            rows_in=(1000, 1000),
            rows_late=(0, 0),
            rows_out=int(rng.integers(100, 1000)),
            max_times=(None, None),
            state_rows=(1, 1),
            state_bytes=(int(held[slot]) // 2, int(held[slot]) // 2),
            layers=(1, 1),
            worker="host/1/1",
            disk_rows=(0, 0),
            disk_bytes=(0, 0),
            profile=(int(held[slot]) // CLASSES,) * CLASSES,
            chosen=tuple(
                Chosen(order.move, owned[slot][:20], 1 << 20, "most productive first")
                for order in plan.orders.get(slot, ())
                if isinstance(order, Choose)
            ),
        )
        for slot in range(slots)
    }


def _owned(routing: Routing) -> dict[int, tuple[int, ...]]:
    table = np.asarray(routing.table)
    order = np.argsort(table, kind="stable")
    edges = np.searchsorted(table[order], np.arange(routing.slots + 1))
    return {
        slot: tuple(order[edges[slot] : edges[slot + 1]].tolist()) for slot in range(routing.slots)
    }

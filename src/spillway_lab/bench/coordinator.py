"""The coordinator's own cost between two batches, without Spark, for a large cluster.

A thousand slots with a hundred thousand groups report a batch; the coordinator commits it, compares
the slots, begins moves, takes answers, plans the next batch, and makes the text of its log record and
note. Nothing is written, since a store's speed is not the coordinator's.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

import numpy as np

from spillway.checkpoint.log import note_text, record_text
from spillway.coordinator.adaptation import Rules, adapt, resume
from spillway.coordinator.commit import commit_batch
from spillway.coordinator.committed import Committed, initial
from spillway.coordinator.plan import new_note, plan_batch
from spillway.metrics.record import Chosen, SlotRecord
from spillway.metrics.view import CLASSES
from spillway.policies.cluster.strategy import Strategy
from spillway.protocols.messages import Message, Received, ReceivePartitions
from spillway.protocols.move import Phase
from spillway.routing.routing import Routing
from spillway.slot.orders import Choose

SLOTS, GROUPS = 1_000, 100_000
_BATCHES = 12
_LIMIT_BYTES = 1 << 30


def coordinator_s(slots: int = SLOTS, groups: int = GROUPS, seed: int = 0) -> float:
    """Median seconds of the coordinator between two batches in which slots move."""
    rng = np.random.default_rng(seed)
    state = initial(Routing.even(groups, slots), 2)
    rules = Rules(Strategy("global-disk"), interval_batches=1)
    limits: dict[int, int | None] = dict.fromkeys(range(slots), _LIMIT_BYTES)
    took = []
    for batch in range(_BATCHES):
        begun = time.perf_counter()
        state, _ = resume(state, _answers(state))
        plan = plan_batch(state, batch, note=new_note(state, limits))
        note_text(plan.note)
        took.append(time.perf_counter() - begun)
        records = _records(state, plan.orders, batch, rng)
        begun = time.perf_counter()
        state = commit_batch(state, plan, records, (None, None), 1.0)
        state = adapt(state, records, limits, rules)
        record_text(state)
        took[-1] += time.perf_counter() - begun
        state = replace(state, forced_bytes=0)
    return statistics.median(took)


def _answers(state: Committed) -> list[tuple[Message, float]]:
    found: list[tuple[Message, float]] = []
    for move in state.moves:
        if move.phase is Phase.SENDING:
            found.append((ReceivePartitions(move.move), 0.1))
            found.append((Received(move.move, f"manifests/part-{move.move}.json", 1), 0.1))
    return found


def _records(
    state: Committed, orders: object, batch: int, rng: np.random.Generator
) -> dict[int, SlotRecord]:
    """What slots say that differ by a factor of up to two, so that most of them take part in moves."""
    slots = state.routing.slots
    held = rng.integers(_LIMIT_BYTES // 2, _LIMIT_BYTES, slots)
    owned = _owned(state.routing)
    assert isinstance(orders, dict)
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
                for order in orders.get(slot, ())
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

"""Measurements of a time-sliced join in the last batch, as input of PSP's cost model.

From them the coordinator decides the probe orders and the ring length, and `explain()` reports
them. Measurements affect only speed: the results are the same in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spillway.coordinator.batch.plan import BatchPlan
from spillway.metrics.record import SlotRecord
from spillway.operators.predicates.probing import together
from spillway.operators.theta.sliced import Probing, SlicedJoin
from spillway.policies.ring.covering import covers, visited
from spillway.policies.ring.length import deciding
from spillway.policies.ring.model import (
    HopCosts,
    Source,
    explained,
    fitted,
    in_batches,
    ring_lengths,
    told_orders,
)
from spillway.policies.ring.probing import MeasuredStream, orders_of, sources_of

#: Measurements of a join, as input of the cost model.
Model = tuple[tuple[Source, ...], HopCosts]


def sources_now(
    join: SlicedJoin, last: Mapping[int, SlotRecord], seconds: float
) -> tuple[Source, ...]:
    """Returns the cheapest orders from the last batch, which took `seconds`."""
    records = list(last.values())
    streams = [
        MeasuredStream(
            stream.name,
            sum(one.rows_in[at] for one in records) / max(seconds, 1e-3),
            float(sum(one.held_rows[at] for one in records)),
        )
        for at, stream in enumerate(join.streams)
    ]
    return sources_of(streams, join.predicates, together([one.sampled for one in records]))


def costs_now(join: SlicedJoin, last: Mapping[int, SlotRecord], seconds: float) -> HopCosts:
    """Returns the cost of a row apart from comparing it, from the last batch (PSP Table 1).

    Rows visit all slots at once, so the time of a batch apart from slot work is split among as many
    hops as Equation 5 counts. Rows expire with their layers, so purging has no separate cost.
    """
    records = list(last.values())
    rows = sum(sum(one.rows_in) for one in records)
    phases = {
        name: sum(one.phases_s.get(name, 0.0) for one in records)
        for name in ("sort", "store", "compact", "commit")
    }
    beyond_s = max(0.0, seconds - max((one.busy_s for one in records), default=0.0))
    slots = max(1, len(records))
    hops = slots * len(join.streams) + (slots - 1) / 2
    return HopCosts(
        send_s=max(phases.pop("sort") / max(rows * len(records), 1), 1e-9),
        hop_s=max(beyond_s / hops, 1e-9),
        insert_s=sum(phases.values()) / max(rows, 1),
    )


def model_now(
    join: SlicedJoin,
    last: Mapping[int, SlotRecord],
    seconds: float,
    period_s: float | None = None,
) -> Model | None:
    """Returns the cost model of whole batches from the last one; None if it met no rows.

    Utilisation is that of the last batch; the model says how it would change. `period_s` is the
    time between batches, if that is longer than the batch.
    """
    sources = sources_now(join, last, max(seconds, period_s or 0.0))
    rows = sum(sum(one.rows_in) for one in last.values())
    if not rows or not all(step.rows for source in sources for step in source.steps):
        return None
    batches, costs = in_batches(sources, costs_now(join, last, seconds), rows)
    work_s = sum(one.busy_s for one in last.values())
    return fitted(batches, costs, len(last), work_s), costs


def most_rate(last: Mapping[int, SlotRecord]) -> float | None:
    """Returns the results per second of slots as fast as in the last batch, and always busy."""
    busy_s = sum(one.busy_s for one in last.values()) / max(1, len(last))
    return sum(one.rows_out for one in last.values()) / busy_s if busy_s > 0 else None


def explained_visits(
    join: SlicedJoin,
    last: Mapping[int, SlotRecord],
    seconds: float,
    period_s: float | None = None,
) -> list[str]:
    """Explains the join by the cost model; empty if the last batch has no data."""
    model = model_now(join, last, seconds, period_s)
    if model is None:
        return ["not measured: the last batch had no rows, or the other streams were empty"]
    sources, costs = model
    measured = together([one.sampled for one in last.values()])
    predicates = [
        f"predicate {one.name}: {measured.cost_us(one):.3g} µs per pair, "
        f"selectivity {measured.selectivity(one):.3g}"
        for one in join.predicates
    ]
    if join.slicing.copies > 1:
        # The model describes a ring, on which rows go to every slot.
        return [told_orders(sources), *predicates]
    return [*_lengths(sources, costs, last), *predicates]


def _lengths(
    sources: Sequence[Source], costs: HopCosts, last: Mapping[int, SlotRecord]
) -> list[str]:
    """Returns the forecast for other slot counts."""
    slots = len(last)
    came = sum(sum(one.rows_in) for one in last.values())
    held = sum(sum(one.held_bytes) for one in last.values())
    rows = sum(sum(one.held_rows) for one in last.values())
    lengths = ring_lengths(sources, costs, most=max(8, 4 * slots))
    best = [f"{name} {length}" for name, length in lengths.items()]
    most, part = deciding(sources)
    return [
        *explained(sources, costs, slots, came * held / max(rows, 1), most_rate(last)).splitlines(),
        f"best slot count of each stream alone: {', '.join(best)}",
        f"a group has a slice of every stream, so all have one slot count: {most} dominates the "
        f"choice, with {part:.0%} of the comparisons",
    ]


def probing_of(
    join: SlicedJoin, plan: BatchPlan, last: Mapping[int, SlotRecord], seconds: float
) -> Probing:
    """Returns the probe orders, the probed copies and the measurements of a batch."""
    copies = join.slicing.copies
    measured = together([one.sampled for one in last.values()]).counts
    probing = Probing(orders_of(sources_now(join, last, seconds)), measured=measured)
    if copies == 1:
        return probing
    table = plan.routing.table
    chosen = covers(table, copies, len(join.streams), plan.batch)
    # Both slots have groups in transit.
    taking_part = {slot: move.groups for move in plan.moves for slot in move.slots}
    visits = tuple(visited(table, one, taking_part) for one in chosen)
    return replace(probing, chosen=chosen, visits=visits)

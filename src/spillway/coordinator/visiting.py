"""What the last batch measured of a time-sliced join, as PSP's cost model takes it.

By this the coordinator decides in which order rows visit streams, how long the ring is, and what
`explain()` tells. Measurements decide on speed alone: the results are the same in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spillway.coordinator.plan import BatchPlan
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
from spillway.policies.ring.probing import Stream, orders_of, sources_of

#: What was measured of a join, as the cost model takes it.
Model = tuple[tuple[Source, ...], HopCosts]


def sources_now(
    join: SlicedJoin, last: Mapping[int, SlotRecord], seconds: float
) -> tuple[Source, ...]:
    """The cheapest orders by what the last batch, which took so long, has measured."""
    records = list(last.values())
    streams = [
        Stream(
            stream.name,
            sum(one.rows_in[at] for one in records) / max(seconds, 1e-3),
            float(sum(one.held_rows[at] for one in records)),
        )
        for at, stream in enumerate(join.streams)
    ]
    return sources_of(streams, join.predicates, together([one.sampled for one in records]))


def costs_now(join: SlicedJoin, last: Mapping[int, SlotRecord], seconds: float) -> HopCosts:
    """What a row costs beside comparing it, by what the last batch has measured (PSP Table 1).

    All slots are visited at once: what a batch takes beside the work of slots is shared among as many
    hops as Equation 5 counts. Rows go with the layers that they are in, so purging has no cost of its
    own.
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
    """The cost model of whole batches, by the last one; None where it had no rows, or met none.

    What slots are busy with is what they were in that batch; the model says how that would change.
    `period_s` is from one batch to the next, where that is longer than the batch.
    """
    sources = sources_now(join, last, max(seconds, period_s or 0.0))
    rows = sum(sum(one.rows_in) for one in last.values())
    if not rows or not all(step.rows for source in sources for step in source.steps):
        return None
    batches, costs = in_batches(sources, costs_now(join, last, seconds), rows)
    work_s = sum(one.busy_s for one in last.values())
    return fitted(batches, costs, len(last), work_s), costs


def most_rate(last: Mapping[int, SlotRecord]) -> float | None:
    """Results a second of slots that are as fast as in the last batch, and busy all the time."""
    busy_s = sum(one.busy_s for one in last.values()) / max(1, len(last))
    return sum(one.rows_out for one in last.values()) / busy_s if busy_s > 0 else None


def explained_visits(
    join: SlicedJoin,
    last: Mapping[int, SlotRecord],
    seconds: float,
    period_s: float | None = None,
) -> list[str]:
    """What the cost model says of the join, for people; nothing where the last batch says nothing."""
    model = model_now(join, last, seconds, period_s)
    if model is None:
        return ["not measured: the last batch had no rows, or there were none to meet"]
    sources, costs = model
    measured = together([one.sampled for one in last.values()])
    predicates = [
        f"predicate {one.label.partition(':')[2]}: {measured.cost_us(one):.3g} µs a pair, "
        f"selectivity {measured.selectivity(one):.3g}"
        for one in join.predicates
    ]
    if join.slicing.copies > 1:
        # The model is that of a ring, on which rows go to every slot.
        return [told_orders(sources), *predicates]
    return [*_lengths(sources, costs, last), *predicates]


def _lengths(
    sources: Sequence[Source], costs: HopCosts, last: Mapping[int, SlotRecord]
) -> list[str]:
    """What other numbers of slots would give."""
    slots = len(last)
    came = sum(sum(one.rows_in) for one in last.values())
    held = sum(sum(one.held_bytes) for one in last.values())
    rows = sum(sum(one.held_rows) for one in last.values())
    lengths = ring_lengths(sources, costs, most=max(8, 4 * slots))
    best = [f"{name} {length}" for name, length in lengths.items()]
    most, part = deciding(sources)
    return [
        *explained(sources, costs, slots, came * held / max(rows, 1), most_rate(last)).splitlines(),
        f"best slots by stream, if each had its own: {', '.join(best)}",
        f"a group has a slice of every stream, so all have one length: rows of {most} decide it most, "
        f"with {part:.0%} of the comparing",
    ]


def probing_of(
    join: SlicedJoin, plan: BatchPlan, last: Mapping[int, SlotRecord], seconds: float
) -> Probing:
    """In which order the rows of a batch visit, which copies of slices, and by what measurements."""
    copies = join.slicing.copies
    measured = together([one.sampled for one in last.values()]).counts
    probing = Probing(orders_of(sources_now(join, last, seconds)), measured=measured)
    if copies == 1:
        return probing
    table = plan.routing.table
    chosen = covers(table, copies, len(join.streams), plan.batch)
    # Groups on their way are with both sides.
    taking_part = {slot: move.groups for move in plan.moves for slot in move.slots}
    visits = tuple(visited(table, one, taking_part) for one in chosen)
    return replace(probing, chosen=chosen, visits=visits)

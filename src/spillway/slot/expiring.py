"""Results of rows that expire: the last thing that an operator does with them.

At the start of a batch, the slot gives the operator the rows that expire at its watermark
(`Expiring` in operators/operator.py). Each row is given once: what has expired is gone, wherever its
file is (state/slot/due.py). The watermark is part of the plan of the batch, so a repeated batch gives
the same results. If the watermark has advanced and no batch comes, a round gives them
(`Coordinator.due`).

While a parallel track lasts, the slot with the old rows gives the results; at the other slot the rows
only go.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from spillway.operators.operator import Expiring, Made
from spillway.operators.stats import OperatorStats
from spillway.slot.orders import Order, Shadow
from spillway.state.slot.state import SlotState


def final_results(
    operator: Expiring,
    state: SlotState,
    stats: OperatorStats,
    watermark_us: int | None,
    orders: Sequence[Order],
) -> Made:
    """Yields the results of rows that expire at the watermark; keeps what the operator keeps."""
    silent = _silent(orders)
    for stream in state.final:
        due = state.due(stream, watermark_us, silent)
        if due is None:
            continue
        for rows in due.take():
            kept = yield from operator.expiring(stream, rows, due.left, stats)
            state.expired_rows += rows.rows - sum(more.rows for more in kept)
            for more in kept:
                if more.rows:
                    state.keep(stream, more)
        state.finish(due)
    state.news.add_outputs(stats.take_outputs())


def _silent(orders: Sequence[Order]) -> Collection[int]:
    return {g for order in orders if isinstance(order, Shadow) for g in order.groups}

"""The coordinator's decisions, as pure functions over frozen values.

Between two batches the coordinator turns the records of the slots into the next committed state:
which manifest each slot stands on, the watermark, the routing, and which run files nobody needs any
more. `plan_batch` and `commit_batch` are its whole interface; neither reads a clock, a file or Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from spillway.errors import QueryError
from spillway.metrics.record import SlotRecord
from spillway.routing.routing import Routing


@dataclass(frozen=True)
class Committed:
    """What is true after a committed batch; what the log records."""

    batch: int
    routing: Routing
    #: The manifest file of each slot; None for a slot that has no state yet.
    manifests: tuple[str | None, ...]
    watermark_us: int | None
    #: Largest event time ever seen, per stream.
    max_times: tuple[int | None, ...]
    #: Rows since the first start: in and late per stream, and out.
    rows_in: tuple[int, ...]
    rows_late: tuple[int, ...]
    rows_out: int = 0


@dataclass(frozen=True)
class BatchPlan:
    """What every slot of one batch is told."""

    batch: int
    routing: Routing
    manifests: tuple[str | None, ...]
    watermark_us: int | None
    #: Run files that no committed manifest names; slots remove their local copies.
    garbage: tuple[str, ...] = ()
    #: Whether slots also look for local files that no manifest names: in the first batch of a start.
    sweep: bool = False


@dataclass(frozen=True)
class References:
    """How many slots' manifests name each run file."""

    counts: Mapping[str, int] = field(default_factory=dict)

    def updated(self, records: Sequence[SlotRecord]) -> tuple[References, tuple[str, ...]]:
        """The counts after a batch, and the files that nobody names any more."""
        counts = dict(self.counts)
        for record in records:
            for name in record.added:
                counts[name] = counts.get(name, 0) + 1
            for name in record.dropped:
                counts[name] = counts.get(name, 1) - 1
        gone = tuple(sorted(name for name, count in counts.items() if count <= 0))
        for name in gone:
            del counts[name]
        return References(counts), gone


def initial(routing: Routing, streams: int) -> Committed:
    """The state before the first batch."""
    none: tuple[int | None, ...] = (None,) * streams
    return Committed(
        -1, routing, (None,) * routing.slots, None, none, (0,) * streams, (0,) * streams
    )


def plan_batch(
    state: Committed, batch: int, garbage: Sequence[str] = (), *, sweep: bool = False
) -> BatchPlan:
    """The plan of the next batch."""
    if batch != state.batch + 1:
        raise QueryError(
            f"Spark asks for batch {batch}, but the state is at batch {state.batch}",
            detail="the offsets that Spark keeps and the state of Spillway are in the same "
            "checkpoint directory and go together",
            hint="restore the whole checkpoint directory from one copy, or start with a new one",
        )
    return BatchPlan(
        batch, state.routing, state.manifests, state.watermark_us, tuple(garbage), sweep
    )


def commit_batch(
    state: Committed,
    plan: BatchPlan,
    records: Mapping[int, SlotRecord],
    lateness_us: Sequence[int | None],
) -> Committed:
    """The state after a batch, from one record per slot."""
    missing = [slot for slot in range(plan.routing.slots) if slot not in records]
    if missing:
        raise QueryError(f"batch {plan.batch}: no record from slots {missing}")
    ordered = [records[slot] for slot in range(plan.routing.slots)]
    max_times = tuple(
        _latest([seen, *(r.max_times[stream] for r in ordered)])
        for stream, seen in enumerate(state.max_times)
    )
    return replace(
        state,
        batch=plan.batch,
        routing=plan.routing,
        manifests=tuple(record.manifest or None for record in ordered),
        max_times=max_times,
        watermark_us=next_watermark(state.watermark_us, max_times, lateness_us),
        rows_in=_added(state.rows_in, [r.rows_in for r in ordered]),
        rows_late=_added(state.rows_late, [r.rows_late for r in ordered]),
        rows_out=state.rows_out + sum(r.rows_out for r in ordered),
    )


def next_watermark(
    current: int | None, max_times: Sequence[int | None], lateness_us: Sequence[int | None]
) -> int | None:
    """The least over the streams of (largest time - lateness); never goes back.

    A stream that was never seen, or one without a window, holds the watermark where it is.

    Example:
        >>> next_watermark(None, (100, 90), (10, 5))
        85
        >>> next_watermark(87, (100, 90), (10, 5))
        87
    """
    bounds = [
        None if newest is None or allowed is None else newest - allowed
        for newest, allowed in zip(max_times, lateness_us, strict=True)
    ]
    if not bounds or any(bound is None for bound in bounds):
        return current
    least = min(bound for bound in bounds if bound is not None)
    return least if current is None else max(current, least)


def _latest(times: Sequence[int | None]) -> int | None:
    return max((t for t in times if t is not None), default=None)


def _added(before: Sequence[int], more: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(before, *more, strict=True))

"""What one slot has to do in one batch, and the state that an attempt at it begins with."""

from __future__ import annotations

from dataclasses import dataclass, field

from spillway.ids import SlotId, Version
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.slot.limits import Budget, Limits
from spillway.slot.orders import Order
from spillway.state.manifest.manifest import Manifest
from spillway.state.runs.store import Store
from spillway.state.slot.state import SlotState


@dataclass(frozen=True)
class SlotJob:
    """What one slot has to do in one batch, apart from its rows."""

    batch: int
    slot: SlotId
    groups: int
    streams: tuple[StreamColumns, ...]
    #: Rows before this time are late; also what state expires by. None: nothing is late yet.
    watermark_us: int | None
    piece_bytes: int
    #: Distinguishes the files of this attempt from those of any other.
    attempt: str
    worker: str
    #: Whether the slot is known from a row, and not from the place of the task alone.
    sure: bool = True
    limits: Limits = field(default_factory=Limits)
    #: Groups whose missing results are to be made in this batch.
    cleanup: tuple[int, ...] = ()
    #: What else is to be done to groups.
    orders: tuple[Order, ...] = ()
    #: The groups that are routed here; needed where some are to be chosen.
    owned: tuple[int, ...] = ()
    #: What may be processed; None: everything.
    budget: Budget | None = None
    #: The query's clock when the batch was planned.
    now_s: float = 0.0
    #: The shape that is joined in, for the record; empty where the operator has only one.
    shape: str = ""


def manifest_name(job: SlotJob) -> str:
    """What the manifest of an attempt is called."""
    return f"manifests/{job.batch:09d}-{job.slot}-{job.attempt}.json"


def open_state(manifest: Manifest, job: SlotJob, operator: Operator, store: Store) -> SlotState:
    """The state that an attempt begins with."""
    return SlotState(
        manifest,
        store,
        operator.layouts,
        groups=job.groups,
        version=Version(job.batch),
        attempt=job.attempt,
        now_s=job.now_s,
    )

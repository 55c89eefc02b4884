"""The job of one slot in one batch, and the state that an attempt starts with."""

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
    """The job of one slot in one batch, without its rows."""

    batch: int
    slot: SlotId
    groups: int
    streams: tuple[StreamColumns, ...]
    #: Rows before this time are late; state expires by it too. None: nothing is late yet.
    watermark_us: int | None
    piece_bytes: int
    #: Distinguishes the files of this attempt from those of other attempts.
    attempt: str
    worker: str
    limits: Limits = field(default_factory=Limits)
    #: Groups whose missing results this batch must produce.
    cleanup: tuple[int, ...] = ()
    #: Other orders for groups.
    orders: tuple[Order, ...] = ()
    #: The groups routed here; needed when the slot must choose among them.
    owned: tuple[int, ...] = ()
    #: How much the slot may process; None: everything.
    budget: Budget | None = None
    #: The query's clock when the batch was planned.
    now_s: float = 0.0
    #: The join shape, for the record; empty if the operator has only one.
    shape: str = ""
    #: Whether it is a round, without new rows.
    is_round: bool = False


def manifest_name(job: SlotJob) -> str:
    """Returns the manifest name of an attempt."""
    return f"manifests/{job.batch:09d}-{job.slot}-{job.attempt}.json"


def open_state(manifest: Manifest, job: SlotJob, operator: Operator, store: Store) -> SlotState:
    """Opens the state that an attempt starts with."""
    return SlotState(
        manifest,
        store,
        operator.layouts,
        groups=job.groups,
        version=Version(job.batch),
        attempt=job.attempt,
        now_s=job.now_s,
    )

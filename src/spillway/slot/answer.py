"""The record of a batch: each part of a slot task adds its own numbers.

This module adds the numbers of the job, the state and its files. Meter, keeper and transit add
theirs with `in_record`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from spillway.metrics.counts import recorded
from spillway.metrics.groups import GroupTable
from spillway.metrics.record import SlotRecord
from spillway.metrics.view import profile
from spillway.slot.job import SlotJob
from spillway.state.manifest.manifest import Manifest
from spillway.state.runs.store import Store
from spillway.state.slot.state import SlotState


def empty_record(job: SlotJob, manifest: str) -> SlotRecord:
    """Returns the record of a job without any numbers."""
    none = (0,) * len(job.streams)
    return SlotRecord(
        batch=job.batch,
        slot=job.slot,
        manifest=manifest,
        rows_in=none,
        rows_late=none,
        rows_out=0,
        max_times=(None,) * len(job.streams),
        state_rows=(),
        state_bytes=(),
        layers=(),
        shape=job.shape,
        worker=job.worker,
    )


def with_state(record: SlotRecord, state: SlotState, new: Manifest) -> SlotRecord:
    """Returns the record with the state of the slot after the batch."""
    return replace(
        record,
        state_rows=new.state_rows,
        state_bytes=new.state_bytes,
        layers=state.layer_counts,
        made=new.made,
        lacking=tuple(n for n, gaps in zip(new.made, new.gaps, strict=True) if gaps),
        sampled=recorded(new.selectivity),
        disk_rows=new.disk_rows,
        disk_bytes=new.disk_bytes,
        pending=_pending(new.groups, state.parts.missing_in(new.groups)),
        decided_us=state.decided.least(new.groups, state.undecidable),
        profile=profile(new.groups),
        brought_rows=int(state.news.brought.sum()),
        spooled_rows=new.spool.rows,
        spooled_bytes=new.spool.bytes,
        expired_rows=state.expired_rows,
        withheld=int(state.withheld.sum()),
        merged_rows=state.merged_rows,
    )


def with_files(
    record: SlotRecord, state: SlotState, old: Manifest, new: Manifest, store: Store
) -> SlotRecord:
    """Returns the record with the slot's new files, and those that it no longer names."""
    before, after = set(old.runs()), set(new.runs())
    seen = state.written | state.arrived | before | after
    return replace(
        record,
        added=tuple(sorted(seen - before)),
        dropped=tuple(sorted(seen - after)),
        restored=tuple(store.restored),
        copied=store.memory.copies + store.disk.copies,
    )


def _pending(table: GroupTable, missing: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Returns the groups that miss results, and the bytes of all their parts."""
    ids = sorted(missing)
    sizes = (table.size + table.disk_bytes)[ids]
    return tuple(zip(ids, sizes.tolist(), strict=True))

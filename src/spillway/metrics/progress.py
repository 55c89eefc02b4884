"""What a user sees of one batch: the entries of `query.recentProgress`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spillway.codec import plain
from spillway.metrics.events import Event
from spillway.metrics.record import SlotRecord


@dataclass(frozen=True)
class Phases:
    """Where the seconds of a batch went."""

    #: Building the plan of the batch and its Spark DataFrame.
    plan_s: float
    #: Source, shuffle, transfer to Python and back, sink: the Spark job without the operator.
    exchange_s: float
    #: The operator in the slowest slot.
    operator_s: float
    #: The coordinator's log, and file cleanup.
    commit_s: float


class Commit(Protocol):
    """What a progress entry needs from the committed state."""

    @property
    def batch(self) -> int:
        """The batch."""

    @property
    def round(self) -> int:
        """The number of the cleanup round after it; 0 for the batch itself."""

    @property
    def watermark_us(self) -> int | None:
        """The watermark after it."""

    @property
    def max_times(self) -> Sequence[int | None]:
        """The largest time seen in each stream."""

    @property
    def pending(self) -> tuple[tuple[int, int], ...]:
        """The groups that miss results, and their bytes."""

    @property
    def events(self) -> tuple[Event, ...]:
        """The changes to the state."""

    @property
    def moves(self) -> Sequence[object]:
        """The moves in progress."""


def progress(
    commit: Commit,
    streams: Sequence[str],
    records: Mapping[int, SlotRecord],
    phases: Phases,
    started_at_s: float,
) -> dict[str, Any]:
    """Builds one entry of `recentProgress` as plain data."""
    ordered = [records[slot] for slot in sorted(records)]
    rows_in = [sum(r.rows_in[i] for r in ordered) for i in range(len(streams))]
    late = [sum(r.rows_late[i] for r in ordered) for i in range(len(streams))]
    null = [sum(r.rows_null[i] for r in ordered if r.rows_null) for i in range(len(streams))]
    return {
        "batchId": commit.batch,
        "cleanupRound": commit.round,
        "timestamp": iso_utc(round(started_at_s * 1e6)),
        "rowsIn": dict(zip(streams, rows_in, strict=True)),
        "rowsLate": dict(zip(streams, late, strict=True)),
        "rowsNull": dict(zip(streams, null, strict=True)),
        "rowsOut": sum(r.rows_out for r in ordered),
        "rowsCleaned": sum(r.rows_cleaned for r in ordered),
        "rowsExpired": sum(r.expired_rows for r in ordered),
        "watermark": _iso(commit.watermark_us),
        "maxTimes": dict(zip(streams, map(_iso, commit.max_times), strict=True)),
        "stateRows": sum(sum(r.state_rows) + sum(r.disk_rows) for r in ordered),
        "stateBytes": sum(sum(r.state_bytes) + sum(r.disk_bytes) for r in ordered),
        "memoryBytes": sum(sum(r.state_bytes) for r in ordered),
        "diskBytes": sum(sum(r.disk_bytes) for r in ordered),
        "groupsPending": len(commit.pending),
        "spooledRows": sum(r.spooled_rows for r in ordered),
        "spooledBytes": sum(r.spooled_bytes for r in ordered),
        "moves": [plain(move) for move in commit.moves],
        "slots": [_slot(r, streams) for r in ordered],
        "events": [plain(event) for event in commit.events],
        "phases": {
            "planMs": round(phases.plan_s * 1e3, 1),
            "exchangeMs": round(phases.exchange_s * 1e3, 1),
            "operatorMs": round(phases.operator_s * 1e3, 1),
            "commitMs": round(phases.commit_s * 1e3, 1),
        },
        "batchMs": round(
            1e3 * (phases.plan_s + phases.exchange_s + phases.operator_s + phases.commit_s), 1
        ),
        "operatorCpuMs": round(sum(r.cpu_s for r in ordered) * 1e3, 2),
    }


def iso_utc(time_us: int) -> str:
    """Formats a time in microseconds as ISO text in UTC.

    Example:
        >>> iso_utc(1_500_000)
        '1970-01-01T00:00:01.500Z'
    """
    seconds, rest = divmod(time_us, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // 1000:03d}Z"


def _iso(time_us: int | None) -> str | None:
    return None if time_us is None else iso_utc(time_us)


def _slot(record: SlotRecord, inputs: Sequence[str]) -> dict[str, Any]:
    streams = (*inputs, *record.made)
    shaped = {"shape": record.shape, "lacking": list(record.lacking)} if record.shape else {}
    return {
        "slot": record.slot,
        **shaped,
        "stateRows": dict(zip(streams, record.state_rows, strict=True)),
        "stateBytes": dict(zip(streams, record.state_bytes, strict=True)),
        "diskRows": dict(zip(streams, record.disk_rows, strict=False)),
        "diskBytes": dict(zip(streams, record.disk_bytes, strict=False)),
        "peakBytes": record.peak_bytes,
        "parkedBytes": record.parked_bytes,
        "spooledRows": record.spooled_rows,
        "spooledBytes": record.spooled_bytes,
        "layers": dict(zip(streams, record.layers, strict=True)),
        "rowsIn": sum(record.rows_in),
        "rowsOut": record.rows_out,
        "rowsMerged": record.merged_rows,
        "busyMs": round(record.busy_s * 1e3, 1),
        "cpuMs": {name: round(s * 1e3, 2) for name, s in record.phases_s.items()},
        "restored": len(record.restored),
        "copied": record.copied,
        "worker": record.worker,
    }

"""Points and slots of the feed, from an entry of the query's progress (metrics/progress.py).

Every number on the page is one of that entry, or a sum, a quotient or a difference of such numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from spillway.dashboard.feed.happenings import moving_of
from spillway.dashboard.feed.news import Point, Slots

Entry = Mapping[str, Any]


def seconds_of(iso: str) -> float:
    """The seconds since 1970 of a time in the progress.

    Example:
        >>> seconds_of("1970-01-01T00:00:01.500Z")
        1.5
    """
    return datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()


def ended_s(entry: Entry) -> float:
    """When a batch was committed."""
    return seconds_of(entry["timestamp"]) + float(entry["batchMs"]) / 1e3


def point_of(entry: Entry, stage: int, lateness_us: Sequence[int | None] = ()) -> Point:
    """Returns the numbers of one batch; `lateness_us` is how late rows of each stream may come."""
    reached = list(entry["maxTimes"].values())
    late = [*lateness_us, *(None for _ in reached[len(lateness_us) :])]
    phases = entry["phases"]
    busy = _busy(entry)
    return Point(
        at_s=round(ended_s(entry), 3),
        stage=stage,
        batch=entry["batchId"],
        round=entry["cleanupRound"],
        seconds=entry["batchMs"] / 1e3,
        rows_in=tuple(entry["rowsIn"].values()),
        rows_late=tuple(entry["rowsLate"].values()),
        rows_null=tuple(entry["rowsNull"].values()),
        rows_out=entry["rowsOut"],
        rows_cleaned=entry["rowsCleaned"],
        rows_expired=entry["rowsExpired"],
        phases_s=tuple(
            phases[name] / 1e3 for name in ("planMs", "exchangeMs", "operatorMs", "commitMs")
        ),
        watermark_s=None if entry["watermark"] is None else seconds_of(entry["watermark"]),
        reached_s=tuple(
            None if at is None or allowed is None else seconds_of(at) - allowed / 1e6
            for at, allowed in zip(reached, late, strict=False)
        ),
        state_rows=entry["stateRows"],
        memory_bytes=entry["memoryBytes"],
        disk_bytes=entry["diskBytes"],
        waiting_rows=entry["spooledRows"],
        pending_groups=entry["groupsPending"],
        busy=spread(busy),
    )


def slots_of(
    entry: Entry,
    stage: int,
    limits: Mapping[int, int | None] | None = None,
    scaling_to: int | None = None,
) -> Slots:
    """Returns the slots after a batch; `limits` are the bytes at which each spills."""
    slots, known = entry["slots"], limits or {}
    shapes = tuple(slot.get("shape", "") for slot in slots)
    waiting = tuple(slot["spooledRows"] for slot in slots)
    return Slots(
        stage=stage,
        batch=entry["batchId"],
        memory_bytes=tuple(sum(slot["stateBytes"].values()) for slot in slots),
        limit_bytes=tuple(known.get(slot["slot"]) for slot in slots),
        disk_bytes=tuple(sum(slot["diskBytes"].values()) for slot in slots),
        rows=tuple(sum((*s["stateRows"].values(), *s["diskRows"].values())) for s in slots),
        rows_in=tuple(slot["rowsIn"] for slot in slots),
        rows_out=tuple(slot["rowsOut"] for slot in slots),
        busy=_busy(entry),
        waiting_rows=waiting if any(waiting) else (),
        shapes=shapes if any(shapes) else (),
        moves=moving_of(entry["moves"]),
        scaling_to=scaling_to,
    )


def _busy(entry: Entry) -> tuple[float, ...]:
    """The fraction of the batch in which each slot worked."""
    took = max(entry["batchMs"], 1e-6)
    return tuple(round(min(1.0, slot["busyMs"] / took), 4) for slot in entry["slots"])


def spread(busy: Sequence[float]) -> tuple[float, ...]:
    """The least, the mean and the most of some values; nothing of none.

    Example:
        >>> spread((0.2, 0.4))
        (0.2, 0.3, 0.4)
    """
    return (min(busy), round(sum(busy) / len(busy), 4), max(busy)) if busy else ()

"""Small values of the feed."""

from __future__ import annotations

from typing import Any

from spillway.dashboard.feed.news import About, Happening, News, Point, StageAbout

ABOUT = About(
    "orders", "query", "run-1", "wall", (StageAbout("n-way join", ("a", "b"), 4),), query="q1"
)


def point(batch: int, **more: Any) -> Point:
    return Point(at_s=float(batch), stage=0, batch=batch, **more)


def happening(number: int, **more: Any) -> Happening:
    values = {"at_s": 1.0, "stage": 0, "batch": 0, "kind": "spilled", "reason": "full"}
    return Happening(number=number, **{**values, **more})


def news(batch: int) -> News:
    return News(now_s=float(batch), points=(point(batch),))


def entry(batch: int, **changes: Any) -> dict[str, Any]:
    """An entry of `recentProgress` with two streams and two slots."""
    slots = [
        {
            "slot": slot,
            "stateRows": {"a": 10, "b": 5},
            "stateBytes": {"a": 100 * (slot + 1), "b": 50},
            "diskRows": {"a": 2, "b": 0},
            "diskBytes": {"a": 20, "b": 0},
            "spooledRows": 0,
            "rowsIn": 7,
            "rowsOut": 3,
            "busyMs": 100.0 * (slot + 1),
        }
        for slot in range(2)
    ]
    found = {
        "batchId": batch,
        "cleanupRound": 0,
        "timestamp": f"1970-01-01T00:00:{batch:02d}.000Z",
        "rowsIn": {"a": 10, "b": 4},
        "rowsLate": {"a": 1, "b": 0},
        "rowsNull": {"a": 0, "b": 0},
        "rowsOut": 6,
        "rowsCleaned": 0,
        "rowsExpired": 2,
        "watermark": "1970-01-01T00:00:03.000Z",
        "maxTimes": {"a": "1970-01-01T00:00:09.000Z", "b": "1970-01-01T00:00:04.000Z"},
        "stateRows": 34,
        "memoryBytes": 400,
        "diskBytes": 40,
        "groupsPending": 1,
        "spooledRows": 0,
        "moves": [],
        "slots": slots,
        "events": [],
        "phases": {"planMs": 10.0, "exchangeMs": 90.0, "operatorMs": 200.0, "commitMs": 100.0},
        "batchMs": 400.0,
    }
    return {**found, **changes}


def spilled(batch: int, reason: str = "full", groups: tuple[int, ...] = (1, 3)) -> dict[str, Any]:
    return {
        "event": "spilled",
        "batch": batch,
        "slot": 1,
        "groups": list(groups),
        "bytes": 20,
        "seconds": 0.25,
        "reason": reason,
    }

"""Follows the query of a job until it ends, or until somebody asks it to stop.

A first signal stops the query after its current batch; a second one ends the process at once.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from spillway.spark.api.query import Query

_LOOK_EVERY_S = 0.2
#: Exit code of a process that a second signal ends, as shells have it for Ctrl-C.
INTERRUPTED = 130

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"


@dataclass
class Seen:
    """What a job has done so far: totals since its start, and its last batch."""

    name: str
    began_at: float
    phase: str = "starting"
    elapsed_s: float = 0.0
    batches: int = 0
    rows_in: dict[str, int] = field(default_factory=dict)
    rows_late: dict[str, int] = field(default_factory=dict)
    rows_null: dict[str, int] = field(default_factory=dict)
    rows_out: int = 0
    #: In the state of all stages now.
    state_rows: int = 0
    state_bytes: int = 0
    #: The last entry of `query.recentProgress`.
    last: Mapping[str, Any] | None = None
    ended: str | None = None
    problem: Exception | None = None
    #: The address of the live dashboard, if it is open.
    dashboard: str | None = None

    def take(self, query: Query) -> None:
        """Counts the batches since the last look."""
        known = -1 if self.last is None else int(self.last["batchId"])
        for entry in query.recentProgress:
            if entry["batchId"] > known:
                self._add(entry)

    def _add(self, entry: Mapping[str, Any]) -> None:
        self.batches += 1
        for name, totals in (
            ("rowsIn", self.rows_in), ("rowsLate", self.rows_late), ("rowsNull", self.rows_null),
        ):  # fmt: skip
            for stream, rows in entry.get(name, {}).items():
                totals[stream] = totals.get(stream, 0) + rows
        stages = [entry, *entry.get("then", ())]
        self.rows_out += stages[-1]["rowsOut"]
        self.state_rows = sum(stage["stateRows"] for stage in stages)
        self.state_bytes = sum(stage["stateBytes"] for stage in stages)
        self.last = entry

    def document(self) -> dict[str, Any]:
        """The figures as plain data, for `--json`."""
        last = self.last or {}
        return {
            "job": self.name,
            "ended": self.ended,
            "seconds": round(self.elapsed_s, 1),
            "batches": self.batches,
            "rows_in": self.rows_in,
            "rows_late": self.rows_late,
            "rows_null": self.rows_null,
            "rows_out": self.rows_out,
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
            "watermark": last.get("watermark"),
        }


class Asked:
    """Whether somebody has asked the job to stop."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self, *_: object) -> None:
        """A signal: the first one asks, the second one ends the process."""
        if self._event.is_set():
            raise SystemExit(INTERRUPTED)
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Waits so long; returns whether somebody asked."""
        return self._event.wait(seconds)


@contextmanager
def stoppable() -> Iterator[Asked]:
    """Ctrl-C and SIGTERM ask the job to stop, inside the block."""
    asked = Asked()
    before = {one: signal.signal(one, asked) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def follow(
    query: Query, seen: Seen, asked: Asked, show: Callable[[Seen], None], seconds: float | None
) -> None:
    """Watches a query to its end, for `seconds` at most; fills `seen`."""
    seen.phase = "running"
    try:
        while query.isActive:
            seen.take(query)
            seen.elapsed_s = time.monotonic() - seen.began_at
            show(seen)
            over = seconds is not None and seen.elapsed_s >= seconds
            if over or asked.wait(_LOOK_EVERY_S):
                seen.phase = "stopping after the current batch"
                show(seen)
                query.stop()
                seen.ended = STOPPED
        seen.problem = query.exception()
    finally:
        seen.take(query)
        seen.elapsed_s = time.monotonic() - seen.began_at
    if seen.problem is not None:
        seen.ended = FAILED
    elif seen.ended is None:
        seen.ended = FINISHED
    seen.phase = seen.ended
    show(seen)

"""What the dashboard costs a query, in its own process: an order in, measured times out.

    python -m spillway_lab.bench.board ORDER.json RESULT.json

One windowed join runs at one batch per trigger interval. Blocks of batches take turns: no dashboard, one
that nobody looks at, and one whose feed a reader follows. So all three have the same state, the same
machine and the same neighbours. Each round has another order, and a ratio compares blocks of one round,
because batches become faster while Java compiles. The first round is not measured.

The reader does nothing with what it reads, because a browser is another program. Processor time is that
of the dashboard's own threads.
"""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pyspark

from spillway.dashboard.server.serving import Dashboard
from spillway.spark.api.join import join
from spillway.spark.api.query import Query
from spillway_lab.bench.engine import answer, session
from spillway_lab.bench.spec import CORES, EngineOrder
from spillway_lab.workloads.pairs import Pairs

NONE, IDLE, WATCHED = "none", "idle", "watched"
STATES = (NONE, IDLE, WATCHED)
GROUPS = 1024
#: Batches of one block; the first of each is not measured, because it pays for the change.
BLOCK_BATCHES = 5
TRIGGER_S = 1.0
_LOOK_EVERY_S = 0.05
_PATIENCE_S = 900.0

Say = Callable[[dict[str, Any]], None]


class Reader:
    """A page: follows the feed until it is closed."""

    def __init__(self, port: int) -> None:
        self.bytes = 0
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._connection.request("GET", "/feed")
        self._answer = self._connection.getresponse()
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while data := self._answer.read1(1 << 20):
                self.bytes += len(data)
        except (OSError, ValueError, AttributeError):
            # It was closed while it read.
            return

    def close(self) -> None:
        """Leaves."""
        sock = self._connection.sock
        if sock is not None:
            sock.close()
        self._connection.close()


def measure(order: EngineOrder, say: Say) -> dict[str, Any]:
    """All blocks."""
    spark = session(order)
    try:
        pairs = Pairs(2, order.rows, order.batches + 1000, times=True)
        query = (
            join(**pairs.stream(spark))
            .on("k")
            .within("30 seconds", time="ts")
            .writeStream.format("noop")
            .option("checkpointLocation", f"{order.directory}/checkpoint-board")
            .adapt(slots=CORES, groups=GROUPS)
            .trigger(processingTime=f"{TRIGGER_S} seconds")
            .start()
        )
        try:
            return _blocks(query, order, say)
        finally:
            query.stop()
    finally:
        spark.stop()


def _blocks(query: Query, order: EngineOrder, say: Say) -> dict[str, Any]:
    seen: dict[int, float] = {}
    _until(query, BLOCK_BATCHES, seen)
    found: dict[str, Any] = {
        state: {"batch_s": [], "cpu_s": 0.0, "wall_s": 0.0, "bytes": 0} for state in STATES
    }
    rounds = max(1, order.batches // (BLOCK_BATCHES * len(STATES)))
    for number in range(-1, rounds):
        for at in range(len(STATES)):
            state = STATES[(at + number) % len(STATES)]
            say({"phase": state, "batch": number + 1, "of": rounds})
            into = found[state] if number >= 0 else {**found[state], "batch_s": []}
            _block(query, state, into, seen)
    return {"engine": order.engine, "spark": pyspark.__version__, "groups": GROUPS, **found}


def _block(query: Query, state: str, found: dict[str, Any], seen: dict[int, float]) -> None:
    """Runs some batches in one state."""
    with ExitStack() as held:
        board = reader = None
        if state != NONE:
            board = held.enter_context(query.dashboard())
        if state == WATCHED and board is not None:
            reader = Reader(board.port)
            held.callback(reader.close)
        first = _until(query, max(seen, default=-1) + 1, seen)
        began, cpu_s = time.monotonic(), _cpu_s(board)
        last = _until(query, first + BLOCK_BATCHES - 1, seen)
        found["wall_s"] += time.monotonic() - began
        found["cpu_s"] += _cpu_s(board) - cpu_s
        found["bytes"] += reader.bytes if reader else 0
    found["batch_s"].append([seen[b] for b in range(first + 1, last + 1) if b in seen])


def _cpu_s(board: Dashboard | None) -> float:
    """Processor time of the dashboard's threads so far."""
    if board is None:
        return 0.0
    own = (*board.threads, *(t for t in threading.enumerate() if t.name.startswith("AnyIO")))
    clocks = [time.pthread_getcpuclockid(one.ident) for one in own if one.ident and one.is_alive()]
    return sum(map(time.clock_gettime, clocks))


def _until(query: Query, batch: int, seen: dict[int, float]) -> int:
    """Waits for a batch; returns the last one."""
    ends = time.monotonic() + _PATIENCE_S
    while True:
        if (problem := query.exception()) is not None:
            raise problem
        seen |= {one["batchId"]: one["batchMs"] / 1e3 for one in query.recentProgress}
        last = max(seen, default=-1)
        if last >= batch:
            return last
        if time.monotonic() > ends:
            raise TimeoutError(f"batch {batch} did not come in {_PATIENCE_S:g} seconds")
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    answer(measure, *sys.argv[1:])

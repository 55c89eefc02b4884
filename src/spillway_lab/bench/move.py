"""What moving state costs a stream, in its own process: an order in, measured times out.

    python -m spillway_lab.bench.move ORDER.json RESULT.json

A join of two streams with a wide payload builds up three times as much state in one slot as in the
other. A gigabyte then moves back and forth, always to the emptier slot, at one batch per trigger
interval. All batches count, from the first that releases groups to the last that serves them again
or catches up. Meanwhile Spark shuffles as many bytes of the same rows. Slots of one host share a
memory tier, so nothing is copied. Then the query doubles its slots and goes back. The last step checks
its row count.

A second stream has its slots on two executors that share no memory, as on two hosts: the receiver
copies state from the durable tier. Spark shuffles as many bytes between the same executors.

The coordinator's work between two batches, for a thousand slots and a hundred thousand groups, is
compared with an empty batch in the same process.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyspark
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from spillway.metrics.events import (
    Event,
    GroupsReactivated,
    GroupsReceived,
    MoveAsked,
    MoveEvent,
    Scaled,
)
from spillway.metrics.view import NORMAL, ClusterView
from spillway.policies.cluster.decision import Move
from spillway.policies.cluster.strategy import Strategy
from spillway.spark.api.join import join
from spillway.spark.api.query import Query
from spillway.spark.runtime.moves.mover import POOL
from spillway.testing import steer
from spillway_lab.bench.coordinator import coordinator_s
from spillway_lab.bench.engine import answer, session
from spillway_lab.bench.spec import CORES, EngineOrder
from spillway_lab.workloads.pairs import Pairs

#: Bytes that move each time.
MOVE_BYTES = 1 << 30
#: The same between executors.
SENT_BYTES = 1 << 28
#: Measured moves, and batches without a move before them.
MOVES, SENT_MOVES = 5, 3
QUIET_BATCHES = 30
#: Unmeasured batches after a start: the query opens its state again.
START_BATCHES = 5
#: Batches between two moves, to catch up.
REST_BATCHES = 3
#: Seconds from one batch to the next. A batch takes about a third of it on two cores, so the stream
#: has headroom, as in production.
TRIGGER_S = 2.0
#: The initial share of groups, and the state of the first slot before the first move: a move swaps the
#: two slots, so batches have as much to do after it as before.
SHARES = (3, 1)
#: Two executors on one machine; each of them has a slot.
APART = f"local-cluster[{CORES},1,2048]"
GROUPS = 256
_LOOK_EVERY_S = 0.1
_EMPTY_BATCHES = 12
#: The run length that keys are spread over; longer than the actual run.
_MOST_BATCHES = 1000
_PATIENCE_S = 900

Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Shuttle(Strategy):
    """A strategy that moves a given amount back and forth, when told to."""

    wanted: tuple[Move, ...] = ()

    def decide(self, view: ClusterView) -> tuple[Move, ...]:
        """The wanted moves, as soon as both slots are free."""
        free = {slot.slot for slot in view.slots if slot.mode == NORMAL}
        return tuple(m for m in self.wanted if {m.sender, m.receiver} <= free)


class Stream:
    """The stream under test, and the times of its batches."""

    def __init__(
        self, spark: SparkSession, order: EngineOrder, say: Say, trigger_s: float, share: str
    ) -> None:
        self._say = say
        self._entries: dict[int, dict[str, Any]] = {}
        self._seconds: dict[int, float] = {}
        self.pairs = Pairs(2, order.rows, _MOST_BATCHES, payload=True)
        joined = join(**self.pairs.stream(spark)).on("k").select("a.k", "a.v")
        self.query: Query = (
            joined.writeStream.format("noop")
            .option("checkpointLocation", f"{order.directory}/checkpoint-relocate-{share}")
            .adapt(slots=CORES, groups=GROUPS, shares=SHARES, share=share)
            .adapt(strategy="relocate-only", relocation_batches=1)
            .trigger(processingTime=f"{trigger_s} seconds")
            .start()
        )
        self.moves(())

    def moves(self, wanted: tuple[Move, ...]) -> None:
        """Sets the moves to make from the next batch on."""
        shuttle = Shuttle("relocate-only", wanted=wanted)
        steer(self.query, lambda rules: replace(rules, strategy=shuttle))

    def until(self, what: str, true: Callable[[], bool]) -> None:
        """Waits until a condition holds."""
        ends = time.monotonic() + _PATIENCE_S
        while not true():
            if (problem := self.query.exception()) is not None:
                raise problem
            if time.monotonic() > ends:
                raise TimeoutError(f"{what} did not come in {_PATIENCE_S} seconds")
            time.sleep(_LOOK_EVERY_S)
            self._take(what)

    def _take(self, what: str) -> None:
        before = self.last
        self._entries |= {
            entry["batchId"]: entry
            for entry in self.query.recentProgress
            if not entry["cleanupRound"]
        }
        self._seconds |= {
            one["batchId"]: one["durationMs"]["triggerExecution"] / 1e3
            for one in self.query.sparkProgress
        }
        if self.last > before:
            self._say({"phase": what, "batch": self.last + 1, "of": 0})

    @property
    def last(self) -> int:
        """The last batch."""
        return max(self._entries, default=-1)

    def reached(self, batch: int) -> bool:
        """Whether a batch has ended."""
        return self.last >= batch and batch in self._seconds

    def held(self, slot: int) -> int:
        """Bytes of state in a slot."""
        entry = self._entries.get(self.last)
        return sum(entry["slots"][slot]["stateBytes"].values()) if entry else 0

    def seconds(self, first: int, last: int) -> list[float]:
        """The times of the batches from `first` to `last`."""
        return [self._seconds[b] for b in range(first, last + 1) if b in self._seconds]

    def events(self, kind: type[MoveEvent]) -> list[MoveEvent]:
        """The events of one kind of step in a move."""
        return [event for event in self.query.events if isinstance(event, kind)]


def measure(order: EngineOrder, say: Say) -> dict[str, Any]:
    """All measurements."""
    spark = session(order)
    try:
        empty_s = _empty_batch_s(spark, order, say)
        found = _on_one_host(spark, order, say)
        say({"phase": "coordinator", "batch": 0, "of": 1})
        found |= {"empty_batch_s": empty_s, "coordinator_s": coordinator_s()}
    finally:
        spark.stop()
    spark = session(order, APART)
    try:
        found |= _between_executors(spark, order, say)
    finally:
        spark.stop()
    return {"engine": order.engine, "spark": pyspark.__version__, **found}


def _on_one_host(spark: SparkSession, order: EngineOrder, say: Say) -> dict[str, Any]:
    stream = _gathered(spark, order, say, "host", MOVE_BYTES)
    try:
        found = {"normal_s": _normal_s(stream)}
        found |= _measure_shuffle(spark, stream, MOVE_BYTES)
        spans = [_move(stream, number % 2, MOVE_BYTES) for number in range(MOVES)]
        received, served = (stream.events(kind) for kind in (GroupsReceived, GroupsReactivated))
        found |= {
            "moving_s": [took for span in spans for took in stream.seconds(*span)],
            "serving_s": [stream.seconds(event.batch, event.batch)[0] for event in served],
            "moved_bytes": [event.bytes for event in received],
            "moved_s": [event.seconds for event in received],
            "batches_until_served": [
                after.batch - before.batch for before, after in zip(received, served, strict=True)
            ],
        }
        found |= _measure_scaling(stream)
        stream.query.stop()
        return found | {"exact": _exact(stream)}
    finally:
        stream.query.stop()


def _between_executors(spark: SparkSession, order: EngineOrder, say: Say) -> dict[str, Any]:
    stream = _gathered(spark, order, say, "executor", SENT_BYTES)
    try:
        found: dict[str, Any] = {"normal_s": _normal_s(stream)}
        found |= _measure_shuffle(spark, stream, SENT_BYTES)
        spans = [_move(stream, number % 2, SENT_BYTES) for number in range(SENT_MOVES)]
        received = stream.events(GroupsReceived)
        found |= {
            "sending_s": [took for span in spans for took in stream.seconds(*span)],
            "bytes": [event.bytes for event in received],
            "seconds": [event.seconds for event in received],
        }
        stream.query.stop()
        return {"sent": found | {"exact": _exact(stream)}}
    finally:
        stream.query.stop()


def _gathered(
    spark: SparkSession, order: EngineOrder, say: Say, share: str, move_bytes: int
) -> Stream:
    """A stream whose first slot has half as much again as moves; it built that up at full speed."""
    stream = Stream(spark, order, say, 0, share)
    try:
        stream.until("gathering state", lambda: stream.held(0) > move_bytes * 3 // 2)
    finally:
        stream.query.stop()
    stream = Stream(spark, order, say, TRIGGER_S, share)
    stream.until("starting", lambda: stream.last >= 0)
    stream.until("starting", partial(stream.reached, stream.last + START_BATCHES))
    return stream


def _normal_s(stream: Stream) -> list[float]:
    """The times of batches while nothing moves."""
    quiet = stream.last + 1
    stream.until("no move", partial(stream.reached, quiet + QUIET_BATCHES))
    return stream.seconds(quiet, stream.last)


def _move(stream: Stream, sender: int, size: int) -> tuple[int, int]:
    """Moves `size` bytes from one slot to the other; returns the first and last batch of the move."""
    begun = len(stream.events(MoveAsked))
    stream.moves((Move(sender, 1 - sender, size, "measured"),))
    stream.until("moving", partial(_happened, stream.query, MoveAsked, begun + 1))
    stream.moves(())
    first = stream.last
    stream.until("moving", lambda: not stream.query._loop.state.moves)
    stream.until("moving", partial(stream.reached, stream.last))
    last = stream.last
    stream.until("resting", partial(stream.reached, last + REST_BATCHES))
    return first + 1, last


def _happened(query: Query, kind: type[Event], times: int) -> bool:
    return sum(isinstance(event, kind) for event in query.events) >= times


def _measure_shuffle(spark: SparkSession, stream: Stream, size: int) -> dict[str, Any]:
    """How long Spark shuffles as many bytes of the same rows while the stream runs; and the bytes."""
    entry = stream._entries[stream.last]
    per_row = entry["stateBytes"] / entry["stateRows"]
    batches = int(size / per_row / stream.pairs.rows)
    rows = stream.pairs.batch(spark, 0, batches)["a"].persist(StorageLevel.MEMORY_ONLY)
    count = rows.count()
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
    begun = time.perf_counter()
    rows.repartition(CORES, "k").write.format("noop").mode("append").save()
    seconds = time.perf_counter() - begun
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "default")
    rows.unpersist()
    return {"shuffled_s": seconds, "shuffled_bytes": int(count * per_row)}


def _measure_scaling(stream: Stream) -> dict[str, Any]:
    """Doubles the slots and halves them again, under load."""
    batches = []
    for times, slots in enumerate((2 * CORES, CORES), start=1):
        begun = stream.last
        stream.query.scale(slots=slots)
        stream.until(
            f"scaling to {slots} slots",
            partial(_happened, stream.query, Scaled, times),
        )
        batches.append(stream.last - begun)
    return {"scale_batches": batches}


def _exact(stream: Stream) -> bool:
    """Whether the query produced as many rows as the join of its input."""
    state = stream.query._loop.state
    wanted = stream.pairs.matches(state.batch + 1)
    taken = [stream.pairs.rows * (state.batch + 1)] * 2
    return wanted == state.rows_out and list(state.rows_in) == taken and not state.moves


def _empty_batch_s(spark: SparkSession, order: EngineOrder, say: Say) -> float:
    """The time of an almost empty batch, after a warm-up."""
    small = replace(order, rows=1)
    pairs = Pairs(2, small.rows, 1000)
    query = (
        join(**pairs.stream(spark)).on("k").writeStream.format("noop")
        .option("checkpointLocation", f"{order.directory}/checkpoint-empty")
        .adapt(slots=CORES, groups=GROUPS).start()
    )  # fmt: skip
    try:
        while len(query.sparkProgress) < 2 * _EMPTY_BATCHES:
            if (problem := query.exception()) is not None:
                raise problem
            time.sleep(_LOOK_EVERY_S)
            say({"phase": "empty batches", "batch": len(query.sparkProgress), "of": 0})
        seconds = [one["durationMs"]["triggerExecution"] / 1e3 for one in query.sparkProgress]
        return float(statistics.median(seconds[_EMPTY_BATCHES:]))
    finally:
        query.stop()


if __name__ == "__main__":
    answer(measure, *sys.argv[1:])

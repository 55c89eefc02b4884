"""Moves the state of groups from slot to slot, in Spark jobs that run next to the batches.

    job        one task, at the receiver: it copies slices of the sender's runs from the durable tier to
               its own memory (state/slot/fetching.py); the sender has no part in it
    pool       moves have their own scheduler pool, so that with FAIR scheduling a batch shares the cores
               with one job instead of waiting for a whole move

A job is a *load* that fits between two batches (spark/runtime/moves/pace.py), so batches do not wait for
it. A manifest of the part names the sender's slices. The driver sees names, never rows.

If both slots share a memory tier, nothing is copied.

Known limitation: with Spark's default FIFO scheduling, a job that began first keeps its cores until it
ends. `spillway.spark.api.session.local_session` sets FAIR.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.effects import SendGroups, StepReached
from spillway.errors import from_wire, passed_to_driver
from spillway.faults import Faults
from spillway.ids import SlotId
from spillway.protocols.messages import (
    Message,
    Received,
    ReceivePartitions,
    SendFailed,
    SendPartitions,
)
from spillway.protocols.move import GroupMove
from spillway.redaction import hidden
from spillway.spark.runtime.home import Home
from spillway.spark.runtime.moves.pace import MOST_BYTES, Loads, Pace
from spillway.spark.runtime.moves.workers import own_workers
from spillway.state.layout.moving import of_move
from spillway.state.manifest.combining import part_manifest
from spillway.state.manifest.matching import matched
from spillway.state.slot.fetching import Fetch, fetch_all, fetches

_LOG = logging.getLogger(__name__)

POOL = "spillway-moves"
#: How long a load waits for room between long batches.
GIVE_WAY_S = 5.0
_LOOK_EVERY_S = 0.005

_FETCHED = "bytes bigint"


class MoveExchange(Protocol):
    """Brings rows to a slot."""

    def __call__(self, rows: DataFrame, slot: Column, *, first: bool = False) -> DataFrame:
        """The rows in one partition there; the first exchange of a job starts with one partition."""
        ...


@dataclass(frozen=True)
class FetchTask:
    """What the task of one job gets."""

    home: Home
    #: The batch after which the sender cut the groups out.
    batch: int
    move: int
    receiver: int
    load: tuple[Fetch, ...]
    faults: Faults

    def run(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """At the receiver: copies the rows. A task without a row is elsewhere."""
        # Read all of the input: Spark does not reuse a worker that leaves some.
        if not sum(batch.num_rows for batch in rows):
            return
        reach = self.faults.bound(self.move, self.receiver)
        with passed_to_driver():
            reach("receiving")
            written = fetch_all(self.load, self.home.store(self.batch, self.receiver))
        yield pa.RecordBatch.from_arrays([pa.array([written])], names=["bytes"])


class Mover:
    """The moves that one query is sending, each in its own thread."""

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        home: Home,
        faults: Faults,
        pace: Pace,
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._home = home
        self._faults = faults
        #: Called at each step of a move; tests place faults there.
        self.reach: Callable[[StepReached], None] = lambda _: None
        self._pace = pace
        self._loads = Loads()
        #: Set while someone waits for all moves.
        self._hurry = threading.Event()
        self._threads: dict[int, threading.Thread] = {}
        self._said: list[tuple[Message, float]] = []
        self._lock = threading.Lock()
        self._closed = False
        self._warm = False

    def warm_up(self) -> None:
        """Starts the workers that fetch in advance.

        A worker needs seconds of a core to start, which would slow a batch while groups move.
        """
        if self._warm or self._closed:
            return
        self._warm = True
        threading.Thread(target=self._start_workers, name="spillway-warm-up", daemon=True).start()

    def send(self, groups: SendGroups, exchange: MoveExchange | None) -> None:
        """Begins to fetch a departure; without an exchange, it is already where it is needed."""
        if self._closed:
            return
        number = groups.move.move
        thread = threading.Thread(
            target=self._run, args=(groups, exchange), name=f"spillway-move-{number}", daemon=True
        )
        self._threads[number] = thread
        thread.start()

    def messages(self) -> list[tuple[Message, float]]:
        """The messages since the last call, each with the seconds that it took."""
        with self._lock:
            said, self._said = self._said, []
        for message, _ in said:
            if isinstance(message, Received | SendFailed):
                self._threads.pop(message.move).join()
        return said

    @property
    def waiting(self) -> bool:
        """Whether a move has ended that no batch knows of."""
        with self._lock:
            return any(isinstance(one, Received | SendFailed) for one, _ in self._said)

    @property
    def busy(self) -> bool:
        """Whether the mover is sending."""
        return any(thread.is_alive() for thread in list(self._threads.values()))

    def finish(self) -> None:
        """Waits until everything is sent."""
        self._hurry.set()
        for thread in list(self._threads.values()):
            thread.join()
        self._hurry.clear()

    def close(self) -> None:
        """Ends all sending; a later start sends again."""
        self._closed = True
        if self._threads:
            self._spark.sparkContext.cancelJobGroup(self._group)
        self.finish()

    @property
    def _group(self) -> str:
        return f"spillway-moves-{self._home.query_id}"

    def _start_workers(self) -> None:
        with own_workers(self._spark, POOL):
            rows = self._spark.range(0, 2, 1, 2).mapInArrow(lambda few: few, "id bigint")
        # Any error may be ignored: warming up saves time and nothing depends on it. The query may also
        # stop meanwhile, which fails in many ways. A real problem reappears when a move is sent.
        try:
            rows.write.format("noop").mode("append").save()
        except Exception as problem:
            _LOG.debug("the workers of moves did not start in advance: %s", _brief(problem))

    def _say(self, message: Message, seconds: float) -> None:
        with self._lock:
            self._said.append((message, seconds))

    def _run(self, groups: SendGroups, exchange: MoveExchange | None) -> None:
        watch, move = time.perf_counter(), groups.move
        self._say(SendPartitions(move.move), 0.0)
        self.reach(StepReached(move, 5))
        try:
            received = self._deliver(groups, exchange)
        except Exception as problem:
            self._say(SendFailed(move.move, _brief(problem)), time.perf_counter() - watch)
            return
        self.reach(StepReached(move, 7))
        self._say(received, time.perf_counter() - watch)

    def _deliver(self, groups: SendGroups, exchange: MoveExchange | None) -> Received:
        move = groups.move
        sender = matched(self._checkpoint.manifest(groups.manifest), groups.made)
        departure = of_move(sender.departures, move.move)
        assert departure is not None
        if exchange is None:
            self._say(ReceivePartitions(move.move), 0.0)
            self.reach(StepReached(move, 6))
        else:
            wanted = _fitting(fetches(departure), groups.room_bytes)
            self._fetch(move, int(sender.version), wanted, exchange)
        part = part_manifest(SlotId(move.receiver), departure, departure.streams, sender.groups)
        name = f"manifests/{sender.version:09d}-{move.receiver}-{self._home.new_attempt()}.json"
        self._checkpoint.durable.write(name, part.encode())
        self._checkpoint.durable.sync()
        return Received(move.move, name, sum(map(sum, departure.sizes)))

    def _fetch(
        self, move: GroupMove, batch: int, wanted: list[Fetch], exchange: MoveExchange
    ) -> None:
        """Copies the rows to the receiver's memory, one load after the other."""
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.setJobGroup(self._group, f"move {move.move}", interruptOnCancel=True)
        watch = time.perf_counter()
        loads = self._in_loads(wanted)
        for load in islice(loads, 1):
            self._carry(move, batch, load, exchange)
        self._say(ReceivePartitions(move.move), time.perf_counter() - watch)
        self.reach(StepReached(move, 6))
        for load in loads:
            self._carry(move, batch, load, exchange)

    def _in_loads(self, left: list[Fetch]) -> Iterator[list[Fetch]]:
        """What is to be fetched in loads, each when there is room."""
        while left:
            room = self._wait_for_room(left[0].bytes)
            self._loads.batches = self._pace.batches
            ends = list(accumulate(one.bytes for one in left))
            count = max(1, bisect_right(ends, room))
            load, left = left[:count], left[count:]
            watch = time.monotonic()
            yield load
            self._loads.learn(sum(one.bytes for one in load), time.monotonic() - watch)

    def _wait_for_room(self, least: int) -> int:
        """Waits for room for a load; returns the bytes that it may have."""
        until = time.monotonic() + GIVE_WAY_S
        while (now := time.monotonic()) < until:
            room = self._loads.allowed(self._pace, now, least)
            if room:
                return room
            if self._hurry.wait(_LOOK_EVERY_S):
                return MOST_BYTES
        return least

    def _carry(
        self, move: GroupMove, batch: int, load: Sequence[Fetch], exchange: MoveExchange
    ) -> None:
        """Runs one job."""
        task = FetchTask(self._home, batch, move.move, move.receiver, tuple(load), self._faults)
        begin = self._spark.range(0, 1, 1, 1).select(F.lit(1).cast("int").alias("go"))
        with own_workers(self._spark, POOL):
            there = exchange(begin, F.lit(move.receiver), first=True)
            fetched = there.mapInArrow(task.run, _FETCHED)
        fetched.collect()


def _fitting(wanted: list[Fetch], room_bytes: int | None) -> list[Fetch]:
    """The first that fit; the batch that serves the groups fetches the others, and spills."""
    if room_bytes is None:
        return wanted
    ends = list(accumulate(one.bytes for one in wanted))
    return wanted[: bisect_right(ends, room_bytes)]


def _brief(problem: Exception) -> str:
    """The line of Spark's long text that names the problem."""
    if (ours := from_wire(str(problem))) is not None:
        return str(ours)[:300]
    lines = hidden(str(problem)).splitlines()
    named = [line for line in lines if re.match(r"\w+(Error|Exception): ", line)]
    return (named or lines or [type(problem).__name__])[-1 if named else 0][:300]

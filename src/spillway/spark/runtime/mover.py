"""Sends groups from slot to slot, in Spark jobs that run next to the batches.

    step       one job: a task at the sender reads parcels from its memory tier, Spark's exchange carries
               them, and a task at the receiver writes them as runs
    pool       moves have their own scheduler pool, so that with FAIR scheduling a batch shares the cores
               with one step instead of waiting for a whole move

A step is a *load* of parcels that fits between two batches (spark/runtime/pace.py), so batches do not
wait for it. A manifest names the received runs only when all have arrived. The driver sees
descriptions of runs, never rows.

If both slots share a memory tier, nothing is sent: the receiver takes the runs over by name.

Known limitation: with Spark's default FIFO scheduling, a step that began first keeps its cores until it
ends. `spillway.spark.api.session.local_session` sets FAIR.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, islice
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.effects import StepReached
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
from spillway.spark.runtime.pace import MOST_BYTES, Loads, Pace
from spillway.spark.runtime.workers import own_workers
from spillway.state.layout.layers import Layer
from spillway.state.layout.moving import Departure, of_move
from spillway.state.manifest.combining import part_manifest
from spillway.state.manifest.manifest import Manifest
from spillway.state.manifest.matching import matched
from spillway.state.runs.merging import merged
from spillway.state.runs.run import Run
from spillway.state.slot.shipping import Parcel, laid_out, pack, parcels, unpack

_LOG = logging.getLogger(__name__)
POOL = "spillway-moves"
#: How long a load waits for its turn between long batches.
GIVE_WAY_S = 5.0
_LOOK_EVERY_S = 0.005

_SENT = "parcel int, piece int, payload binary"
_RECEIVED = "parcel int, run string"
#: Pieces are large, so an Arrow batch has few of them.
_ARROW = {"spark.sql.execution.arrow.maxRecordsPerBatch": "16"}


class Exchange(Protocol):
    """Brings rows to a slot."""

    def __call__(self, rows: DataFrame, slot: Column, *, first: bool = False) -> DataFrame:
        """The rows in one partition there; the first exchange of a job starts with one partition."""
        ...


@dataclass(frozen=True)
class Shipment:
    """What the tasks of one job get."""

    home: Home
    #: The batch after which the sender cut the groups out.
    batch: int
    move: int
    sender: int
    receiver: int
    parcels: tuple[Parcel, ...]
    #: For each stream, the position of its event time.
    times: tuple[int | None, ...]
    faults: Faults

    def send(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """At the sender: the parcels in pieces. A task without a row is not the sender."""
        # Read all of the input: Spark does not reuse a worker that leaves some.
        if not sum(batch.num_rows for batch in rows):
            return
        reach = self.faults.bound(self.move, self.sender)
        with passed_to_driver():
            store = self.home.store(self.batch)
            for number, parcel in enumerate(self.parcels):
                for at, piece in enumerate(pack(parcel, self.times[parcel.stream], store)):
                    reach("sending")
                    yield _sent(number, at, piece)

    def receive(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """At the receiver: makes a run of each parcel, or several of a large one."""
        pieces: dict[int, dict[int, bytes]] = {}
        for batch in rows:
            for number, at, payload in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                pieces.setdefault(number, {})[at] = payload
        reach = self.faults.bound(self.move, self.receiver)
        with passed_to_driver():
            store, received = self.home.store(self.batch), []
            for number in sorted(pieces):
                reach("receiving")
                mine = pieces.pop(number)
                stream = self.parcels[number].stream
                ordered = (mine[at] for at in sorted(mine))
                name = self._run_name(stream, number)
                runs = unpack(ordered, name, self.times[stream], store)
                received += [_described(number, run) for run in runs]
            # A manifest names these runs as soon as the driver hears of them.
            store.durable.sync()
        yield from received

    def _run_name(self, stream: int, number: int) -> str:
        attempt = self.home.new_attempt()
        return f"{self.batch:09d}-{self.receiver}-{stream}-m{self.move}.{number}-{attempt}.arrow"


class Mover:
    """The moves that one query is sending, each in its own thread."""

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        home: Home,
        times: Callable[[Sequence[str]], tuple[int | None, ...]],
        faults: Faults,
        pace: Pace,
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._home = home
        #: The positions of the event times of streams, including the made streams of these names.
        self._times = times
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
        for key, value in _ARROW.items():
            spark.conf.set(key, value)

    def warm_up(self) -> None:
        """Starts the workers that send and receive in advance.

        A worker needs seconds of a core to start, which would slow a batch while groups move.
        """
        if self._warm or self._closed:
            return
        self._warm = True
        threading.Thread(target=self._start_workers, name="spillway-warm-up", daemon=True).start()

    def send(
        self,
        move: GroupMove,
        sender: Manifest,
        made: Collection[str],
        exchange: Exchange | None,
    ) -> None:
        """Starts to send a departure; without an exchange, it is already where it is needed.

        `made` names the made streams that the receiver has; the others do not travel.
        """
        if self._closed:
            return
        work = (move, matched(sender, made), exchange)
        thread = threading.Thread(
            target=self._run, args=work, name=f"spillway-move-{move.move}", daemon=True
        )
        self._threads[move.move] = thread
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
            rows = self._spark.range(0, 2, 1, 2).mapInArrow(_warmed, "id bigint")
        # Any error may be ignored: warming up saves time and nothing depends on it. The query may also
        # stop meanwhile, which fails in many ways. A real problem reappears when a move is sent.
        try:
            rows.write.format("noop").mode("append").save()
        except Exception as problem:
            _LOG.debug("the workers for moves start later: %s", hidden(str(problem)))

    def _say(self, message: Message, seconds: float) -> None:
        with self._lock:
            self._said.append((message, seconds))

    def _run(self, move: GroupMove, sender: Manifest, exchange: Exchange | None) -> None:
        watch = time.perf_counter()
        self._say(SendPartitions(move.move), 0.0)
        self.reach(StepReached(move, 5))
        try:
            received = self._deliver(move, sender, exchange)
        except Exception as problem:
            self._say(SendFailed(move.move, _brief(problem)), time.perf_counter() - watch)
            return
        self.reach(StepReached(move, 7))
        self._say(received, time.perf_counter() - watch)

    def _deliver(self, move: GroupMove, sender: Manifest, exchange: Exchange | None) -> Received:
        departure = of_move(sender.departures, move.move)
        assert departure is not None
        if exchange is None:
            self._say(ReceivePartitions(move.move), 0.0)
            self.reach(StepReached(move, 6))
            layers = departure.streams
        else:
            layers = self._ship(move, sender, departure, exchange)
        part = part_manifest(SlotId(move.receiver), departure, layers, sender.groups)
        name = f"manifests/{sender.version:09d}-{move.receiver}-{self._home.new_attempt()}.json"
        self._checkpoint.durable.write(name, part.encode())
        self._checkpoint.durable.sync()
        return Received(move.move, name, sum(map(sum, departure.sizes)))

    def _ship(
        self, move: GroupMove, sender: Manifest, departure: Departure, exchange: Exchange
    ) -> tuple[tuple[Layer, ...], ...]:
        """Carries the rows to the receiver; returns their layers there for each stream."""
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.setJobGroup(self._group, f"move {move.move}", interruptOnCancel=True)
        watch = time.perf_counter()
        received: list[tuple[Parcel, Run]] = []
        # Of the sender's made streams, only those that the receiver has too remain.
        sent = (int(sender.version), self._times(departure.made))
        loads = self._in_loads(parcels(departure, len(sender.groups)))
        for load in islice(loads, 1):
            received += self._carry(move, load, *sent, exchange)
        self._say(ReceivePartitions(move.move), time.perf_counter() - watch)
        self.reach(StepReached(move, 6))
        for load in loads:
            received += self._carry(move, load, *sent, exchange)
        return laid_out(received, len(departure.streams))

    def _in_loads(self, left: list[Parcel]) -> Iterator[list[Parcel]]:
        """The parcels in loads, each at its turn."""
        while left:
            room = self._turn(left[0].bytes)
            self._loads.batches = self._pace.batches
            ends = list(accumulate(parcel.bytes for parcel in left))
            count = max(1, bisect_right(ends, room))
            load, left = left[:count], left[count:]
            watch = time.monotonic()
            yield load
            self._loads.learn(sum(parcel.bytes for parcel in load), time.monotonic() - watch)

    def _turn(self, least: int) -> int:
        """Waits for the turn of a load; returns the bytes that it may have."""
        until = time.monotonic() + GIVE_WAY_S
        while (now := time.monotonic()) < until:
            room = self._loads.allowed(self._pace, now, least)
            if room:
                return room
            if self._hurry.wait(_LOOK_EVERY_S):
                return MOST_BYTES
        return least

    def _carry(
        self,
        move: GroupMove,
        load: Sequence[Parcel],
        batch: int,
        times: tuple[int | None, ...],
        exchange: Exchange,
    ) -> list[tuple[Parcel, Run]]:
        """Runs one job; returns each run with its parcel."""
        shipment = Shipment(
            self._home,
            batch,
            move.move,
            move.sender,
            move.receiver,
            tuple(load),
            times,
            self._faults,
        )
        begin = self._spark.range(0, 1, 1, 1).select(F.lit(1).cast("int").alias("go"))
        with own_workers(self._spark, POOL):
            start = exchange(begin, F.lit(move.sender), first=True)
            sent = start.mapInArrow(shipment.send, _SENT)
            there = exchange(sent, F.lit(move.receiver)).mapInArrow(shipment.receive, _RECEIVED)
        return [(load[row["parcel"]], Run(**json.loads(row["run"]))) for row in there.collect()]


def _warmed(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rehearses sending with two rows."""
    few = pa.RecordBatch.from_arrays([pa.array([2, 1], pa.uint32())], names=["_h"])
    list(merged([few, few]))
    yield from rows


def _sent(number: int, at: int, payload: bytes) -> pa.RecordBatch:
    columns = [pa.array([number], pa.int32()), pa.array([at], pa.int32()), pa.array([payload])]
    return pa.RecordBatch.from_arrays(columns, names=["parcel", "piece", "payload"])


def _described(number: int, run: Run) -> pa.RecordBatch:
    columns = [pa.array([number], pa.int32()), pa.array([json.dumps(asdict(run))])]
    return pa.RecordBatch.from_arrays(columns, names=["parcel", "run"])


def _brief(problem: Exception) -> str:
    """The line of Spark's long text that names the problem."""
    if (ours := from_wire(str(problem))) is not None:
        return str(ours)[:300]
    lines = hidden(str(problem)).splitlines()
    named = [line for line in lines if re.match(r"\w+(Error|Exception): ", line)]
    return (named or lines or [type(problem).__name__])[-1 if named else 0][:300]

"""A running query: Spark's StreamingQuery, and what Spillway adds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NoReturn

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spillway.coordinator.wishes import LimitMemory, PauseAdaptation, ScaleTo
from spillway.dashboard.feed.feed import Feed
from spillway.dashboard.feed.watching import Watching
from spillway.dashboard.server.controls import CLEANUP, MEMORY, PAUSE, SCALE, Controls
from spillway.dashboard.server.serving import Dashboard
from spillway.errors import QueryError, SettingsError, SpillwayError, without_secrets
from spillway.metrics.events import Event
from spillway.redaction import hidden
from spillway.settings import parse_bytes
from spillway.spark.api.dashboard import CLOCKS, WatchedQuery
from spillway.spark.api.describing import describe_stage
from spillway.spark.api.watching import Watcher
from spillway.spark.runtime.cleanup import Cleanup, clean_up, show_bar
from spillway.spark.runtime.loop import BatchLoop

#: Seconds that a failed or stopped query may take to release its resources.
_TIDY_S = 60.0


class Query:
    """What `start()` returns; use it as you would Spark's StreamingQuery."""

    def __init__(
        self,
        spark: SparkSession,
        streaming: StreamingQuery,
        loop: BatchLoop,
        held: ExitStack,
        *,
        finite: bool = False,
    ) -> None:
        """The query releases `held` when it ends."""
        self._streaming = streaming
        self._loop = loop
        self._dashboard: Dashboard | None = None
        self._watcher = Watcher(spark, streaming, loop, held.pop_all().close, finite=finite)

    @property
    def id(self) -> str:
        """The id, the same after every restart from the checkpoint."""
        return str(self._streaming.id)

    @property
    def runId(self) -> str:
        """The id of this start."""
        return str(self._streaming.runId)

    @property
    def name(self) -> str | None:
        """The name given with queryName, if any."""
        return self._streaming.name

    @property
    def isActive(self) -> bool:
        """Whether the query runs; its cleanup at the end counts."""
        return self._watcher.alive

    @property
    def status(self) -> dict[str, Any]:
        """Spark's status of the query."""
        return dict(self._streaming.status)

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """The last batches, oldest first: rows, state, slots, phases, watermark."""
        return list(self._loop.recent)

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """The last batch, or None before the first."""
        recent = self.recentProgress
        return recent[-1] if recent else None

    @property
    def sparkProgress(self) -> list[Any]:
        """Spark's own progress of the same batches: sources, offsets, durations."""
        return list(self._streaming.recentProgress)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Waits for the query to end; raises the error that ended it, if any."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            ended = self._streaming.awaitTermination(timeout)  # type: ignore[arg-type]  # Spark takes floats
        except StreamingQueryException as problem:
            self._watcher.join(_TIDY_S)
            self._raise(problem)
        if until is None:
            self._watcher.join()
        elif ended:
            self._watcher.join(max(0.0, until - time.monotonic()))
            ended = not self._watcher.alive
        if self._watcher.failure is not None:
            raise self._watcher.failure
        return ended

    @property
    def events(self) -> list[Event]:
        """What the query did to its own state, oldest first; see `spillway.metrics.events`."""
        return list(self._loop.events)

    def cleanup(self, show: Callable[[Cleanup], None] = show_bar) -> Cleanup:
        """Produces the results that are missing now because groups spilled to disk.

        They go to the sink in rounds between the batches. Groups return to memory if it has room. A
        query that is still short of memory spills other groups meanwhile; this call does not wait for
        those. First moves between slots end, except parallel tracks, which miss no result, and slots
        process the rows that they have buffered.

        The call runs `show` after every round. The default draws a bar if standard error is a terminal.
        """
        if not self.isActive:
            raise QueryError(
                "the query has ended, so it cannot clean up",
                hint="start it again from its checkpoint, and call cleanup() while it runs; or "
                'use trigger(availableNow=True) with .adapt(cleanup="auto")',
            )
        return clean_up(self._loop, show, self._settle)

    def _settle(self, at: int) -> None:
        """Ends what is under way in a stage, before its cleanup."""
        self._loop.finish_moves(at)
        # A round is a turn for at least one group; rows that arrive meanwhile do not count.
        groups = self._loop.stages[at].state.routing.groups
        self._loop.finish_waiting(at, most_rounds=groups)
        self._loop.finish_deciding(at)

    def set_memory(self, *, bytes: int | str | None, slot: int | None = None) -> None:
        """Changes the memory limit of one slot or of all slots, from the next batch on.

        The limit is valid until the query ends. With a limit below the state in memory, groups spill
        at once; with a higher one they come back.
        """
        slots = range(max(stage.state.routing.slots for stage in self._loop.stages))
        if slot is not None and slot not in slots:
            raise SettingsError(
                f"the query has no slot {slot!r}", hint=f"use a slot from 0 to {slots[-1]}"
            )
        limit = None if bytes is None else parse_bytes("bytes", bytes)
        for stage in self._loop.stages:
            given = dict.fromkeys(slots if slot is None else (slot,), limit)
            stage.conductor.wish(LimitMemory(given))

    @property
    def slots(self) -> int:
        """How many slots the query has now, retiring slots included."""
        return self._loop.state.routing.slots

    def scale(self, *, slots: int) -> None:
        """Changes the number of slots while the query runs.

        Groups move to new slots and away from retiring ones while batches run; the event `Scaled`
        says when that is done. With `adjustment="passive"` nothing moves: new slots get new rows, and
        retiring slots stay until their rows have left the window.
        The number is valid until the query ends: the next start has the slots of its
        `.adapt(slots=...)`. With `ring="auto"` it is valid until the measurements choose another.
        """
        if not self.isActive:
            raise QueryError(
                "the query has ended, so it cannot change its slot count",
                hint="start it again with .adapt(slots=...)",
            )
        if not isinstance(slots, int) or isinstance(slots, bool):
            raise SettingsError(
                f"slots={slots!r} is not a whole number",
                hint="write for example query.scale(slots=4)",
            )
        for stage in self._loop.stages:
            stage.conductor.wish(ScaleTo(slots))

    def pause(self, paused: bool = True) -> None:
        """Begins no more moves, forced spills, new plans and changes of the ring; False: again.

        What has begun ends. Slots still spill at their memory limits, and `scale` still works. The pause
        is valid until the query ends.
        """
        for stage in self._loop.stages:
            stage.conductor.wish(PauseAdaptation(paused))

    def dashboard(
        self,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        names: Sequence[str] = (),
        controls: bool = False,
    ) -> Dashboard:
        """Opens the live dashboard of the query, and returns it; `url` is its address.

        It listens on loopback, on a free port unless `port` names one; `names` are other names under
        which a proxy makes it known. With `controls`, whoever has its `control_url` can clean up, change
        the slot count and limits, and pause adaptation. It stays open when the query ends, until
        `close()` or the end of the program. A second call returns the same dashboard.
        """
        if self._dashboard is None or self._dashboard.closed:
            commands = self._controls() if controls else None
            watched = WatchedQuery(
                self._loop,
                self.name,
                self.runId,
                lambda: self.isActive,
                self.exception,
                commands.names if commands else (),
            )
            self._dashboard = Dashboard(
                Feed(),
                host=host,
                port=port,
                names=names,
                controls=commands,
                producer=Watching(watched, CLOCKS),
            )
        return self._dashboard

    @property
    def dashboard_url(self) -> str | None:
        """The address of the open dashboard, or None."""
        open_now = self._dashboard is not None and not self._dashboard.closed
        return self._dashboard.url if self._dashboard is not None and open_now else None

    def _controls(self) -> Controls:
        """The commands of the dashboard."""

        def clean(_: Any) -> str:
            done = self.cleanup(show=lambda _: None)
            return f"cleanup: {done.rows_out:,} results that were missing"

        def scale(command: Any) -> str:
            self.scale(slots=command.slots)
            return f"the query changes to {command.slots} slots"

        def limit(command: Any) -> str:
            self.set_memory(bytes=command.bytes, slot=command.slot)
            where = "all slots" if command.slot is None else f"slot {command.slot}"
            return f"the limit of {where} changes with the next batch"

        def pause(command: Any) -> str:
            self.pause(command.paused)
            return "adaptation pauses" if command.paused else "adaptation goes on"

        return Controls({CLEANUP: clean, SCALE: scale, MEMORY: limit, PAUSE: pause})

    def processAllAvailable(self) -> None:
        """Waits until the sink has everything that the sources have now; for tests."""
        try:
            self._streaming.processAllAvailable()
        except StreamingQueryException as problem:
            self._raise(problem)

    def exception(self) -> Exception | None:
        """The error that ended the query, if any."""
        problem = self._streaming.exception()
        return self._watcher.failure if problem is None else self._named(problem)

    def stop(self) -> None:
        """Ends the query after its current step; a new query can start from its checkpoint."""
        self._loop.stopping = True
        self._streaming.stop()
        self._watcher.join(_TIDY_S)

    def explain(self, extended: bool = False) -> None:
        """Prints streams, keys, window, slots, groups, tiers, and the Spark plan of the last batch.

        For a join whose slots have shapes, it adds the measurements of each slot and the costs of its
        shape and of others. For a join without equal keys, it adds the measured predicates, response
        time and output for other slot counts, and the best count with the reason. With
        distribute="auto", it adds the choice and the reason.
        """
        print(self.describe(extended))

    def describe(self, extended: bool = False) -> str:
        """The text that `explain` prints."""
        lines = [line for stage in self._loop.stages for line in describe_stage(stage)]
        batch = self._loop.state.batch
        last = self._loop.last_result
        lines.append(f"Spark plan of batch {batch}" if last is not None else "no batch yet")
        if last is not None:
            execution = last._jdf.queryExecution()
            lines.append(str(execution.toString() if extended else execution.simpleString()))
        return hidden("\n".join(lines))

    def _raise(self, problem: Exception) -> NoReturn:
        named = self._named(problem)
        raise named from (named.__cause__ if named is problem else problem)

    def _named(self, problem: Exception) -> Exception:
        failure = self._loop.failure
        if isinstance(failure, SpillwayError):
            return failure
        if problem.__cause__ is None:
            problem.__cause__ = failure
        clean = without_secrets(problem)
        return clean if isinstance(clean, Exception) else problem

"""A running query: Spark's StreamingQuery, and what Spillway adds to it."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spillway.coordinator.wishes import LimitMemory, ScaleTo
from spillway.errors import QueryError, SettingsError, SpillwayError, StateError
from spillway.inspect.explanation import plan_line, shape_report
from spillway.metrics.events import Event
from spillway.plan.join import Plan
from spillway.plan.sliced import SlicedPlan
from spillway.settings import parse_bytes
from spillway.spark.api.session import is_local
from spillway.spark.runtime.cleanup import Cleanup, clean_up, show_bar
from spillway.spark.runtime.home import Places
from spillway.spark.runtime.loop import BatchLoop, named_failure
from spillway.spark.runtime.stage import Stage

#: How often it is looked whether something waits for a batch, and how long it may wait for one that
#: has rows.
_LOOK_EVERY_S = 0.5
_PATIENCE_S = 2.0


class Query:
    """What `start()` returns; use it as you would Spark's StreamingQuery."""

    def __init__(
        self,
        spark: SparkSession,
        streaming: StreamingQuery,
        loop: BatchLoop,
        on_end: Callable[[], None],
        *,
        finite: bool = False,
    ) -> None:
        self._spark = spark
        self._streaming = streaming
        self._loop = loop
        self._on_end = on_end
        #: Whether the input ends, so that what is still under way is brought to its end then.
        self._finite = finite
        self._beside_failure: Exception | None = None
        self._watcher = threading.Thread(target=self._watch, name="spillway-watch", daemon=True)
        self._watcher.start()

    @property
    def id(self) -> str:
        """The id that stays over restarts from the checkpoint."""
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
        """Whether the query runs, its cleanup at the end included."""
        return self._watcher.is_alive()

    @property
    def status(self) -> dict[str, Any]:
        """What the query does now, in Spark's words."""
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
        """Waits for the query to end; raises what ended it, if that was an error."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            ended = self._streaming.awaitTermination(timeout)  # type: ignore[arg-type]
        except StreamingQueryException as problem:
            self._watcher.join(timeout=60)
            raise self._named(problem) from problem
        if until is None:
            self._watcher.join()
        elif ended:
            self._watcher.join(max(0.0, until - time.monotonic()))
            ended = not self._watcher.is_alive()
        if self._beside_failure is not None:
            raise self._beside_failure
        return ended

    @property
    def events(self) -> list[Event]:
        """What the query did to its own state, oldest first; see `spillway.metrics.events`."""
        return list(self._loop.events)

    def cleanup(self, show: Callable[[Cleanup], None] = show_bar) -> Cleanup:
        """Makes the results that are missing now because groups were moved out of memory.

        They go to the sink in rounds between the batches. Groups return to memory if it has room;
        a stream that is still short of memory moves others out meanwhile, which are not waited for.
        What is moving between slots comes to its end first, but for parallel tracks, which miss no
        result, and rows that wait in slots are processed.
        `show` is called after every round; by default a bar is drawn where standard error is a
        terminal.
        """
        if not self.isActive:
            raise QueryError(
                "the query has ended, so it cannot clean up",
                hint="start it again from its checkpoint, and call cleanup() while it runs; or "
                'use trigger(availableNow=True) with .adapt(cleanup="auto")',
            )
        self._loop.finish_moves()
        # A round is a turn for one group at least; what comes meanwhile is not waited for.
        self._loop.finish_waiting(most_rounds=self._loop.state.routing.groups)
        return clean_up(self._loop, show, lambda: self._loop.stopping)

    def set_memory(self, *, bytes: int | str | None, slot: int | None = None) -> None:
        """Changes how much state may be in memory, of one slot or of all, from the next batch on.

        It holds until the query ends. Less than is there now moves groups out at once; more lets
        them come back.
        """
        slots = range(max(stage.state.routing.slots for stage in self._loop.stages))
        if slot is not None and slot not in slots:
            raise SettingsError(
                f"there is no slot {slot!r}", hint=f"slots are numbered from 0 to {slots[-1]}"
            )
        limit = None if bytes is None else parse_bytes("bytes", bytes)
        for stage in self._loop.stages:
            given = dict.fromkeys(slots if slot is None else (slot,), limit)
            stage.conductor.wish(LimitMemory(given))

    @property
    def slots(self) -> int:
        """How many slots the query has now; those that are on their way out are counted."""
        return self._loop.state.routing.slots

    def scale(self, *, slots: int) -> None:
        """Changes the number of slots while the query runs.

        New slots are filled, and slots that are to go are emptied, by moving groups beside the
        batches; the event `Scaled` tells when it is done. With `adjustment="passive"` nothing moves:
        new slots get rows to come, and slots that are to go stay until theirs have left the window.
        It holds until the query ends: the next start has as many slots as its `.adapt(slots=...)` says;
        with `ring="auto"`, until what is measured says something else.
        """
        if not self.isActive:
            raise QueryError(
                "the query has ended, so it cannot be scaled",
                hint="start it again with .adapt(slots=...)",
            )
        if not isinstance(slots, int) or isinstance(slots, bool):
            raise SettingsError(
                f"slots={slots!r} is not a whole number", hint="for example query.scale(slots=4)"
            )
        for stage in self._loop.stages:
            stage.conductor.wish(ScaleTo(slots))

    def processAllAvailable(self) -> None:
        """Waits until everything the sources have now is in the sink; for tests."""
        try:
            self._streaming.processAllAvailable()
        except StreamingQueryException as problem:
            raise self._named(problem) from problem

    def exception(self) -> Exception | None:
        """What ended the query, if that was an error."""
        problem = self._streaming.exception()
        return self._beside_failure if problem is None else self._named(problem)

    def stop(self) -> None:
        """Ends the query after what it is doing; its checkpoint can be started again."""
        self._loop.stopping = True
        self._streaming.stop()
        self._watcher.join(timeout=60)

    def explain(self, extended: bool = False) -> None:
        """Prints streams, keys, window, slots, groups, tiers, and the Spark plan of the last batch.

        Of a join whose slots have shapes, also what each slot measured, and what its shape and others
        cost by that. Of a join without equal keys, also what was measured of its predicates, how
        the response time of a batch and output would be with other numbers of slots, how many it is to
        have, and why; with distribute="auto", what was chosen and why.
        """
        print(self.describe(extended))

    def describe(self, extended: bool = False) -> str:
        """The text that `explain` prints."""
        lines = [line for stage in self._loop.stages for line in _described(stage)]
        batch = self._loop.state.batch
        last = self._loop.last_result
        lines.append(f"Spark plan of batch {batch}" if last is not None else "no batch yet")
        if last is not None:
            execution = last._jdf.queryExecution()
            lines.append(str(execution.toString() if extended else execution.simpleString()))
        return "\n".join(lines)

    def _named(self, problem: Exception) -> Exception:
        failure = self._loop.failure
        if isinstance(failure, SpillwayError):
            return failure
        if problem.__cause__ is None:
            problem.__cause__ = failure
        return problem

    def _watch(self) -> None:
        """Makes missing results once a finite input has ended; tidies up, however it ended."""
        try:
            while not self._streaming.awaitTermination(_LOOK_EVERY_S):  # type: ignore[arg-type]
                if self._loop.stuck and self._loop.idle_s > _PATIENCE_S:
                    self._advance()
            if self._finite and not self._loop.stopping:
                self._bring_to_end()
        except Exception:
            pass
        finally:
            self._loop.close()
            for stage in self._loop.stages:
                self._forget_local(stage)
                stage.checkpoint.release()
            self._on_end()

    def _advance(self) -> None:
        """Lets what waits for a batch go on without rows."""
        try:
            self._loop.advance()
        except Exception as problem:
            self._keep(problem)
            self._streaming.stop()

    def _bring_to_end(self) -> None:
        try:
            self._loop.finish_moves(ended=True)
            self._loop.finish_waiting()
            if self._loop.stage.spec.adapt.cleanup == "auto":
                clean_up(self._loop, show_bar, lambda: self._loop.stopping)
        except Exception as problem:
            self._keep(problem)

    def _keep(self, problem: Exception) -> None:
        """Remembers what went wrong beside the batches; the user is told as if it was in one."""
        named = named_failure(problem)
        self._beside_failure = named if isinstance(named, Exception) else problem

    def _forget_local(self, stage: Stage) -> None:
        """Gives the memory and disk tiers back; the durable tier has everything."""
        query_id, adapt = stage.spec.query_id, stage.spec.adapt
        _remove(Places.roots(query_id, adapt))
        if is_local(self._spark):
            return
        try:
            # Best effort: a few tasks per core reach every executor that is up.
            count = 4 * self._spark.sparkContext.defaultParallelism
            self._spark.sparkContext.parallelize(range(count), count).foreachPartition(
                lambda _: _remove(Places.roots(query_id, adapt))
            )
        except Exception:
            return


def _remove(roots: tuple[Path, Path]) -> None:
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
        if root.parent.name.startswith("spillway-"):
            with contextlib.suppress(OSError):
                root.parent.rmdir()


def _described(stage: Stage) -> list[str]:
    """The lines of `explain` about one stage."""
    spec, state = stage.spec, stage.state
    lines = [spec.plan.OPERATOR]
    for stream in spec.plan.streams:
        columns = ", ".join(f"{name} {kind}" for name, kind in stream.columns)
        lines.append(f"  stream {stream.name} ({columns})")
        keys = zip(stream.keys, spec.plan.key_types, strict=True)
        told = ", ".join(f"{k} as {kind}" for k, kind in keys)
        lines.append(f"    keys   {told or _unkeyed(spec.plan)}")
        if stream.window is None:
            lines.append("    window unbounded")
        else:
            w = stream.window
            lines.append(
                f"    window {'every ' if w.tumbling else ''}{w.window_us / 1e6:g} s on {w.time}, "
                f"lateness {w.lateness_us / 1e6:g} s"
            )
    places = Places.of(spec.query_id, spec.adapt)
    limits = set(stage.conductor.ahead.memory.values())
    shown = ", ".join(
        "no limit" if one is None else f"{one} bytes a slot" for one in sorted(limits, key=str)
    )
    lines += [
        f"  slots  {state.routing.slots}, groups {state.routing.groups}, "
        f"routing version {state.routing.version}",
        f"  memory {places.memory} ({shown})",
        f"  disk   {places.disk}",
        f"  durable {stage.checkpoint.location}",
    ]
    if spec.distribution is not None:
        lines.append(f"  spread {spec.distribution}")
    lines += [f"  visits {line}" for line in stage.conductor.ahead.explained_visits()]
    if spec.shaping is not None:
        lines.append(f"  plan   {plan_line(spec.shaping)}")
        lines += [
            f"    {line}" for slot in range(state.routing.slots) for line in _shape(stage, slot)
        ]
    return lines


def _unkeyed(plan: Plan) -> str:
    """What is said of a join without equal keys in the place of its keys."""
    if isinstance(plan, SlicedPlan) and plan.copies > 1:
        return f"none: rows visit the slots of one of {plan.copies} copies of each slice"
    return "none: rows visit all slots"


def _shape(stage: Stage, slot: int) -> list[str]:
    """The lines of `explain` about the shape of one slot."""
    state = stage.state
    manifest, name = None, state.manifests[slot]
    # A running query may have gone on meanwhile; then its states are left out.
    with contextlib.suppress(StateError):
        manifest = None if name is None else stage.checkpoint.manifest(name)
    report = shape_report(state, slot, manifest, len(stage.spec.plan.streams))
    return [] if report is None else report.lines()

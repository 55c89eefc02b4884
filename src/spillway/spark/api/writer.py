"""The verbs of Spark's DataStreamWriter, for a Spillway query."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.errors import PlanError, SettingsError
from spillway.faults import Faults
from spillway.operators.theta.sliced import SlicedJoin
from spillway.routing.routing import Routing
from spillway.routing.slices import interleaved
from spillway.settings import PTLB, Adapt
from spillway.spark.api.distribution import OF_RINGS, check_spread, settled
from spillway.spark.api.query import Query
from spillway.spark.api.session import (
    default_slots,
    is_local,
    qualified,
    quick_local_checkpoints,
)
from spillway.spark.runtime.lanes import lanes_schema
from spillway.spark.runtime.loop import BatchLoop
from spillway.spark.runtime.spec import QuerySpec
from spillway.spark.runtime.stage import Stage
from spillway.spark.sinks import Sink, SinkSpec, make_sink
from spillway.spark.sinks.foreach import ForeachBatchSink
from spillway.version import VERSION

if TYPE_CHECKING:
    from spillway.spark.api.result import Planned, Result

#: Sinks that are for looking at; without a checkpointLocation they get one that ends with them.
_PASSING = ("console", "memory", "noop")


class StreamWriter:
    """Says where the results go and starts the query.

    Every verb returns the writer, as Spark's do.
    """

    def __init__(self, result: Result) -> None:
        self._result = result
        self._mode = result.MODES[0]
        self._format: str | None = None
        self._options: dict[str, str] = {}
        self._partition_by: tuple[str, ...] = ()
        self._name: str | None = None
        self._foreach: Callable[[DataFrame, int], None] | None = None
        self._trigger: dict[str, Any] = {}
        self._adapt = Adapt()
        self._table: str | None = None
        self._identity = False
        self._faults = Faults()

    def format(self, source: str) -> StreamWriter:
        """The sink's format: parquet, json, csv, jdbc, kafka, console, memory, noop, ..."""
        self._format = source
        return self

    def option(self, key: str, value: object) -> StreamWriter:
        """One option of the sink, or checkpointLocation."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self._options = {k: v for k, v in self._options.items() if k.lower() != key.lower()}
        self._options[key] = text
        return self

    def options(self, **options: object) -> StreamWriter:
        """Several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, mode: str) -> StreamWriter:
        """How results come: those of a join are "append", never changed or taken back."""
        modes = self._result.MODES
        if mode.lower() not in modes:
            raise PlanError(
                f"outputMode({mode!r}) has no meaning for {self._result.KIND}",
                detail=self._result.WHY_MODES,
                hint="use "
                + " or ".join(f'outputMode("{one}")' for one in modes)
                + ", or leave it out",
            )
        self._mode = mode.lower()
        return self

    def queryName(self, name: str) -> StreamWriter:
        """A name for the query; the memory sink makes a table of it."""
        self._name = name
        return self

    def partitionBy(self, *columns: str) -> StreamWriter:
        """Directories by column, for file sinks."""
        self._partition_by = columns
        return self

    def foreachBatch(self, function: Callable[[DataFrame, int], None]) -> StreamWriter:
        """Calls `function(rows, batch_id)` for every batch instead of writing to a format."""
        if not callable(function):
            raise PlanError(
                f"foreachBatch takes a function of (DataFrame, batch id), not {function!r}"
            )
        self._foreach = function
        return self

    def trigger(self, **trigger: Any) -> StreamWriter:
        """When batches run: processingTime="1 second", availableNow=True, once=True."""
        if "continuous" in trigger or "realTime" in trigger:
            raise PlanError(
                f"trigger({next(iter(trigger))}=...) is not supported: Spillway runs in micro-batches",
                hint='use trigger(processingTime="1 second") or trigger(availableNow=True)',
            )
        self._trigger = trigger
        return self

    def adapt(self, **settings: object) -> StreamWriter:
        """Slots, groups, memory and places; see `spillway.settings.Adapt`."""
        self._adapt = self._adapt.changed(**settings)
        return self

    def faults(self, faults: Faults) -> StreamWriter:
        """For tests: places failures in the query; see `spillway.testing.Faults`."""
        if not isinstance(faults, Faults):
            raise SettingsError(
                f"faults() takes a spillway.testing.Faults, not {faults!r}",
                hint='for example .faults(Faults(tasks=(Fault("after-runs", 1, 0, "marker"),)))',
            )
        self._faults = faults
        return self

    def toTable(self, name: str) -> Query:
        """Starts the query, appending to a table."""
        self._table = name
        return self.start()

    def start(self, path: str | None = None) -> Query:
        """Checks everything that can be known now, and starts the query."""
        result, spark = self._result, self._result.spark
        settings = [self._adapt.changed(**one.own_settings) for one in result.chain]
        planned = [
            one.planned(adapt, self._mode)
            for one, adapt in zip(result.chain, settings, strict=True)
        ]
        for one, adapt in zip(planned, settings, strict=True):
            _check_moves(one, adapt)
        check_spread(planned, self._adapt)
        for one, adapt, part in zip(planned, settings, result.chain, strict=True):
            if part.own_settings:
                check_spread([one], adapt)
        for said in (said for one in planned for said in one.warnings):
            warnings.warn(said, stacklevel=2)
        location, scratch = self._location()
        checkpoints = [Checkpoint(_place(location, adapt, at)) for at, adapt in enumerate(settings)]
        held: list[Checkpoint] = []
        try:
            for checkpoint in checkpoints:
                checkpoint.acquire()
                held.append(checkpoint)
            chosen = settled(planned[0], settings[0], checkpoints[0], location, finite=self._finite)
            if chosen is not None:
                settings[0] = chosen.adapt
                again = result.chain[0].planned(chosen.adapt, self._mode)
                planned[0] = replace(again, distribution=chosen.reason)
                check_spread(planned[:1], chosen.adapt, OF_RINGS)
            metadata = [
                checkpoint.open(one.plan.fingerprint(), adapt.groups, VERSION)
                for checkpoint, one, adapt in zip(checkpoints, planned, settings, strict=True)
            ]
            sink = make_sink(self._sink_spec(path, metadata[-1]["query_id"]), spark)
            specs = [
                self._spec(one, shown, adapt, known["query_id"])
                for one, shown, adapt, known in zip(
                    planned, result.chain, settings, metadata, strict=True
                )
            ]
            sink.open(specs[-1].schema if self._identity else result.schema)
            stages = [
                _stage(spark, spec, checkpoint, last=spec is specs[-1], sink=sink)
                for spec, checkpoint in zip(specs, checkpoints, strict=True)
            ]
            loop = BatchLoop(stages, sink)
            first = planned[0]
            rows = first.lanes.union(first.frames, first.plan)
            writer = rows.writeStream.foreachBatch(loop.run_batch)
            writer = writer.option("checkpointLocation", f"{location.rstrip('/')}/spark")
            if self._name is not None:
                writer = writer.queryName(self._name)
            if self._trigger:
                writer = writer.trigger(**self._trigger)
            with quick_local_checkpoints(spark, location):
                streaming = writer.start()
        except BaseException:
            for checkpoint in held:
                checkpoint.release()
            raise
        return Query(
            spark,
            streaming,
            loop,
            lambda: shutil.rmtree(location, ignore_errors=True) if scratch else None,
            finite=self._finite,
        )

    @property
    def _finite(self) -> bool:
        """Whether the query ends with the input that there is."""
        return bool(self._trigger.get("availableNow") or self._trigger.get("once"))

    def _spec(self, planned: Planned, result: Result, adapt: Adapt, query_id: str) -> QuerySpec:
        lanes, identity = planned.lanes, self._identity
        return QuerySpec(
            planned.plan,
            lanes,
            planned.operator,
            lanes_schema(lanes) if identity else result.made_schema,
            (lambda df: df) if identity else result.shaped,
            planned.feed,
            adapt,
            query_id,
            identity,
            self._faults,
            planned.shaping,
            planned.distribution,
        )

    def _location(self) -> tuple[str, bool]:
        given = next(
            (v for k, v in self._options.items() if k.lower() == "checkpointlocation"), None
        )
        if given is None:
            root = self._result.spark.conf.get("spark.sql.streaming.checkpointLocation", None)
            if root and self._name:
                given = f"{root.rstrip('/')}/{self._name}"
        if given is not None:
            return qualified(self._result.spark, given), False
        if self._foreach is None and (self._format or "").lower() in _PASSING:
            return tempfile.mkdtemp(prefix="spillway-checkpoint-"), True
        raise SettingsError(
            "the query has no checkpoint location",
            hint='add .option("checkpointLocation", "some/directory"): the query restarts from there',
        )

    def _sink_spec(self, path: str | None, writer: str) -> SinkSpec:
        options = {k: v for k, v in self._options.items() if k.lower() != "checkpointlocation"}
        spec = SinkSpec(self._format, options)
        return SinkSpec(
            self._format,
            options,
            self._partition_by,
            self._name,
            self._foreach,
            path or spec.option("path"),
            self._table,
            writer,
        )


def _check_moves(planned: Planned, adapt: Adapt) -> None:
    """Refuses parallel tracks where one would never end."""
    if adapt.moves_name == PTLB and (why := planned.operator.untracked):
        hints = ['use moves="mslb", which moves the state; "auto" does so where it must']
        hints += [planned.track_hint] if planned.track_hint else []
        raise SettingsError(
            f'moves="ptlb" is not possible for the {planned.plan.OPERATOR}',
            detail=f"a parallel track ends when no old row counts any more, but {why}",
            hint="; or ".join(hints),
        )


def _place(location: str, adapt: Adapt, at: int) -> str:
    """Where a stage keeps its state: that of the first is where it is if there are no others."""
    folder = "spillway" if at == 0 else f"spillway-{at + 1}"
    if adapt.durable is None:
        return f"{location.rstrip('/')}/{folder}"
    return adapt.durable if at == 0 else f"{adapt.durable.rstrip('/')}/{folder}"


def _stage(
    spark: SparkSession, spec: QuerySpec, checkpoint: Checkpoint, *, last: bool, sink: Sink
) -> Stage:
    adapt = spec.adapt
    slots = adapt.slots or default_slots(spark)
    groups, shares = adapt.groups, adapt.shares
    new = Routing.shared(groups, shares) if shares else Routing.even(groups, slots)
    if isinstance(spec.operator, SlicedJoin) and not shares:
        # Neighbouring slices are in different slots, so that all have some of any window.
        new = Routing(0, slots, interleaved(groups, slots, spec.operator.slicing.copies))
    state, references = checkpoint.recover(len(spec.plan.streams), new)
    anchored = adapt.anchor == "always" or (adapt.anchor == "auto" and not is_local(spark))
    # A function of the user's may renumber the tasks of the stage that it evaluates.
    renumbers = last and isinstance(sink, ForeachBatchSink)
    return Stage(spark, spec, checkpoint, state, references, slots, anchored, renumbers)

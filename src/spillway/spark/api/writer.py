"""The verbs of Spark's DataStreamWriter, for a Spillway query."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.offsets import SourceOffsets
from spillway.errors import PlanError, QueryError, SettingsError, keeping_secrets
from spillway.faults import Faults
from spillway.kernels import warming
from spillway.redaction import learn_options
from spillway.settings import Adapt
from spillway.spark.api.query import Query
from spillway.spark.api.session import qualified, quick_local_checkpoints
from spillway.spark.api.start.distribution import OF_RINGS, check_spread, settle
from spillway.spark.api.start.stages import (
    PlannedStage,
    acquire_all,
    open_metadata,
    plan_stages,
    stage_of,
)
from spillway.spark.runtime.exchange.lanes import lanes_schema
from spillway.spark.runtime.loop import BatchLoop
from spillway.spark.runtime.spec import QuerySpec
from spillway.spark.sinks import SinkSpec, make_sink
from spillway.spark.sinks.memory import MemoryTableSink
from spillway.version import VERSION

if TYPE_CHECKING:
    from spillway.spark.api.result import Planned, Result

#: Sinks for a quick look at results; they may use a temporary checkpoint.
_PASSING = ("console", "memory", "noop")


class StreamWriter:
    """Sets where the results go, and starts the query.

    Every verb returns the writer, as in Spark.
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
        """Sets the sink's format: parquet, json, csv, jdbc, kafka, console, memory, noop, ..."""
        self._format = source
        return self

    def option(self, key: str, value: object) -> StreamWriter:
        """Sets one option of the sink, or checkpointLocation."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self._options = {k: v for k, v in self._options.items() if k.lower() != key.lower()}
        self._options[key] = text
        return self

    def options(self, **options: object) -> StreamWriter:
        """Sets several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, mode: str) -> StreamWriter:
        """Sets how results reach the sink; a join only appends."""
        modes = self._result.MODES
        if mode.lower() not in modes:
            raise PlanError(
                f"outputMode({mode!r}) is not valid for {self._result.KIND}",
                detail=self._result.WHY_MODES,
                hint="use "
                + " or ".join(f'outputMode("{one}")' for one in modes)
                + ", or leave it out",
            )
        self._mode = mode.lower()
        return self

    def queryName(self, name: str) -> StreamWriter:
        """Names the query; the memory sink uses the name for its table."""
        self._name = name
        return self

    def partitionBy(self, *columns: str) -> StreamWriter:
        """Sets the columns that file sinks use for directories."""
        self._partition_by = columns
        return self

    def foreachBatch(self, function: Callable[[DataFrame, int], None]) -> StreamWriter:
        """Calls `function(rows, batch_id)` for every batch instead of writing to a format.

        `batch_id` counts batches and rounds of cleanup from 0. It only grows, and a batch that comes
        again after a crash has the id that it had. The function must read all rows; it may skip a batch
        that it knows by its id.
        """
        if not callable(function):
            raise PlanError(
                f"foreachBatch takes a function of (DataFrame, batch id), not {function!r}",
                hint="write for example .foreachBatch(lambda rows, batch: rows.write.mode('append')"
                ".parquet('out'))",
            )
        self._foreach = function
        return self

    def trigger(self, **trigger: Any) -> StreamWriter:
        """Sets when batches run: processingTime="1 second", availableNow=True, once=True."""
        if "continuous" in trigger or "realTime" in trigger:
            raise PlanError(
                f"trigger({next(iter(trigger))}=...) is not supported: Spillway runs in micro-batches",
                hint='use trigger(processingTime="1 second") or trigger(availableNow=True)',
            )
        self._trigger = trigger
        return self

    def adapt(self, **settings: object) -> StreamWriter:
        """Sets slots, groups, memory and directories; see `spillway.settings.Adapt`."""
        self._adapt = self._adapt.changed(**settings)
        return self

    def faults(self, faults: Faults) -> StreamWriter:
        """Places failures in the query, for tests; see `spillway.testing.Faults`."""
        if not isinstance(faults, Faults):
            raise SettingsError(
                f"faults() takes a spillway.testing.Faults, not {faults!r}",
                hint='for example .faults(Faults(tasks=(Fault("after-runs", 1, 0, "marker"),)))',
            )
        self._faults = faults
        return self

    def toTable(self, name: str) -> Query:
        """Starts the query, which appends to a table."""
        self._table = name
        return self.start()

    def start(self, path: str | None = None) -> Query:
        """Checks everything that it can before the first row, and starts the query."""
        learn_options(self._options)
        with keeping_secrets():
            return self._start(path)

    def _start(self, path: str | None) -> Query:
        # In a session that Spillway did not make, kernels compile from here on.
        warming.start()
        planned = plan_stages(self._result, self._adapt, self._mode)
        self._check_name()
        # `held` is released when the query ends, or here if the start fails. `undone` only matters
        # then: it takes back what outlives a query.
        with ExitStack() as held, ExitStack() as undone:
            location, scratch = self._location(held)
            if scratch:
                # Nobody reads a temporary checkpoint after a crash of the machine.
                planned = [
                    replace(stage, adapt=stage.adapt.changed(fsync=False)) for stage in planned
                ]
            checkpoints = acquire_all(planned, location, held)
            planned[0] = self._settle(planned[0], checkpoints[0], location)
            offsets = SourceOffsets(_spark_place(location), fsync=planned[0].adapt.fsync)
            loop = self._batch_loop(planned, checkpoints, path, undone, offsets)
            held.callback(loop.close)
            streaming = self._stream(planned[0].planned, loop, location)
            undone.callback(streaming.stop)
            query = Query(self._result.spark, streaming, loop, held, finite=self._finite)
            undone.pop_all()
            held.pop_all()
        return query

    def _check_name(self) -> None:
        """Rejects the name of a running query before a sink changes what that query has."""
        if self._name in [one.name for one in self._result.spark.streams.active if one.name]:
            raise QueryError(
                f"a query named {self._name!r} is already running in this session",
                hint="stop it first, or use another queryName(...)",
            )

    def _settle(self, stage: PlannedStage, checkpoint: Checkpoint, location: str) -> PlannedStage:
        """Resolves distribute="auto" of the first stage."""
        chosen = settle(stage.planned, stage.adapt, checkpoint, location, finite=self._finite)
        if chosen is None:
            return stage
        again = stage.result.planned(chosen.adapt)
        check_spread([again], chosen.adapt, OF_RINGS)
        return replace(
            stage, adapt=chosen.adapt, planned=replace(again, distribution=chosen.reason)
        )

    def _batch_loop(
        self,
        planned: Sequence[PlannedStage],
        checkpoints: Sequence[Checkpoint],
        path: str | None,
        undone: ExitStack,
        offsets: SourceOffsets,
    ) -> BatchLoop:
        """The stages as their checkpoints left them, and the open sink."""
        spark = self._result.spark
        ids = [metadata["query_id"] for metadata in open_metadata(planned, checkpoints, VERSION)]
        check_owner = checkpoints[-1].log.check_owner
        asked = replace(
            self._sink_spec(path, ids[-1]), check_owner=check_owner, fsync=planned[-1].adapt.fsync
        )
        sink = make_sink(asked, spark)
        specs = [self._spec(stage, query_id) for stage, query_id in zip(planned, ids, strict=True)]
        if isinstance(sink, MemoryTableSink):
            undone.callback(sink.undo())
        sink.open(specs[-1].schema if self._identity else self._result.schema)
        with ExitStack() as made:
            stages = []
            for spec, checkpoint in zip(specs, checkpoints, strict=True):
                stages.append(stage_of(spark, spec, checkpoint, len(specs)))
                made.callback(stages[-1].close)
            loop = BatchLoop(stages, sink, offsets)
            made.pop_all()
        return loop

    def _stream(self, first: Planned, loop: BatchLoop, location: str) -> StreamingQuery:
        """Starts Spark's query, which calls the loop for every batch."""
        rows = first.lanes.union(first.frames, first.plan)
        writer = rows.writeStream.foreachBatch(loop.run_batch)
        writer = writer.option("checkpointLocation", _spark_place(location))
        if self._name is not None:
            writer = writer.queryName(self._name)
        if self._trigger:
            writer = writer.trigger(**self._trigger)
        with quick_local_checkpoints(self._result.spark, location):
            return writer.start()

    @property
    def _finite(self) -> bool:
        """Whether the query ends after the available input."""
        return bool(self._trigger.get("availableNow") or self._trigger.get("once"))

    def _spec(self, stage: PlannedStage, query_id: str) -> QuerySpec:
        planned, result, identity = stage.planned, stage.result, self._identity
        return QuerySpec(
            planned.plan,
            planned.lanes,
            planned.operator,
            lanes_schema(planned.lanes) if identity else result.made_schema,
            (lambda df: df) if identity else result.shaped,
            planned.feed,
            stage.adapt,
            query_id,
            identity,
            self._faults,
            planned.shaping,
            distribution=planned.distribution,
        )

    def _location(self, held: ExitStack) -> tuple[str, bool]:
        """Where the checkpoint is, and whether it is a temporary one, which `held` removes."""
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
            location = tempfile.mkdtemp(prefix="spillway-checkpoint-")
            held.callback(shutil.rmtree, location, ignore_errors=True)
            return location, True
        raise SettingsError(
            "the query has no checkpoint location",
            hint='add .option("checkpointLocation", "some/directory"); a restart continues from there',
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


def _spark_place(location: str) -> str:
    """Where Spark keeps the offsets of its sources."""
    return f"{location.rstrip('/')}/spark"

"""The builder of an n-way join: immutable; each verb checks its arguments and returns a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from spillway.duration import Duration
from spillway.errors import PlanError
from spillway.operators.equi.join import JoinOperator
from spillway.operators.equi.outer import OuterJoin
from spillway.operators.predicates.predicate import Predicate
from spillway.plan.join import JoinPlan, Plan, StreamPlan, WindowPlan
from spillway.plan.kind import INNER, INNER_JOIN, JoinKind
from spillway.plan.sliced import MatchedPlan
from spillway.policies.shape.shaping import Shaping
from spillway.settings import Adapt
from spillway.spark.api.checks import (
    check_key,
    check_stream,
    family,
    find_column,
    find_time,
    window_of,
)
from spillway.spark.api.expressions.meaning import check_meaning
from spillway.spark.api.expressions.reading import fields_read
from spillway.spark.api.kinds import check_kind, kind_of, optional_kind, refuse_unkeyed
from spillway.spark.api.matching import Conditions, Test, planned_matching, predicates_of
from spillway.spark.api.result import Planned, Result
from spillway.spark.api.stream import Grouped, results_of
from spillway.spark.runtime.exchange.lanes import (
    Lanes,
    arrow_type,
    assign_lanes,
    common_type,
    result_schema,
)


def join(*, how: str | DataFrame = INNER, **streams: DataFrame) -> Join:
    """Starts a join of two or more named streaming DataFrames.

    `how` is "inner", or for two streams "left", "right", "full", "semi" or "anti", as in SQL: with
    "left", a row of the first stream that has no partner comes out with NULL for the second, when the
    watermark says that none can come any more. For more streams see `optional`.

    Example:
        >>> sw.join(orders=orders, payments=payments).on("order_id")  # doctest: +SKIP
        >>> sw.join(orders=orders, payments=payments, how="left")  # doctest: +SKIP
    """
    if isinstance(how, DataFrame):
        # A stream may have this name too.
        streams, how = {"how": how, **streams}, INNER
    if not isinstance(how, str):
        raise PlanError(
            f"how={how!r} is not a kind of join",
            hint='write for example how="left", or leave it out',
        )
    if len(streams) < 2:
        raise PlanError(
            f"a join needs at least two streams, not {len(streams)}",
            hint="name them: sw.join(orders=orders, payments=payments)",
        )
    for name, frame in streams.items():
        check_stream(name, frame)
    names = list(streams)
    kind = kind_of(how, names)
    for at, name in enumerate(names):
        for earlier in names[:at]:
            if _same(streams[name], streams[earlier]):
                raise PlanError(
                    f"streams {earlier} and {name} are the same DataFrame",
                    hint="to join a stream with itself, read its source twice: "
                    f"{name} = spark.readStream....load()",
                )
    return Join(dict(streams), joins=kind)


@dataclass(frozen=True)
class Join(Result):
    """An n-way join that has not started; `writeStream` starts it."""

    KIND: ClassVar[str] = "a join"
    WHY_MODES: ClassVar[str] = "a join never changes or withdraws a result"

    keys: Mapping[str, tuple[str, ...]] | None = None
    windows: Mapping[str, WindowPlan] | None = None
    shaping: Shaping | None = None
    conditions: Conditions = ()
    joins: JoinKind = INNER_JOIN

    def on(self, *columns: str, **per_stream: str | Sequence[str]) -> Join:
        """Joins on equal keys: column names that all streams share, or names for each stream.

        Example:
            >>> join.on("currency", "offer")  # doctest: +SKIP
            >>> join.on(bank1="cur", bank2="currency")  # doctest: +SKIP
        """
        if bool(columns) == bool(per_stream):
            raise PlanError(
                "on() takes the names of key columns, or one name per stream",
                hint='for example .on("id") or .on(orders="id", payments="order_id")',
            )
        chosen = dict.fromkeys(self.frames, columns)
        if per_stream:
            self._all_streams("on()", per_stream)
            chosen = {name: _as_tuple(per_stream[name]) for name in self.frames}
        resolved = {
            name: tuple(self._key(name, key) for key in keys) for name, keys in chosen.items()
        }
        counts = {name: len(keys) for name, keys in resolved.items()}
        if len(set(counts.values())) != 1:
            raise PlanError(
                f"every stream needs the same number of keys, not {counts}",
                hint="give the keys in the same order for every stream",
            )
        self._key_types(resolved)
        return replace(self, keys=resolved)

    def within(
        self,
        window: Duration | Mapping[str, Duration],
        *,
        time: str | Mapping[str, str],
        lateness: Duration | Mapping[str, Duration] = "0 seconds",
    ) -> Join:
        """Sets the window: a combination is a result if T - t < window for each of its rows.

        T is the largest time in the combination. `window`, `time` and `lateness` are one value for all
        streams, or a mapping with one for each. The query drops and counts rows that are more than
        `lateness` behind the slowest stream.
        """
        values = {
            what: self._per_stream(what, value)
            for what, value in (("window", window), ("time", time), ("lateness", lateness))
        }
        windows = {}
        for name, frame in self.frames.items():
            column = find_time(frame, name, str(values["time"][name]), "join")
            lengths = values["window"][name], values["lateness"][name]
            windows[name] = window_of(name, column, *lengths)
        self._comparable_times(windows)
        return replace(self, windows=windows)

    def optional(self, *streams: str) -> Join:
        """Lets streams be missing in a result: a left outer join of several streams, in one operator.

        The streams join in the order of `sw.join(...)`, as `((a LEFT JOIN b) LEFT JOIN c)` in SQL. Where
        no row of an optional stream joins, the result has NULL in its place; all other streams are
        required. Such a result comes when the watermark says that no partner can come any more.

        Example:
            >>> sw.join(orders=orders, payments=payments, shipments=shipments).on(
            ...     "order_id"
            ... ).within("1 hour", time="ts").optional("payments", "shipments")  # doctest: +SKIP
        """
        return replace(self, joins=optional_kind(self.joins, streams, list(self.frames)))

    def plan(self, kind: str | None = None, *, shape: str | None = None) -> Join:
        """Sets the join order, and which intermediate results the query stores.

        `"nway"`, the default, joins all streams at once and stores only their rows. `"tree"` joins two
        inputs at a time and stores intermediate results; each slot uses the tree that it measures as
        cheapest. `"auto"` lets each slot choose between trees and the n-way join, and change later.
        `shape` fixes one tree for all slots. A checkpoint can restart with another plan.

        Example:
            >>> join.plan("auto")  # doctest: +SKIP
            >>> join.plan(shape="((bank1 bank2) bank3)")  # doctest: +SKIP
        """
        return replace(self, shaping=Shaping.asked(tuple(self.frames), kind, shape))

    def match(self, condition: Test, *streams: str) -> Join:
        """Adds a condition that all results must meet: any predicate over two or more streams.

        `condition` is one of:

        - a vectorised function. It gets one object for each stream, whose attributes are arrays with one
          value for each candidate pair, and returns an array of booleans;
        - a function of single rows, as `sw.scalar(fn)`;
        - Spark SQL text such as "abs(a.x - b.x) < 3".

        `streams` names the streams that the condition is about. Without names, text is about the streams
        that it mentions and a function is about all of them. All conditions must hold. A join without
        equal keys needs a window.

        Text has the meaning of Spark's ANSI mode: comparisons, BETWEEN, IN, IS NULL, arithmetic, common
        functions of numbers and text, intervals. This call rejects unknown functions, types that do not
        fit, text that Spark reads in another way, and text in a session without ANSI mode. Overflow and
        division by zero end the query, as in Spark.

        Earlier conditions guard later ones that can fail: functions, and text with divisions or sums of
        whole numbers. A later condition ends the query only if it fails on rows for which all earlier
        ones hold, also if they are about other streams.

        Example:
            >>> join.match(lambda a, b: abs(a.x - b.x) < 3, "a", "b")  # doctest: +SKIP
        """
        conditions = (*self.conditions, (condition, streams))
        predicates_of(self.frames, conditions)
        check_meaning(self.frames, condition)
        return replace(self, conditions=conditions)

    def group_by(self, *keys: str) -> Grouped:
        """Groups the results by key, for aggregates in the same Spark job.

        Example:
            >>> joined.group_by("bank1.broker").agg(price=sw.min("bank1.price"))  # doctest: +SKIP
        """
        return results_of(self, "joined").group_by(*keys)

    @property
    def whole_schema(self) -> StructType:
        """One struct per stream; a semi or anti join gives only the first."""
        names = list(self.frames)
        shown = [names[at] for at in self.joins.outputs(len(names))]
        return result_schema({name: self.frames[name] for name in shown})

    @property
    def made_schema(self) -> StructType:
        """One struct per stream, with only the columns that the query reads."""
        read = self._read()
        structs = [
            StructField(one.name, _some(one.dataType, read.get(one.name)))
            for one in self.whole_schema.fields
        ]
        return StructType(structs)

    def _read(self) -> Mapping[str, tuple[str, ...]]:
        """The columns that the query reads of streams that it does not read whole; at least one each."""
        if not any(verb == "select" for verb, _ in self.verbs):
            return {}
        empty = self.spark.createDataFrame([], self.whole_schema)
        found = fields_read(self.shaped(empty)) or {}
        return {
            name: tuple(c for c in self.frames[name].columns if c in some)
            or (self.frames[name].columns[0],)
            for name, some in found.items()
        }

    def planned(self, adapt: Adapt) -> Planned:
        """The checked join."""
        if self.conditions and self.shaping is not None:
            raise PlanError(
                "a join cannot have both match() and plan()",
                hint="leave plan() out: the query measures the best order itself; or, with equal keys, "
                "move the condition to where()",
            )
        if self.keys is None and self.conditions:
            refuse_unkeyed(self.joins, list(self.frames))
            return planned_matching(self.frames, self.conditions, self.windows, adapt, self._read())
        if self.keys is None:
            shared = set.intersection(*({*frame.columns} for frame in self.frames.values()))
            raise PlanError(
                f"the join of {', '.join(self.frames)} has no keys",
                detail="the streams have these columns in common: "
                + (", ".join(sorted(shared)) or "none"),
                hint='add .on("column"), or .on(stream="column", ...) if the names differ; or '
                "add .match(...) for a condition other than equal keys",
            )
        names, types = list(self.frames), self._key_types(self.keys)
        predicates = predicates_of(self.frames, self.conditions)
        planned = self.shaping is not None
        check_kind(self.joins, names, self.windows, predicates, planned=planned)
        kept = {names[one.source] for one in self.joins.decisions(names) if one.keeps_all}
        streams = tuple(
            StreamPlan(
                name,
                tuple((f.name, f.dataType.simpleString()) for f in frame.schema.fields),
                self.keys[name],
                None if self.windows is None else self.windows[name],
                alone=name in kept,
            )
            for name, frame in self.frames.items()
        )
        kinds = tuple(kind.simpleString() for kind in types)
        labels = tuple(one.label for one in predicates)
        plan = (
            MatchedPlan(streams, kinds, labels, kind=self.joins)
            if labels
            else JoinPlan(streams, kinds, self.joins)
        )
        lanes = assign_lanes(plan, self.frames, types, read=self._read())
        return self._operated(plan, lanes, predicates, adapt)

    def _operated(
        self, plan: Plan, lanes: Lanes, predicates: Sequence[Predicate], adapt: Adapt
    ) -> Planned:
        """The checked join with its operator."""
        if self.joins == INNER_JOIN:
            operator = JoinOperator(lanes.streams, adapt.block_rows, predicates)
            shaping = self.shaping or Shaping(tuple(self.frames))
            return Planned(plan, lanes, self.frames, operator, shaping=shaping)
        kinds = [
            [arrow_type(one.dataType) for one in frame.schema.fields]
            for frame in self.frames.values()
        ]
        outer = OuterJoin(lanes.streams, self.joins, kinds, adapt.block_rows, predicates)
        return Planned(plan, lanes, self.frames, outer)

    def _columns_to_name(self) -> str:
        named = (
            ", ".join(f"{name}.{column}" for column in frame.columns)
            for name, frame in self.frames.items()
            if name in self.whole_schema.names
        )
        return "write a column as stream.column: " + "; ".join(named)

    def _all_streams(self, verb: str, given: Mapping[str, Any]) -> None:
        unknown = [name for name in given if name not in self.frames]
        missing = [name for name in self.frames if name not in given]
        if unknown or missing:
            what = (
                f"names {unknown[0]!r}, which is not one of the joined streams"
                if unknown
                else f"has no value for stream {missing[0]}"
            )
            raise PlanError(f"{verb} {what}", hint=f"the streams are {', '.join(self.frames)}")

    def _per_stream(self, what: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            return dict.fromkeys(self.frames, value)
        self._all_streams(f"within({what}=...)", value)
        return value

    def _key(self, stream: str, name: str) -> str:
        hint = f'name the column of each stream: .on({stream}="...", ...)'
        return find_column(self.frames[stream], stream, name, "key", hint)

    def _comparable_times(self, windows: Mapping[str, WindowPlan]) -> None:
        kinds = {n: self.frames[n].schema[w.time].dataType for n, w in windows.items()}
        if len({kind.simpleString() for kind in kinds.values()}) > 1:
            told = (f"{n}.{windows[n].time} is {k.simpleString()}" for n, k in kinds.items())
            raise PlanError(
                f"the times cannot be compared: {', '.join(told)}",
                hint="cast them before the join: all with a time zone, or all without",
            )

    def _key_types(self, keys: Mapping[str, tuple[str, ...]]) -> list[DataType]:
        width = len(next(iter(keys.values())))
        return [self._key_type({n: keys[n][at] for n in self.frames}) for at in range(width)]

    def _key_type(self, columns: Mapping[str, str]) -> DataType:
        kinds = {n: self.frames[n].schema[c].dataType for n, c in columns.items()}
        for name, kind in kinds.items():
            check_key(name, columns[name], kind, "join")
        families = {n: family(kind) for n, kind in kinds.items()}
        if len(set(families.values())) > 1:
            told = ", ".join(f"{n}.{columns[n]} is {k.simpleString()}" for n, k in kinds.items())
            raise PlanError(
                f"the keys cannot be compared: {told}",
                hint="cast the keys to one type before the join",
            )
        return common_type(self.spark, list(kinds.values()))


def _some(struct: DataType, names: Sequence[str] | None) -> DataType:
    if names is None or not isinstance(struct, StructType):
        return struct
    return StructType([one for one in struct.fields if one.name in names])


def _as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _same(one: DataFrame, other: DataFrame) -> bool:
    if one is other:
        return True
    plans = [frame._jdf.queryExecution().analyzed() for frame in (one, other)]
    return bool(plans[0].equals(plans[1]))

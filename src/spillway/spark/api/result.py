"""What a query gives: the rows of its operator, and the where and select on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spillway.errors import PlanError
from spillway.operators.operator import Operator
from spillway.plan.join import Plan
from spillway.policies.shape.shaping import Shaping
from spillway.settings import Adapt
from spillway.spark.api.writer import StreamWriter
from spillway.spark.runtime.lanes import Lanes

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Planned:
    """A checked query: what it is, how its rows travel, and what works on them."""

    plan: Plan
    lanes: Lanes
    #: The streams with the columns that travel, by name.
    frames: Mapping[str, DataFrame]
    operator: Operator
    #: The same columns, of the results of the query before.
    travelling: Callable[[DataFrame], DataFrame] = lambda rows: rows
    #: What shapes slots may join in; None: the operator has only one.
    shaping: Shaping | None = None
    #: How the join is distributed and why, where that was not asked for.
    distribution: str | None = None
    #: What to ask for instead where groups are to be moved by a parallel track, and cannot be.
    track_hint: str = ""
    #: What the user is told before the query starts.
    warnings: tuple[str, ...] = ()

    def feed(self, rows: DataFrame) -> DataFrame:
        """The results of the query before, as they travel."""
        [name] = self.frames
        return self.lanes.union({name: self.travelling(rows)}, self.plan)


@dataclass(frozen=True)
class Result:
    """A query in the making; `writeStream` starts it. Each verb gives a new one."""

    #: What it is, for people; how its results may come, the usual way first; and why no other.
    KIND: ClassVar[str]
    MODES: ClassVar[tuple[str, ...]] = ("append",)
    WHY_MODES: ClassVar[str]

    frames: Mapping[str, DataFrame]
    #: The query whose results are the rows of this one; None: `frames` are streams.
    before: Result | None = field(default=None, kw_only=True)
    #: Settings of this query alone, where it is one of several in a row.
    own_settings: Mapping[str, object] = field(default_factory=dict, kw_only=True)
    #: where and select, in the order they were written.
    steps: tuple[tuple[str, tuple[Any, ...]], ...] = field(default=(), kw_only=True)

    @property
    def spark(self) -> SparkSession:
        """The session of the streams."""
        return next(iter(self.frames.values())).sparkSession

    def where(self, condition: str | Column) -> Self:
        """Keeps the results for which a condition holds: Spark SQL text or a Column."""
        return self._with_step("where", (condition,))

    def filter(self, condition: str | Column) -> Self:
        """The same as `where`."""
        return self.where(condition)

    def select(self, *columns: str | Column) -> Self:
        """The columns of the result: Spark SQL text ("bank1.price * 2 AS double") or Columns."""
        return self._with_step("select", columns)

    def adapt(self, **settings: object) -> Self:
        """Slots, groups, memory and places of this operator alone; see `spillway.settings.Adapt`."""
        Adapt().changed(**settings)
        return replace(self, own_settings={**self.own_settings, **settings})

    @property
    def chain(self) -> tuple[Result, ...]:
        """The queries in a row that this is the last of."""
        return (self,) if self.before is None else (*self.before.chain, self)

    @property
    def whole_schema(self) -> StructType:
        """The schema before where and select."""
        raise NotImplementedError

    @property
    def made_schema(self) -> StructType:
        """The schema of what the operator gives: without columns that nothing reads."""
        return self.whole_schema

    @property
    def schema(self) -> StructType:
        """The schema of the results."""
        return self.shaped(self.spark.createDataFrame([], self.whole_schema)).schema

    def shaped(self, rows: DataFrame) -> DataFrame:
        """The where and select of the query, applied to what the operator gives."""
        for verb, arguments in self.steps:
            if verb == "where":
                rows = rows.where(arguments[0])
            else:
                rows = rows.select(*(_expression(column) for column in arguments))
        return rows

    @property
    def writeStream(self) -> StreamWriter:
        """Where the results go; ends in `start()`."""
        return StreamWriter(self)

    def planned(self, adapt: Adapt, mode: str) -> Planned:
        """The checked query; `mode` is one of MODES."""
        raise NotImplementedError

    def _columns_to_name(self) -> str:
        """The columns that where and select may name, for people."""
        return ", ".join(self.whole_schema.names)

    def _with_step(self, verb: str, arguments: tuple[Any, ...]) -> Self:
        changed = replace(self, steps=(*self.steps, (verb, arguments)))
        try:
            changed.schema  # noqa: B018 - resolves the new step against the columns
        except (AnalysisException, ParseException) as problem:
            text = ", ".join(str(argument) for argument in arguments)
            raise PlanError(
                f"{verb}({text}) cannot be resolved",
                detail=str(problem).splitlines()[0],
                hint=self._columns_to_name(),
            ) from problem
        return changed


def _expression(column: str | Column) -> Column:
    if not isinstance(column, str):
        return column
    # "*" and "bank1.*" are not expressions that stand alone.
    return F.col(column) if column.endswith("*") else F.expr(column)

"""The results of a query: the rows of its operator, with where and select."""

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
from spillway.spark.api.expressions.rowwise import check_by_row, meaning_of, text_of
from spillway.spark.api.writer import StreamWriter
from spillway.spark.runtime.exchange.lanes import Lanes

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Planned:
    """A checked query: its plan, the lanes of its rows, and its operator."""

    plan: Plan
    lanes: Lanes
    #: The streams by name, with the columns that travel.
    frames: Mapping[str, DataFrame]
    operator: Operator
    #: Selects the same columns from the results of the query before.
    travelling: Callable[[DataFrame], DataFrame] = lambda rows: rows
    #: The shapes that slots may have; None: the operator has only one.
    shaping: Shaping | None = None
    #: How the join is distributed and why, if the query chose it.
    distribution: str | None = None
    #: A hint for a query whose groups cannot move by a parallel track.
    track_hint: str = ""
    #: Warnings for the user before the query starts.
    warnings: tuple[str, ...] = ()

    def feed(self, rows: DataFrame) -> DataFrame:
        """The results of the query before, in lanes."""
        [name] = self.frames
        return self.lanes.union({name: self.travelling(rows)}, self.plan)


@dataclass(frozen=True)
class Result:
    """A query that has not started; `writeStream` starts it. Each verb returns a new query."""

    #: The kind of query for people; its output modes, the default first; and why it has no other.
    KIND: ClassVar[str]
    MODES: ClassVar[tuple[str, ...]] = ("append",)
    WHY_MODES: ClassVar[str]

    frames: Mapping[str, DataFrame]
    #: The query whose results this one reads; None: `frames` are streams.
    before: Result | None = field(default=None, kw_only=True)
    #: Settings of this query alone, if it is one of several in a row.
    own_settings: Mapping[str, object] = field(default_factory=dict, kw_only=True)
    #: where and select, in the user's order.
    verbs: tuple[tuple[str, tuple[Any, ...]], ...] = field(default=(), kw_only=True)
    #: One of MODES; the writer sets it.
    mode: str = field(default="append", kw_only=True)

    @property
    def spark(self) -> SparkSession:
        """The session of the streams."""
        return next(iter(self.frames.values())).sparkSession

    def where(self, condition: str | Column) -> Self:
        """Keeps the results that meet a condition on single rows: Spark SQL text or a Column."""
        return self._with_verb("where", (condition,))

    def filter(self, condition: str | Column) -> Self:
        """The same as `where`."""
        return self.where(condition)

    def select(self, *columns: str | Column) -> Self:
        """The columns of the result: Spark SQL text ("bank1.price * 2 AS double") or Columns.

        A value follows from its row: there are no aggregates, window functions or random values
        (spark/api/expressions/rowwise.py). The current time is that of the batch, and later in a
        repeated batch.
        """
        return self._with_verb("select", columns)

    def adapt(self, **settings: object) -> Self:
        """Sets slots, groups, memory and directories of this operator; see `spillway.settings.Adapt`."""
        Adapt().changed(**settings)
        return replace(self, own_settings={**self.own_settings, **settings})

    @property
    def chain(self) -> tuple[Result, ...]:
        """The queries in a row that end with this one."""
        return (self,) if self.before is None else (*self.before.chain, self)

    @property
    def whole_schema(self) -> StructType:
        """The schema before where and select."""
        raise NotImplementedError

    @property
    def made_schema(self) -> StructType:
        """The schema of the operator's rows, without columns that nothing reads."""
        return self.whole_schema

    @property
    def schema(self) -> StructType:
        """The schema of the results."""
        return self.empty.schema

    @property
    def described_verbs(self) -> dict[str, list[str]]:
        """The where and select of the query: the user's text, and what it means."""
        return {
            "text": [text_of(*verb) for verb in self.verbs],
            "meaning": meaning_of(self.empty),
        }

    @property
    def empty(self) -> DataFrame:
        """The results, without rows."""
        return self.shaped(self.spark.createDataFrame([], self.whole_schema))

    def shaped(self, rows: DataFrame) -> DataFrame:
        """Applies the where and select of the query to the operator's rows."""
        for verb, arguments in self.verbs:
            if verb == "where":
                rows = rows.where(arguments[0])
            else:
                rows = rows.select(*(_expression(column) for column in arguments))
        return rows

    @property
    def writeStream(self) -> StreamWriter:
        """Sets where the results go; `start()` completes it."""
        return StreamWriter(self)

    def planned(self, adapt: Adapt) -> Planned:
        """The checked query."""
        raise NotImplementedError

    def _columns_to_name(self) -> str:
        """The columns that where and select may use, as text."""
        return ", ".join(self.whole_schema.names)

    def _with_verb(self, verb: str, arguments: tuple[Any, ...]) -> Self:
        changed = replace(self, verbs=(*self.verbs, (verb, arguments)))
        try:
            shaped = changed.empty
        except (AnalysisException, ParseException) as problem:
            text = ", ".join(str(argument) for argument in arguments)
            raise PlanError(
                f"{verb}({text}) cannot be resolved",
                detail=str(problem).splitlines()[0],
                hint=self._columns_to_name(),
            ) from problem
        check_by_row(text_of(verb, arguments), shaped)
        return changed


def _expression(column: str | Column) -> Column:
    if not isinstance(column, str):
        return column
    # F.expr does not take "*" and "bank1.*".
    return F.col(column) if column.endswith("*") else F.expr(column)

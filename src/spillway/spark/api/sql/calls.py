"""Makes the calls of the public API that a planned SQL query consists of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spillway.errors import PlanError
from spillway.plan.sql.query.nodes import (
    AggregateNode,
    DedupNode,
    GroupNode,
    JoinNode,
    Named,
    Node,
    Read,
    Rows,
    SelectNode,
    StreamNode,
    TimeWindowNode,
)
from spillway.plan.sql.query.text import refused
from spillway.plan.sql.query.timewindows import SESSION
from spillway.plan.sql.query.values import quoted
from spillway.spark.api import aggregations
from spillway.spark.api.expressions.rowwise import check_by_row, check_timeless
from spillway.spark.api.join import Join, join
from spillway.spark.api.result import Result
from spillway.spark.api.stream import Grouped, Stream, results_of, stream


def made(node: Node, frames: Mapping[str, DataFrame]) -> Result:
    """The query of a planned node; `frames` are the streams by lower-case name."""
    return _Maker(frames).made(node)


class _Maker:
    """Makes the calls of a planned query."""

    def __init__(self, frames: Mapping[str, DataFrame]) -> None:
        self._frames = frames

    def made(self, node: Node) -> Result:
        match node:
            case SelectNode(before=before, filters=filters, columns=columns):
                result = self.made(before)
                for text in filters:
                    result = result.where(text)
                return _selected(result, columns)
            case JoinNode():
                return self._join(node)
            case DedupNode(before=before, keys=keys):
                return self._stream(before).dedup(*keys)
            case GroupNode(before=before, keys=keys, aggregates=aggregates, window=window):
                made = {one.name: _aggregation(one) for one in aggregates}
                source = self._stream(before)
                if window is not None:
                    return _over_windows(source, keys, window).agg(**made)
                return source.group_by(*keys).agg(**made)

    def _stream(self, before: StreamNode | SelectNode) -> Stream:
        """The rows that a group-by or a dedup reads."""
        if isinstance(before, StreamNode):
            return stream(self._rows(before.rows), before.name)
        result = self.made(before)
        return results_of(result, "the results")

    def _join(self, node: JoinNode) -> Join:
        names = [one.name for one in node.streams]
        made = _joined(node, {one.name: self._rows(one.rows) for one in node.streams})
        if node.keys:
            columns = zip(*node.keys, strict=True)
            made = made.on(**dict(zip(names, columns, strict=True)))
        if node.windows:
            by_name = dict(zip(names, node.windows, strict=True))
            made = made.within(
                {name: timedelta(microseconds=one.window_us) for name, one in by_name.items()},
                time={name: one.time for name, one in by_name.items()},
                lateness={
                    name: timedelta(microseconds=one.lateness_us) for name, one in by_name.items()
                },
            )
        if node.plan is not None:
            shaped = node.plan.lstrip().startswith("(")
            made = made.plan(shape=node.plan) if shaped else made.plan(node.plan)
        for one in node.matches:
            try:
                made = made.match(one.text, *one.streams)
            except PlanError as problem:
                if one.required:
                    raise refused(one.place, problem.message, str(problem.hint)) from problem
                made = made.where(one.written)
        for text in node.filters:
            made = made.where(text)
        return made

    def _rows(self, rows: Rows) -> DataFrame:
        """A stream, or several united, with filters and columns."""
        if isinstance(rows.of, Read):
            frame = self._frames[rows.of.relation.lower()]
        else:
            first, *others = (self._rows(one) for one in rows.of)
            frame = first
            for one in others:
                frame = frame.unionAll(one)
        unseen = frame.sparkSession.createDataFrame([], frame.schema)
        for kept in rows.filters:
            check_by_row(kept.name, unseen.where(kept.text))
            try:
                check_timeless(kept.name, unseen.where(kept.text))
            except PlanError as problem:
                raise PlanError(
                    f"the condition {kept.name} depends on the current time",
                    detail="a batch that is repeated after a failure would read other rows",
                    hint="compare with a time of the rows, as a.ts > b.ts - INTERVAL 1 DAY does",
                ) from problem
            frame = frame.where(kept.text)
        if rows.more:
            frame = frame.select("*", *map(_column, rows.more))
        if rows.columns is not None:
            frame = frame.select(*map(_column, rows.columns))
        return frame


def _joined(node: JoinNode, frames: dict[str, DataFrame]) -> Join:
    """A join of some kind: the one place that knows how the API says it."""
    if node.how == "inner" and not node.optional:
        return join(**frames)
    made = join(how=node.how, **frames)
    return made.optional(*node.optional) if node.optional else made


def _over_windows(source: Stream, keys: tuple[str, ...], window: TimeWindowNode) -> Grouped:
    """A group-by over time windows: the one place that knows how the API says it."""
    grouped: Any = source.group_by(*keys) if keys else source
    late = timedelta(microseconds=window.lateness_us)
    length = timedelta(microseconds=window.length_us)
    if window.kind == SESSION:
        over: Grouped = grouped.session(length, time=window.time, lateness=late)
        return over
    over = grouped.window(
        length,
        time=window.time,
        slide=None if window.slide_us is None else timedelta(microseconds=window.slide_us),
        start=timedelta(microseconds=window.start_us),
        lateness=late,
    )
    return over


def _column(one: Named) -> Column:
    return F.expr(one.text).alias(one.name)


def _selected(result: Result, columns: tuple[Named, ...] | None) -> Result:
    if columns is None:
        return result
    as_they_are = all(one.text == quoted(one.name) for one in columns)
    if as_they_are and [one.name for one in columns] == result.schema.names:
        return result
    return result.select(*(f"{one.text} AS {quoted(one.name)}" for one in columns))


def _aggregation(one: AggregateNode) -> aggregations.Aggregation:
    if one.of is None:
        return aggregations.count()
    function = getattr(aggregations, one.function)
    more = [extra for extra in (one.fraction, one.by) if extra is not None]
    made: aggregations.Aggregation = function(one.of, *more)
    return made

"""What ends a query: the columns of a join, DISTINCT, GROUP BY."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spillway.plan.sql.query.catalog import Catalog
from spillway.plan.sql.query.clauses import Item, Select
from spillway.plan.sql.query.flat import Done, Flat
from spillway.plan.sql.query.grouping import Grouping
from spillway.plan.sql.query.joining import joined
from spillway.plan.sql.query.nodes import (
    AggregateNode,
    DedupNode,
    GroupNode,
    JoinNode,
    Named,
    Node,
    Note,
    SelectNode,
    StreamNode,
    TimeWindowNode,
)
from spillway.plan.sql.query.scope import Scope
from spillway.plan.sql.query.text import Piece, is_name, refused
from spillway.plan.sql.query.timewindows import TimeWindow
from spillway.plan.sql.query.values import Value

#: The column of the time of windows.
TIME = "_time"
#: Items of a SELECT; those behind a star have a value.
Items = list[tuple[Item, Value | None]]


@dataclass
class Endings:
    """Makes the operators that end queries; collects notes and the names of the last columns."""

    catalog: Catalog
    notes: list[Note] = field(default_factory=list)
    #: The names of the outermost columns; None: the user gave none.
    top_names: list[str | None] = field(default_factory=list)

    def _before(
        self, flat: Flat, columns: tuple[Named, ...], place: Piece, what: str
    ) -> StreamNode | SelectNode:
        """The rows that a group-by or a dedup reads."""
        if flat.joins:
            found = joined(flat, self.catalog.steady)
            self.notes += found.notes
            return SelectNode(found.node, columns=columns)
        if flat.done is not None:
            if flat.done.updates:
                raise refused(
                    place,
                    f"{what} cannot read the results of a GROUP BY: each is a version of a group, which "
                    "a later one replaces",
                    "write one GROUP BY over the streams",
                )
            return SelectNode(flat.done.node, _filters(flat), columns)
        [stream] = flat.streams
        named = tuple(Named(one.place.text, one.value.bare) for one in flat.conditions)
        rows = replace(stream.rows, filters=(*stream.rows.filters, *named), columns=columns)
        return StreamNode(stream.name, rows)

    def distinct(self, place: Piece, flat: Flat) -> Done:
        """SELECT DISTINCT: the first row of each combination of its columns."""
        names = _distinct_names(flat, place)
        columns = tuple(
            Named(name, flat.text(value))
            for name, (_, value) in zip(names, flat.outputs, strict=True)
        )
        self.notes.append(Note("DISTINCT keeps every combination of its columns for ever"))
        node = DedupNode(self._before(flat, columns, place, "DISTINCT"), tuple(names))
        return Done(node, tuple(names), updates=False, place=flat.place)

    def projected(self, flat: Flat) -> Done:
        """A join, or the results of a query, with the columns of a SELECT."""
        columns = tuple(
            Named(name or f"_col{at}", flat.text(value))
            for at, (name, value) in enumerate(flat.outputs)
        )
        names = tuple(one.name for one in columns)
        if flat.done is None:
            found = joined(flat, self.catalog.steady)
            self.notes += found.notes
            return Done(SelectNode(found.node, columns=columns), names, False, flat.place)
        if flat.done.updates and flat.conditions:
            raise refused(
                flat.conditions[0].place,
                "WHERE over the results of a GROUP BY may keep an older version of a group whose newest "
                "one it drops",
                "write the condition as HAVING of the GROUP BY, or filter where the results are read",
            )
        node = SelectNode(flat.done.node, _filters(flat), columns)
        return Done(node, names, flat.done.updates, flat.place)

    def grouped(self, select: Select, flat: Flat, scope: Scope, items: Items) -> Done:
        """GROUP BY, or aggregates of all rows."""
        if select.distinct is not None:
            raise refused(
                select.distinct,
                "DISTINCT over a GROUP BY is not supported",
                "leave DISTINCT out if the keys are selected: their groups differ",
            )
        grouping = Grouping.of(select, scope)
        outputs = [
            (
                name_of(item),
                grouping.value(item.expression) if value is None else grouping.value_of(value),
            )
            for item, value in items
        ]
        having: tuple[str, ...] = ()
        if select.having is not None:
            value = grouping.value(select.having)
            grouping.check_having(select.having, value)
            having = (value.bare,)
        self.top_names = [name for name, _ in outputs]
        node = self._group_node(select, flat, grouping)
        named = tuple(
            Named(name or f"_col{at}", value.bare) for at, (name, value) in enumerate(outputs)
        )
        # Windows too: with output mode "update", a window gives versions.
        updates = isinstance(node, GroupNode)
        names = tuple(one.name for one in named)
        return Done(SelectNode(node, having, named), names, updates, select.place)

    def _group_node(self, select: Select, flat: Flat, grouping: Grouping) -> Node:
        columns = grouping.columns(flat.text)
        names = tuple(key.name for key in grouping.keys)
        if not names and grouping.window is None:
            # One group: all rows have the same key.
            names, columns = ("_all",), (*columns, Named("_all", "1"))
        window = None
        if grouping.window is not None:
            time = grouping.window.time
            columns = (*columns, Named(TIME, flat.text(time)))
        before = self._before(flat, columns, select.place, "GROUP BY")
        if grouping.window is not None:
            window = _time_window(grouping.window, flat, before)
        if not grouping.aggregates and window is None:
            return DedupNode(before, names)
        counted = (AggregateNode("_agg0", "count", None),)
        return GroupNode(before, names, grouping.nodes() or counted, window)


def _time_window(window: TimeWindow, flat: Flat, before: StreamNode | SelectNode) -> TimeWindowNode:
    """The windows of a group-by, and how late its rows may be."""
    late = _lateness(window, flat, before)
    if late is None:
        raise refused(
            window.place,
            "time windows need to know how late rows may be",
            "write SELECT /*+ LATENESS('30 seconds') */ ..., or use withWatermark on the stream",
        )
    lengths = window.length_us, window.slide_us, window.start_us
    return TimeWindowNode(window.kind, TIME, *lengths, late, window.place)


def _lateness(window: TimeWindow, flat: Flat, before: StreamNode | SelectNode) -> int | None:
    """How late a row may be; None: nobody says it.

    Results of a join have times of two sources of delay. A result is older than its newest row by less
    than a window W; and that row may be late itself, by the lateness l of its stream. The newest result
    so far is less than W ahead of the slowest stream. So no result is 2 W + l behind it.
    """
    if isinstance(before, SelectNode):
        join = before.before
        if not isinstance(join, JoinNode) or not join.windows:
            return None
        longest = max(one.window_us for one in join.windows)
        return 2 * longest + max(one.lateness_us for one in join.windows)
    [stream] = flat.streams
    found = flat.lateness.get(stream.name)
    column = window.time.column
    marked = stream.watermark is not None and column is not None
    if found is None and marked and stream.watermark and column:
        return stream.watermark[1] if stream.watermark[0] == column.name else None
    return found


def name_of(item: Item) -> str | None:
    """The name of an item: the user's, or that of its column; other expressions have none."""
    tokens = item.expression.tokens
    dotted = len(tokens) % 2 and all(one.text == "." for one in tokens[1::2])
    if item.alias is not None or not dotted or not is_name(tokens[-1]):
        return item.alias
    return str(tokens[-1].text)


def _filters(flat: Flat) -> tuple[str, ...]:
    return tuple(flat.text(one.value) for one in flat.conditions)


def _distinct_names(flat: Flat, place: Piece) -> list[str]:
    names = [name or f"_col{at}" for at, (name, _) in enumerate(flat.outputs)]
    folded = [name.lower() for name in names]
    twice = next((name for name in names if folded.count(name.lower()) > 1), None)
    if twice is not None:
        raise refused(place, f"two columns are called {twice}", f"write {twice} AS other")
    return names

"""GROUP BY, aggregates and HAVING of a query, as a group-by over columns that the query computes first.

    SELECT upper(k) AS k, sum(x * 2) / count(*) AS mean FROM s GROUP BY upper(k) HAVING count(*) > 3

becomes: columns `upper(k) AS k, x * 2 AS _value0`; a group-by on k with `_agg0 = sum(_value0)` and
`_agg1 = count(*)`; then `_agg1 > 3` as filter and `_agg0 / _agg1 AS mean` as column.

A group-by gives a version of a group whenever rows of it arrive. A filter on versions is exact only if
a group that once meets it meets it for ever: HAVING count(*) > 3, max(x) > 5, min(x) < 5, and conditions
on keys. Others are refused, because an older version would stay where the newest one disappears.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import expressions as sql

from spillway.plan.sql.expression import Column
from spillway.plan.sql.query.aggregates import AGGREGATES, Aggregate, aggregates_in
from spillway.plan.sql.query.clauses import Item, Select
from spillway.plan.sql.query.nodes import AggregateNode, Named
from spillway.plan.sql.query.scope import Scope, calls
from spillway.plan.sql.query.text import Piece, folded, parsed, refused
from spillway.plan.sql.query.timewindows import TimeWindow, is_time_window, time_window_of
from spillway.plan.sql.query.values import Value, spliced

#: The stream of columns that a group-by makes.
MADE = ""
#: Comparisons that a growing or falling aggregate keeps, once it meets them.
_GROWING, _FALLING = ("count", "count_distinct", "max"), ("min",)
_FLIPPED: dict[type[sql.Expr], type[sql.Expr]] = {
    sql.GT: sql.LT, sql.GTE: sql.LTE, sql.LT: sql.GT, sql.LTE: sql.GTE,
}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """A key: its value before the group-by, and its name after it."""

    name: str
    value: Value


@dataclass
class Grouping:
    """Collects the keys and aggregates of one SELECT."""

    scope: Scope
    keys: list[Key] = field(default_factory=list)
    aggregates: list[Aggregate] = field(default_factory=list)
    window: TimeWindow | None = None
    _names: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(select: Select, scope: Scope) -> Grouping:
        """The keys of a SELECT."""
        found = Grouping(scope)
        # Windows first: other keys may be expressions over them.
        for piece in sorted(select.group, key=lambda one: not is_time_window(one)):
            found._add_key(piece, select.items)
        return found

    def _add_key(self, piece: Piece, items: Sequence[Item]) -> None:
        piece, alias = _meant(piece, items, self.scope)
        if is_time_window(piece):
            self.window = time_window_of(piece, self.scope, self.window)
            return
        for at, end in calls(piece, AGGREGATES):
            raise refused(
                piece.part(at, end + 1), "GROUP BY takes no aggregates", "group by columns"
            )
        value = self.scope.value(piece)
        if any(_same(value, key.value) for key in self.keys):
            return
        name = alias or (value.column.name if value.column else f"_key{len(self.keys)}")
        self.keys.append(Key(self._unused(name), value))

    def _unused(self, name: str) -> str:
        """A name that no key has; case does not matter."""
        taken = {key.name.lower() for key in self.keys}
        while name.lower() in taken:
            name = f"_{name}"
        return name

    def value(self, piece: Piece) -> Value:
        """An expression over keys and aggregates, as one over the results of the group-by."""
        whole = self._key_of(piece)
        if whole is not None:
            return Value((whole,), piece)
        found: list[tuple[int, int, Value | Column]] = []
        for start, end, aggregate in aggregates_in(piece, self.scope):
            found.append((start, end, Column(MADE, self._aggregate(aggregate))))
        found += self._key_calls(piece, [(start, end) for start, end, _ in found])
        spans = [(start, end) for start, end, _ in found]
        for node in piece.parsed().find_all(sql.Column):
            start, end = int(node.parts[0].meta["start"]), int(node.parts[-1].meta["end"]) + 1
            if self._starts_with_window(node):
                end = int(node.parts[0].meta["end"]) + 1
            if not any(one <= start < other for one, other in spans):
                found.append((start, end, self._key_column(piece, start, end)))
        return spliced(piece, found)

    def value_of(self, value: Value) -> Value:
        """A column behind a star, as one over the results of the group-by."""
        for key in self.keys:
            if _same(value, key.value):
                return Value((Column(MADE, key.name),), value.place)
        raise refused(
            value.place, f"* has {value.bare}, which is not a key", "name the keys and aggregates"
        )

    def _aggregate(self, aggregate: Aggregate) -> str:
        """The name of an aggregate; equal ones are one."""
        for at, known in enumerate(self.aggregates):
            if known.same(aggregate):
                return f"_agg{at}"
        self.aggregates.append(aggregate)
        return f"_agg{len(self.aggregates) - 1}"

    def _key_of(self, piece: Piece) -> Column | None:
        if any(True for _ in calls(piece, AGGREGATES)):
            return None
        if self.window is not None and self._is_window(piece):
            return Column(MADE, self.window.kind)
        if any(map(self._starts_with_window, piece.parsed().find_all(sql.Column))):
            return None
        if is_time_window(piece):
            raise refused(piece, "this window is not a key", "write it in GROUP BY, too")
        value = self.scope.value(piece)
        return next((Column(MADE, k.name) for k in self.keys if _same(value, k.value)), None)

    def _starts_with_window(self, node: sql.Column) -> bool:
        """Whether a name is a field of the window: `window.start`."""
        return self.window is not None and str(node.parts[0].name).lower() == self.window.kind

    def _is_window(self, piece: Piece) -> bool:
        """Whether an expression is the window of the group-by: `window`, or the same call."""
        assert self.window is not None
        if len(piece) == 1 and piece.words(0, self.window.kind):
            return not self.scope.has(piece)
        same = [folded(one) for one in piece.tokens] == [
            folded(one) for one in self.window.place.tokens
        ]
        return same or (
            is_time_window(piece)
            and self._parts(time_window_of(piece, self.scope, None)) == self._parts(self.window)
        )

    @staticmethod
    def _parts(window: TimeWindow) -> tuple[object, ...]:
        lengths = window.length_us, window.slide_us, window.start_us
        return window.kind, window.time.signature, *lengths

    def _key_calls(
        self, piece: Piece, spans: list[tuple[int, int]]
    ) -> list[tuple[int, int, Value | Column]]:
        """Calls inside an expression that are keys."""
        found: list[tuple[int, int, Value | Column]] = []
        for at in range(len(piece) - 1):
            start = piece.part(at, at + 1).start_at - piece.start_at
            inside = any(one <= start < other for one, other in spans)
            if (
                inside
                or str(piece.tokens[at + 1].text) != "("
                or not piece.tokens[at].text[:1].isalpha()
            ):
                continue
            call = piece.part(at, piece.closing(at + 1) + 1)
            if any(True for _ in calls(call, AGGREGATES)):
                continue
            key = self._key_of(call)
            if key is not None:
                end = call.end_at - piece.start_at
                found.append((start, end, key))
                spans = [*spans, (start, end)]
        return found

    def _key_column(self, piece: Piece, start: int, end: int) -> Column:
        numbers = [
            at
            for at, token in enumerate(piece.tokens)
            if start <= token.start - piece.start_at < end
        ]
        place = piece.part(numbers[0], numbers[-1] + 1)
        found = self._key_of(place)
        if found is None:
            keys = ", ".join(key.value.place.text for key in self.keys) or "none"
            raise refused(
                place,
                f"{place.text} is neither a key nor in an aggregate",
                f"write min({place.text}), or add it to GROUP BY; the keys are {keys}",
            )
        return found

    def columns(self, text: Callable[[Value], str]) -> tuple[Named, ...]:
        """The columns that the group-by reads; `text` writes a value."""
        named = [Named(key.name, text(key.value)) for key in self.keys]
        for at, one in enumerate(self.aggregates):
            if one.of is not None:
                named.append(Named(f"_value{at}", one.argument(text)))
            if one.by is not None:
                named.append(Named(f"_by{at}", one.order(text)))
        return tuple(named)

    def nodes(self) -> tuple[AggregateNode, ...]:
        """The aggregates over those columns."""
        return tuple(
            AggregateNode(
                f"_agg{at}",
                one.function,
                None if one.of is None else f"`_value{at}`",
                one.fraction,
                None if one.by is None else f"_by{at}",
                one.place,
            )
            for at, one in enumerate(self.aggregates)
        )

    def check_having(self, piece: Piece, value: Value) -> None:
        """Rejects a filter that a group can stop meeting."""
        if not self._stays(parsed(value.bare, piece)):
            raise refused(
                piece,
                "a group can stop meeting this HAVING, and the version that met it would stay in the "
                "results",
                "filter where the results are read; in a stream, HAVING may have conditions on keys, "
                "count(...) > n, max(...) > x and min(...) < x, joined by AND and OR",
            )

    def _stays(self, node: sql.Expr) -> bool:
        """Whether a group that meets a condition meets it for ever."""
        node = _bare(node)
        if isinstance(node, sql.And | sql.Or):
            return self._stays(node.this) and self._stays(node.expression)
        names = [column.name for column in node.find_all(sql.Column)]
        made = [name for name in names if name.startswith("_agg")]
        if not made:
            return True
        kind, left, right = type(node), node.this, node.args.get("expression")
        if kind not in _FLIPPED or right is None or len(names) != 1:
            return False
        if isinstance(_bare(right), sql.Column):
            kind, left, right = _FLIPPED[kind], right, left
        left = _bare(left)
        if not isinstance(left, sql.Column) or not _is_constant(right):
            return False
        function = self.aggregates[int(left.name.removeprefix("_agg"))].function
        grows = kind in (sql.GT, sql.GTE)
        return function in (_GROWING if grows else _FALLING)


def _is_constant(node: sql.Expr) -> bool:
    """Whether a value is always the same: the current time is not."""
    calls = (one for one in node.walk() if isinstance(one, sql.Func))
    return all(isinstance(one, sql.Cast) for one in calls)


def _bare(node: sql.Expr) -> sql.Expr:
    while isinstance(node, sql.Paren):
        node = node.this
    return node


def _meant(piece: Piece, items: Sequence[Item], scope: Scope) -> tuple[Piece, str | None]:
    """The expression that a key means, and the name of it in SELECT: GROUP BY 1, GROUP BY alias."""
    if len(piece) == 1 and piece.text.isdecimal():
        at = int(piece.text) - 1
        if not 0 <= at < len(items):
            raise refused(piece, f"SELECT has no item {piece.text}", f"use 1 to {len(items)}")
        return items[at].expression, items[at].alias
    for item in items:
        if item.alias is None:
            continue
        named = len(piece) == 1 and piece.text.strip("`").lower() == item.alias.lower()
        if named and not scope.has(piece):
            return item.expression, item.alias
        if item.expression.text == piece.text:
            return piece, item.alias
    return piece, None


def _same(one: Value, other: Value) -> bool:
    return one.signature == other.signature

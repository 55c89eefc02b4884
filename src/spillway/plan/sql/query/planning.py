"""A SQL query as calls of the public API: `plan(read(text), catalog)`.

Subqueries come first. One without state becomes part of the query around it (flat.py). A group-by or a
dedup ends a query: the query around it reads its results, in the same Spark job. Versions of groups
cannot be read by another group-by or dedup, because an older version is no row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from spillway.plan.sql.expression import Column
from spillway.plan.sql.query.aggregates import has_aggregate
from spillway.plan.sql.query.catalog import Catalog
from spillway.plan.sql.query.clauses import (
    ANTI,
    FULL,
    RIGHT,
    SEMI,
    Item,
    Query,
    Relation,
    Select,
    Statement,
)
from spillway.plan.sql.query.ending import Endings, name_of
from spillway.plan.sql.query.flat import (
    COMBINING,
    INSIDE,
    Condition,
    Done,
    Flat,
    FlatStream,
    condition_of,
)
from spillway.plan.sql.query.hints import Hints, hints_of
from spillway.plan.sql.query.keys import COMPUTED
from spillway.plan.sql.query.nodes import (
    Named,
    Planned,
    Read,
    Rows,
    SelectNode,
)
from spillway.plan.sql.query.scope import Scope, Visible
from spillway.plan.sql.query.text import Piece, refused
from spillway.plan.sql.query.values import Value, quoted


def plan(statement: Statement, catalog: Catalog) -> Planned:
    """The calls that a query means; raises with the place of what cannot run.

    Example:
        >>> from spillway.plan.sql.query.catalog import Registered
        >>> from spillway.plan.sql.query.clauses import read
        >>> known = Registered({"k": "bigint", "x": "double"})
        >>> found = plan(read("SELECT a.x FROM a JOIN b USING (k)"), Catalog({"a": known, "b": known}))
        >>> found.node.before.keys
        (('k', 'k'),)
    """
    planner = _Planner(catalog, Endings(catalog))
    found = planner.query(statement.query, {})
    if isinstance(found, Flat):
        if not found.joins and found.done is None:
            raise refused(
                statement.text.piece,
                "it computes row by row and keeps no state, so it does not need Spillway",
                "run it with Spark: spark.sql(text).writeStream...; Spillway runs joins, GROUP BY and "
                "DISTINCT",
            )
        found = planner.endings.projected(found)
    assert isinstance(found, Done)
    node = found.node
    if not isinstance(node, SelectNode) or node.columns is None:
        named = tuple(Named(name, quoted(name)) for name in found.names)
        node = SelectNode(node, columns=named)
    return Planned(node, tuple(planner.endings.top_names), tuple(planner.endings.notes))


@dataclass
class _Planner:
    """Plans the SELECTs of one statement."""

    catalog: Catalog
    endings: Endings
    _taken: set[str] = field(default_factory=set)

    def query(self, query: Query, known: Mapping[str, Query]) -> Flat | Done:
        known = dict(known)
        for name, one in query.named.items():
            # It sees the named queries before it, and not itself.
            known[name] = replace(one, named={**known, **one.named})
        parts = [
            self.query(one, known) if isinstance(one, Query) else self._select(one, known)
            for one in query.selects
        ]
        if len(parts) == 1:
            return parts[0]
        return self._united(parts)

    # UNION ALL

    def _united(self, parts: list[Flat | Done]) -> Flat:
        """Streams united below one another, as one stream."""
        flats = [self._stateless(part) for part in parts]
        first = flats[0]
        names = [name or f"_col{at}" for at, (name, _) in enumerate(first.outputs)]
        for flat in flats[1:]:
            if len(flat.outputs) != len(names):
                raise refused(
                    flat.place,
                    f"this SELECT has {len(flat.outputs)} columns, the first of the UNION ALL "
                    f"{len(names)}",
                    "select the same columns in each",
                )
        rows = Rows(tuple(_projected_rows(flat, names) for flat in flats))
        kinds = {name: _common_kind(flats, at) for at, name in enumerate(names)}
        name = self._unused("union")
        stream = FlatStream(name, rows, kinds, None, first.place)
        outputs = tuple((one, Value((Column(name, one),), first.place)) for one in names)
        return Flat((stream,), (), outputs, first.place, {})

    def _stateless(self, part: Flat | Done) -> Flat:
        if isinstance(part, Flat) and not part.joins and part.done is None:
            return part
        raise refused(
            part.place,
            "UNION ALL of the results of joins, GROUP BY or DISTINCT is not supported",
            "unite the streams first: FROM (SELECT ... FROM a UNION ALL SELECT ... FROM b) JOIN ...; or "
            "start two queries that write to one place",
        )

    # SELECT

    def _select(self, select: Select, known: Mapping[str, Query]) -> Flat | Done:
        hints = hints_of(select.hints)
        flat, scope = self._from(select, known, hints)
        pieces = [] if select.where is None else select.where.conjuncts()
        for piece in pieces:
            self._no_aggregate(piece, "WHERE", "write it in HAVING")
        more = tuple(condition_of(piece, scope) for piece in pieces)
        flat = replace(flat, conditions=(*flat.conditions, *more))
        items = list(_expanded(select.items, scope))
        grouped = bool(select.group) or select.having is not None
        if grouped or any(has_aggregate(item.expression) for item in select.items):
            return self.endings.grouped(select, flat, scope, items)
        outputs = tuple(
            (name_of(item), scope.value(item.expression) if value is None else value)
            for item, value in items
        )
        flat = flat.with_outputs(outputs)
        self.endings.top_names = [name for name, _ in outputs]
        return self.endings.distinct(select.distinct, flat) if select.distinct else flat

    def _no_aggregate(self, piece: Piece, clause: str, hint: str) -> None:
        if has_aggregate(piece):
            raise refused(piece, f"{clause} has an aggregate", hint)

    def _from(self, select: Select, known: Mapping[str, Query], hints: Hints) -> tuple[Flat, Scope]:
        """The relations of a SELECT, flat, and what their names mean."""
        flats: list[Flat] = []
        aliases: list[str] = []
        visible: list[Visible] = []
        shared: dict[str, Value] = {}
        conditions: list[Condition] = []
        for relation in select.relations:
            if relation.alias and relation.alias.lower() in aliases:
                raise refused(
                    relation.place,
                    f"FROM has two streams called {relation.alias}",
                    f"give one of them another name: {relation.of} AS other"
                    if isinstance(relation.of, str)
                    else "give the query another name",
                )
            aliases.append(relation.alias.lower())
            flat = self._relation(relation, known)
            if len(select.relations) > 1:
                flat = _inside(flat)
            _check_names(relation, flat)
            columns = {name: value for name, value in flat.outputs if name is not None}
            before = Scope(tuple(visible), shared)
            visible.append(Visible(relation.alias, columns))
            scope = Scope(tuple(visible), shared)
            if visible[1:]:
                flat = _joining(relation, flat, before)
            of = flat.streams[-1].name if flat.streams else None
            for piece in relation.using:
                name = piece.name()
                left, right = before.value(piece), Scope((visible[-1],)).value(piece)
                equal = Value((*left.inner, " = ", *right.inner), piece)
                conditions.append(Condition(equal, (left, right), of))
                shared[name.lower()] = _shared(relation.kind, left, right)
            for piece in relation.on.conjuncts() if relation.on is not None else ():
                self._no_aggregate(piece, "ON", "join first, and aggregate the results")
                conditions.append(condition_of(piece, scope, of))
            if relation.kind in (SEMI, ANTI):
                # Its columns are visible in its ON alone.
                visible.pop()
            flats.append(flat)
        return self._merged(select, flats, conditions, hints, aliases), Scope(
            tuple(visible), shared
        )

    def _merged(
        self,
        select: Select,
        flats: list[Flat],
        conditions: list[Condition],
        hints: Hints,
        aliases: list[str],
    ) -> Flat:
        """Several relations as one flat query."""
        done = next((flat.done for flat in flats if flat.done is not None), None)
        if done is not None and len(flats) > 1:
            raise refused(
                done.place,
                "the results of GROUP BY or DISTINCT cannot be joined",
                "join the streams first and group the results; or write the results somewhere and join "
                "what is there in a second query",
            )
        streams = tuple(stream for flat in flats for stream in flat.streams)
        lateness = {name: us for flat in flats for name, us in flat.lateness.items()}
        lateness |= _lateness(hints, flats, aliases)
        plan = hints.plan or next((flat.plan for flat in flats if flat.plan), None)
        whole = [*(one for flat in flats for one in flat.conditions), *conditions]
        return Flat(streams, tuple(whole), (), select.place, lateness, plan, done)

    def _relation(self, relation: Relation, known: Mapping[str, Query]) -> Flat:
        of = relation.of
        if isinstance(of, str) and of.lower() in known:
            of = known[of.lower()]
        if isinstance(of, Query):
            found = self.query(of, {} if isinstance(relation.of, str) else known)
            if isinstance(found, Done):
                name = self._unused(relation.alias or "results")
                outputs = tuple(
                    (one, Value((Column(name, one),), relation.place)) for one in found.names
                )
                return Flat((), (), outputs, relation.place, {}, done=found)
            return found
        registered = self.catalog.streams[of.lower()]
        name = self._unused(relation.alias)
        outputs = tuple(
            (one, Value((Column(name, one),), relation.place)) for one in registered.columns
        )
        stream = FlatStream(
            name, Rows(Read(of, relation.place)), registered.columns, registered.watermark,
            relation.place,
        )  # fmt: skip
        return Flat((stream,), (), outputs, relation.place, {})

    def _unused(self, name: str) -> str:
        """A name that no other stream of the statement has; case does not matter."""
        found, number = name, 2
        while found.lower() in self._taken:
            found, number = f"{name}_{number}", number + 1
        self._taken.add(found.lower())
        return found


def _check_names(relation: Relation, flat: Flat) -> None:
    """Rejects a subquery with two columns of one name."""
    names = [name.lower() for name, _ in flat.outputs if name is not None]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise refused(
            relation.place, f"two columns of {relation.alias or 'it'} are called {twice}",
            f"name one of them: {twice} AS other",
        )  # fmt: skip


def _common_kind(flats: list[Flat], at: int) -> str:
    """The type of a column of united streams; Spark finds that of others."""
    columns = [(flat, flat.outputs[at][1].column) for flat in flats]
    kinds = {COMPUTED if column is None else flat.kinds[column] for flat, column in columns}
    return kinds.pop() if len(kinds) == 1 else COMPUTED


def _inside(flat: Flat) -> Flat:
    """A relation whose conditions hold before it is joined."""
    if flat.outer is not None:
        raise refused(
            flat.outer.place,
            "the results of an outer join cannot be joined",
            "write all joins in one FROM",
        )
    return replace(flat, conditions=tuple(replace(one, of=INSIDE) for one in flat.conditions))


def _joining(relation: Relation, flat: Flat, before: Scope) -> Flat:
    """A relation with the kind of its join."""
    if relation.kind in COMBINING:
        return flat
    missing = [value for _, value in flat.outputs]
    if relation.kind in (RIGHT, FULL):
        missing += [value for one in before.relations for value in one.columns.values()]
    # Where a stream is missing, its columns are NULL; an expression need not be.
    if len(flat.streams) != 1 or any(value.column is None for value in missing):
        raise refused(
            relation.place,
            f"{relation.kind.upper()} JOIN of a query that joins, groups or computes is not supported",
            "select plain columns of one stream in the subquery, and compute in the SELECT around it",
        )
    return replace(flat, streams=(replace(flat.streams[0], kind=relation.kind),))


def _shared(kind: str, left: Value, right: Value) -> Value:
    """What a column of USING means after the join."""
    if kind == FULL:
        return Value(("coalesce(", *left.inner, ", ", *right.inner, ")"), left.place)
    return right if kind == RIGHT else left


def _expanded(items: tuple[Item, ...], scope: Scope) -> Iterator[tuple[Item, Value | None]]:
    """The items of a SELECT, with the columns behind each star."""
    for item in items:
        star = scope.star(item.expression)
        if star is None:
            yield item, None
        for name, value in star or ():
            yield Item(item.expression, name), Value(value.parts, item.expression)


def _projected_rows(flat: Flat, names: list[str]) -> Rows:
    [stream] = flat.streams
    filters = tuple(Named(one.place.text, one.value.bare) for one in flat.conditions)
    columns = tuple(
        Named(name, value.bare) for name, (_, value) in zip(names, flat.outputs, strict=True)
    )
    rows = stream.rows
    return replace(rows, filters=(*rows.filters, *filters), columns=columns)


def _lateness(hints: Hints, flats: list[Flat], aliases: list[str]) -> dict[str, int]:
    """The lateness of each stream, by its name in the flat query."""
    for alias, place in hints.places.items():
        if alias and alias not in aliases:
            raise refused(
                place, f"LATENESS names {alias}, which is not in FROM", f"use {', '.join(aliases)}"
            )
    found: dict[str, int] = {}
    for alias, flat in zip(aliases, flats, strict=True):
        late = hints.of(alias)
        if late is not None:
            found |= {stream.name: late for stream in flat.streams}
    return found

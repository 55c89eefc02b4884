"""What a SQL query means: the calls of the public API, as frozen values without Spark.

    StreamNode            one stream: a registered stream, or several united; its filters and columns
    JoinNode              streams joined by keys, windows, conditions
    DedupNode, GroupNode  over a stream, or over the results of one of these
    SelectNode            where and select over results

`spark/api/sql.py` makes the calls. All texts in nodes are Spark SQL in the user's words.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spillway.errors import PlanError
from spillway.plan.sql.query.text import Piece


@dataclass(frozen=True)
class Named:
    """An expression with the name of its column."""

    name: str
    text: str


@dataclass(frozen=True)
class Read:
    """A registered stream."""

    relation: str
    place: Piece = field(repr=False, compare=False)


@dataclass(frozen=True)
class Rows:
    """Rows computed one by one from a stream or from several united; no state."""

    of: Read | tuple[Rows, ...]
    #: Conditions over bare column names.
    filters: tuple[Named, ...] = ()
    #: None: all columns as they are.
    columns: tuple[Named, ...] | None = None
    #: Columns in addition, for keys that are expressions.
    more: tuple[Named, ...] = ()

    @property
    def relations(self) -> tuple[Read, ...]:
        """The registered streams that it reads."""
        if isinstance(self.of, Read):
            return (self.of,)
        return tuple(one for rows in self.of for one in rows.relations)


@dataclass(frozen=True)
class WindowNode:
    """The window of one stream of a join."""

    time: str
    window_us: int
    lateness_us: int

    def __post_init__(self) -> None:
        if self.window_us <= 0 or self.lateness_us < 0:
            raise PlanError(
                f"a window of {self.window_us} us with a lateness of {self.lateness_us} us is not valid",
                hint="report this query: its bounds should have been refused",
            )


@dataclass(frozen=True)
class StreamNode:
    """One stream by its name in the query."""

    name: str
    rows: Rows


@dataclass(frozen=True)
class MatchNode:
    """A condition over several streams of a join."""

    text: str
    streams: tuple[str, ...]
    #: The same or more in the user's words, for Spark.
    written: str
    #: Whether the join needs it to find partners; else Spark can also filter results by it.
    required: bool
    place: Piece = field(repr=False, compare=False)


@dataclass(frozen=True)
class JoinNode:
    """A join of two or more streams."""

    streams: tuple[StreamNode, ...]
    #: For each key, the column of each stream.
    keys: tuple[tuple[str, ...], ...]
    windows: tuple[WindowNode, ...] = ()
    matches: tuple[MatchNode, ...] = ()
    #: Conditions over results, in any Spark SQL.
    filters: tuple[str, ...] = ()
    #: "inner", "left", "right", "full", "semi" or "anti".
    how: str = "inner"
    #: Streams of an inner join that may be missing in a result.
    optional: tuple[str, ...] = ()
    plan: str | None = None
    place: Piece | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        widths = {len(key) for key in self.keys}
        if len(self.streams) < 2 or widths - {len(self.streams)}:
            raise PlanError(
                f"a join of {len(self.streams)} streams has keys of {sorted(widths)} columns",
                hint="every key has one column of each stream",
            )


@dataclass(frozen=True)
class DedupNode:
    """One row of each combination of values."""

    before: StreamNode | SelectNode
    keys: tuple[str, ...]


@dataclass(frozen=True)
class AggregateNode:
    """One aggregate of the public API."""

    name: str
    function: str
    #: None: count rows.
    of: str | None
    fraction: float | None = None
    #: The column that orders rows.
    by: str | None = None
    place: Piece | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class TimeWindowNode:
    """The time windows of a group-by; `slide_us` is None for windows that do not overlap."""

    #: The function that makes them, and the name of the column that has them.
    kind: str
    time: str
    length_us: int
    slide_us: int | None
    start_us: int
    lateness_us: int
    place: Piece = field(repr=False, compare=False)


@dataclass(frozen=True)
class GroupNode:
    """Aggregates by key."""

    before: StreamNode | SelectNode
    keys: tuple[str, ...]
    aggregates: tuple[AggregateNode, ...]
    window: TimeWindowNode | None = None


@dataclass(frozen=True)
class SelectNode:
    """Filters and columns over the results of a query."""

    before: JoinNode | DedupNode | GroupNode | SelectNode
    filters: tuple[str, ...] = ()
    #: None: all columns as they are.
    columns: tuple[Named, ...] | None = None


Node = JoinNode | DedupNode | GroupNode | SelectNode


@dataclass(frozen=True)
class Note:
    """Something to tell the user about a query."""

    text: str
    #: Whether it is likely to be a mistake.
    warns: bool = False


@dataclass(frozen=True)
class Planned:
    """A planned query: its calls, the names of its results, and what to tell the user."""

    node: Node
    #: The names of the columns as the user wrote them; None: Spark names the column.
    names: tuple[str | None, ...]
    notes: tuple[Note, ...] = ()

    @property
    def columns(self) -> tuple[Named, ...]:
        """The columns of the results."""
        assert isinstance(self.node, SelectNode)
        assert self.node.columns is not None
        return self.node.columns

    def with_columns(self, columns: tuple[Named, ...]) -> Planned:
        """The same query with other columns."""
        assert isinstance(self.node, SelectNode)
        return replace(self, node=replace(self.node, columns=columns))

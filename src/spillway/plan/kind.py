"""The kind of a join: which rows come out without partners, and who decides it.

SQL defines the kinds by a chain of joins of two, in the order of the streams. A left outer chain gives
every row of its first stream: `(a LEFT JOIN b ON ..) LEFT JOIN c ON ..`. A *decision* is one such chain:
when no partner can come for a row of its source, the operator joins the row along the chain, and gives
what has a NULL (operators/equi/outer.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

INNER, LEFT, RIGHT, FULL, SEMI, ANTI = "inner", "left", "right", "full", "semi", "anti"
#: The kinds of a join of two streams.
KINDS = (INNER, LEFT, RIGHT, FULL, SEMI, ANTI)
#: What SQL and Spark call them too.
ALIASES = {
    "left_outer": LEFT,
    "leftouter": LEFT,
    "right_outer": RIGHT,
    "rightouter": RIGHT,
    "outer": FULL,
    "full_outer": FULL,
    "fullouter": FULL,
    "left_semi": SEMI,
    "leftsemi": SEMI,
    "left_anti": ANTI,
    "leftanti": ANTI,
}


@dataclass(frozen=True)
class Decision:
    """A chain that gives the rows of one stream that stay without partners."""

    source: int
    #: The streams that the chain joins, in order.
    targets: tuple[int, ...]
    #: Those that may stay NULL; a row without partners in another one is no result.
    optional: frozenset[int]

    @property
    def keeps_all(self) -> bool:
        """Whether every row of the source comes out, also one that matches nothing."""
        return self.optional.issuperset(self.targets)


@dataclass(frozen=True)
class JoinKind:
    """What a join does with rows that have no partners."""

    how: str = INNER
    #: The streams that may be missing in a result of a left outer join, in declared order.
    optional: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The kind as people read it, and as checkpoints record it."""
        return f"{self.how} ({', '.join(self.optional)} optional)" if self.optional else self.how

    @property
    def waits(self) -> bool:
        """Whether some results are known only when no partner can come any more."""
        return self.how not in (INNER, SEMI)

    def outputs(self, streams: int) -> tuple[int, ...]:
        """Returns the streams whose columns are in the results."""
        return (0,) if self.how in (SEMI, ANTI) else tuple(range(streams))

    def decisions(self, names: Sequence[str]) -> tuple[Decision, ...]:
        """Returns the decisions of a join of these streams.

        Example:
            >>> JoinKind(LEFT, ("c",)).decisions("abc")
            (Decision(source=0, targets=(1, 2), optional=frozenset({2})),)
            >>> [one.source for one in JoinKind(FULL).decisions("ab")]
            [0, 1]
        """
        others = tuple(range(1, len(names)))
        optional = frozenset(map(list(names).index, self.optional)) or frozenset(others)
        left, right = Decision(0, others, optional), Decision(1, (0,), frozenset({0}))
        return {LEFT: (left,), ANTI: (left,), RIGHT: (right,), FULL: (left, right)}.get(
            self.how, ()
        )


#: The join that gives only rows with partners in all streams.
INNER_JOIN = JoinKind()

"""The keys of a join, from the equalities between its streams.

`a.k = b.k AND b.k = c.k` makes one class of equal columns with a column of each stream: a key of the
join. An equality that no key implies stays a condition. So keys never change a result either.

Columns of a class may have different types. With two streams Spark compares them as the join does, in
their common type. With more, Spark compares each pair in its own common type, so those equalities
also stay conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillway.plan.sql.expression import Column
from spillway.plan.sql.kinds import kind_of
from spillway.plan.sql.query.values import Value

#: The type of a key that is an expression; Spark decides.
COMPUTED = "computed"
#: Types of keys that conditions do not know.
_MORE = ("binary",)


@dataclass(frozen=True)
class Equality:
    """The condition that two columns of two streams are equal."""

    left: Column
    right: Column


@dataclass(frozen=True)
class Keys:
    """The keys of a join: for each, the column of each stream."""

    columns: tuple[Mapping[str, Column], ...]
    kinds: Mapping[Column, str]

    def implies(self, equality: Equality) -> bool:
        """Whether equal keys are all that the equality asks for."""
        pair = {equality.left, equality.right}
        for key in self.columns:
            members = set(key.values())
            if pair <= members:
                kinds = {self.kinds[one] for one in members}
                return len(members) == 2 or (len(kinds) == 1 and COMPUTED not in kinds)
        return False


def equality_of(sides: tuple[Value, Value] | None, kinds: Mapping[Column, str]) -> Equality | None:
    """The equality of two columns that a condition is; None: Spark casts one side, or it is more."""
    if sides is None:
        return None
    left, right = (side.column for side in sides)
    if left is None or right is None or left.stream == right.stream:
        return None
    return Equality(left, right) if _alike(kinds[left], kinds[right]) else None


def keys_of(
    streams: Sequence[str], equalities: Sequence[Equality], kinds: Mapping[Column, str]
) -> Keys:
    """The keys: classes of equal columns that have a column of every stream."""
    found = []
    for some in _classes(equalities):
        first: dict[str, Column] = {}
        for column in some:
            first.setdefault(column.stream, column)
        if set(first) == set(streams):
            found.append({stream: first[stream] for stream in streams})
    return Keys(tuple(found), kinds)


def _classes(equalities: Sequence[Equality]) -> list[list[Column]]:
    """Columns that are equal by transitivity, in the order in which they are written."""
    classes: list[list[Column]] = []
    for one in equalities:
        joined = [some for some in classes if one.left in some or one.right in some]
        merged = list(dict.fromkeys([c for some in joined for c in some] + [one.left, one.right]))
        at = classes.index(joined[0]) if joined else len(classes)
        classes = [some for some in classes if some not in joined]
        classes.insert(at, merged)
    return classes


def _alike(one: str, other: str) -> bool:
    """Whether values of two types can be equal keys: numbers, or values of one type."""
    if COMPUTED in (one, other):
        return True
    kinds = [kind_of(text) for text in (one, other)]
    if one == other:
        return kinds[0].known or one in _MORE
    return all(kind.number for kind in kinds)

"""SQL conditions with the types of everything in them, as data: `Read`, `Constant`, `Applied`.

plan/sql/typed.py makes them; operators/predicates/evaluation.py and plan/sql/bands.py read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from spillway.plan.sql.expression import Column
from spillway.plan.sql.kinds import INTERVAL, Kind

COMPARISONS = ("<", "<=", ">", ">=", "=", "!=")


@dataclass(frozen=True)
class Read:
    """The values of a column."""

    column: Column
    kind: Kind


@dataclass(frozen=True)
class Constant:
    """One value for all rows: a date in days, a timestamp in microseconds; None is NULL."""

    value: int | float | Decimal | str | bool | None
    kind: Kind


@dataclass(frozen=True)
class Applied:
    """The result of an operator or a function; "to" converts a value to another type."""

    name: str
    of: tuple[Typed, ...]
    kind: Kind


Typed: TypeAlias = Read | Constant | Applied


@dataclass(frozen=True)
class SqlCondition:
    """A condition: its text, and what the text means."""

    text: str
    root: Typed

    @property
    def columns(self) -> frozenset[Column]:
        """The columns that it reads."""
        return frozenset(_columns(self.root))


def _columns(one: Typed) -> Iterator[Column]:
    if isinstance(one, Read):
        yield one.column
    for part in parts_of(one):
        yield from _columns(part)


def parts_of(one: Typed) -> tuple[Typed, ...]:
    """The operands of a node."""
    return one.of if isinstance(one, Applied) else ()


def shown(one: Typed) -> str:
    """A node as error messages show it, with its type."""
    match one:
        case Read(column=column, kind=kind):
            return f"{column.stream}.{column.name} ({kind})"
        case Constant(value=None):
            return "NULL"
        case Constant(kind=kind) if kind.time or kind == INTERVAL:
            return f"a constant ({kind})"
        case Constant(value=value, kind=kind):
            return f"{value!r} ({kind})" if isinstance(value, str) else f"{value} ({kind})"
        case Applied(name="to", of=(inner,)):
            return shown(inner)
        case Applied(name=name, kind=kind):
            return f"{name}(...) ({kind})"

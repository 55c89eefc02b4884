"""Shapes: the order in which streams are joined, and the states stored on the way.

A shape is a tree: its leaves are streams, and every inner node joins its children. An inner node
below the root stores what it produces as an intermediate state: `((A B) (C D))` stores A+B and C+D,
`((A B C) D)` stores A+B+C, and `(A B C D)`, the n-way join, stores only its streams.

The name of a state lists only the streams of its combinations, so shapes with a state of the same
name share it (PLANS 4.1, state matching). Children are sorted by their first names, so equal shapes
are equal values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from spillway.codec import store_as
from spillway.errors import QueryError

_TOKEN = re.compile(r"[()]|[^\s()]+")
_FORM = 'write every stream once, in brackets of two or more, for example "((a b) c)"'


@dataclass(frozen=True)
class Shape:
    """A join of streams and of smaller shapes.

    Example:
        >>> str(Shape(("C", Shape(("B", "A")))))
        '((A B) C)'
    """

    children: tuple[Shape | str, ...]

    def __post_init__(self) -> None:
        if len(self.children) < 2:
            raise QueryError(
                f"a shape joins two inputs or more, not {len(self.children)}", hint=_FORM
            )
        names = [name for child in self.children for name in streams_of(child)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise QueryError(f"stream {twice[0]} is in a shape twice", hint=_FORM)
        ordered = sorted(self.children, key=lambda child: streams_of(child)[0])
        object.__setattr__(self, "children", tuple(ordered))

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """The joined streams, sorted."""
        return tuple(sorted(name for child in self.children for name in streams_of(child)))

    @property
    def name(self) -> str:
        """The name of its state."""
        return state_name(self.streams)

    def inner(self) -> Iterator[Shape]:
        """The intermediate states, the smaller ones first."""
        for child in self.children:
            if isinstance(child, Shape):
                yield from child.inner()
                yield child

    def dissolved(self, names: Collection[str]) -> Shape:
        """The shape without some of its intermediate states: the node above joins their children.

        Example:
            >>> str(parse("(((A B) C) D)").dissolved(["A+B+C"]))
            '((A B) C D)'
        """
        children: list[Shape | str] = []
        for child in self.children:
            if isinstance(child, str):
                children.append(child)
            else:
                less = child.dissolved(names)
                children += less.children if child.name in names else [less]
        return Shape(tuple(children))

    def __str__(self) -> str:
        return f"({' '.join(str(child) for child in self.children)})"


def streams_of(child: Shape | str) -> tuple[str, ...]:
    """The streams of a child of a shape."""
    return child.streams if isinstance(child, Shape) else (child,)


def state_name(streams: Iterable[str]) -> str:
    """The name of the state of some streams.

    Example:
        >>> state_name(["B", "A"])
        'A+B'
    """
    return "+".join(sorted(streams))


def flat(streams: Iterable[str]) -> Shape:
    """The shape of the n-way join."""
    return Shape(tuple(streams))


def left_deep(streams: Sequence[str]) -> Shape:
    """The shape that joins streams one by one.

    Example:
        >>> str(left_deep("ABCD"))
        '(((A B) C) D)'
    """
    shape = Shape(tuple(streams[:2]))
    for name in streams[2:]:
        shape = Shape((shape, name))
    return shape


def parse(text: str) -> Shape:
    """A shape from its text.

    Example:
        >>> [state.name for state in parse("((C D) (A B))").inner()]
        ['A+B', 'C+D']
    """
    tokens = _TOKEN.findall(text)
    shape, rest = _parsed(tokens, text)
    if rest or isinstance(shape, str):
        raise _unreadable(text)
    return shape


store_as(Shape, str, str, parse)


def _parsed(tokens: Sequence[str], text: str) -> tuple[Shape | str, Sequence[str]]:
    if not tokens or tokens[0] == ")":
        raise _unreadable(text)
    if tokens[0] != "(":
        return tokens[0], tokens[1:]
    children, rest = [], tokens[1:]
    while rest and rest[0] != ")":
        child, rest = _parsed(rest, text)
        children.append(child)
    if not rest:
        raise _unreadable(text)
    return Shape(tuple(children)), rest[1:]


def _unreadable(text: str) -> QueryError:
    return QueryError(
        f"{text!r} is not a valid join shape",
        hint='write streams in brackets, two or more in each, for example "((A B) (C D))"',
    )


def binary_shapes(streams: Sequence[str]) -> Iterator[Shape | str]:
    """All binary trees over some streams, each once: (2n - 3)!! of them.

    Example:
        >>> [str(shape) for shape in binary_shapes("ABC")]
        ['(A (B C))', '((A B) C)', '((A C) B)']
    """
    if len(streams) == 1:
        yield streams[0]
        return
    # The first stream stays on the left, so that every tree appears once.
    first, *others = streams
    for chosen in range(2 ** len(others) - 1):
        left = [first, *(one for at, one in enumerate(others) if chosen >> at & 1)]
        right = [one for at, one in enumerate(others) if not chosen >> at & 1]
        for a in binary_shapes(left):
            for b in binary_shapes(right):
                yield Shape((a, b))

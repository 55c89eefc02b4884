"""Splits work into portions of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def in_portions(
    items: Iterable[int], sizes: Iterable[int], bound: int
) -> Iterator[tuple[list[int], int]]:
    """Yields items in portions, at least one each, with the size of the portion.

    Example:
        >>> list(in_portions([7, 8, 9], [5, 5, 5], 10))
        [([7, 8], 10), ([9], 5)]
    """
    held: list[int] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if held and total + size > bound:
            yield held, total
            held, total = [], 0
        held.append(item)
        total += size
    if held:
        yield held, total

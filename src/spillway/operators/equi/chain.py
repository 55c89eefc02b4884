"""A chain of outer joins: rows of one stream, joined with the others in a given order.

This is SQL's `((a LEFT JOIN b) LEFT JOIN c)` for given rows of `a`, as a depth-first expansion like
that of a term (operators/equi/term.py). A combination that finds no partner in an optional stream goes
on without it. Where the order of an inner join is free, that of a chain is part of its meaning: `c`
joins the rows that are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from spillway.operators.equi.term import Block, Term, extended
from spillway.operators.stats import OperatorStats


class Chain(Term):
    """Rows of one stream against given rows of the others, in the order of a chain."""

    def unmatched(self, targets: Sequence[int], optional: Collection[int]) -> Iterator[Block]:
        """Yields the combinations that lack an optional stream."""
        yield from self._joined(self.first_block(), tuple(targets), frozenset(optional))

    def matched(self, target: int) -> NDArray[np.bool_]:
        """Returns which driving rows have a partner in a stream."""
        block = self.first_block()
        found = np.zeros(len(block.source), np.bool_)
        for pairs in self.blocks_of_pairs(block, target):
            found[pairs.left] = True
        return found

    def _joined(
        self, block: Block, targets: tuple[int, ...], optional: frozenset[int]
    ) -> Iterator[Block]:
        if not targets:
            yield block
            return
        target, rest = targets[0], targets[1:]
        found = np.zeros(len(block.source), np.bool_)
        whole = len(block.found) == len(self.sides) - 1 - len(targets)
        for pairs in self.blocks_of_pairs(block, target):
            found[pairs.left] = True
            # What is whole at the end of the chain came out when its last row came.
            if rest or not whole:
                yield from self._joined(
                    extended(block, target, pairs, sort=bool(rest)), rest, optional
                )
        if target in optional and not found.all():
            yield from self._joined(block.take(np.flatnonzero(~found)), rest, optional)


def unmeasured(stats: OperatorStats) -> OperatorStats:
    """Returns statistics that nobody reads: rows that are decided have probed before."""
    return OperatorStats(stats.groups)

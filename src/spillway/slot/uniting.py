"""Uniting: keeps the number of a group's parts on disk logarithmic.

A group that spills in every batch gets a part in every batch (state/layout/generations.py). So the
slot unites parts of similar size. Two parts may become one only if no result between them is
missing:

    an additive operator   gives the results between the united parts now: cleanup of a few parts
    a cumulative operator  unites parts that all wait for their results, never the oldest
    any other operator     misses nothing

The results that are missing between the united part and others are as before, so each comes once.
The united parts of all groups become one new generation, in runs that they share.

Parts: sizes in bytes have classes, each `FAN` times wider than the one below. When a class has `FAN`
    parts, they all become one, of a higher class. So a class has fewer than `FAN` parts, unless the
    slot is behind, and a row is rewritten once per class: as in compaction
    (state/layout/compaction.py).

Effort: a batch unites `UNITE_BYTES`, or twice what the newest generation has, whichever is more, and
    at least one group. The rest waits; then more parts become one at a time, so a slot that is behind
    catches up with less work. Known limitation: the number of results between parts has no bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from spillway.metrics.groups import Ints
from spillway.operators.cumulative import Cumulative
from spillway.operators.operator import Additive, Keeping, Operator, Work
from spillway.operators.stats import OperatorStats
from spillway.slot.cleanup import between
from spillway.state.slot.state import SlotState

#: Parts of similar size that become one: as many as layers in a merge.
FAN = 8
#: Bytes of parts that one batch may always unite.
UNITE_BYTES = 64 << 20


def alike(sizes: Sequence[int], fan: int | None = None) -> tuple[int, ...]:
    """Returns the parts to unite: all of the lowest class with at least `FAN`; none: ().

    Example:
        >>> alike([900, 4, 3, 5, 800], fan=3)
        (1, 2, 3)
    """
    fan = FAN if fan is None else fan
    classes: dict[int, list[int]] = {}
    for at, size in enumerate(sizes):
        classes.setdefault(_class_of(size, fan), []).append(at)
    return next((tuple(classes[one]) for one in sorted(classes) if len(classes[one]) >= fan), ())


def _class_of(size: int, fan: int) -> int:
    number = 0
    while size >= fan:
        size, number = size // fan, number + 1
    return number


class Uniting:
    """Unites parts of a slot's groups at the start of one batch."""

    def __init__(self, operator: Operator, state: SlotState, made_bytes: int) -> None:
        self._operator = operator
        self._state = state
        self._made_bytes = made_bytes
        self._cumulative = isinstance(operator, Cumulative)
        #: The groups that have united parts, and the bytes of these.
        self.groups: tuple[int, ...] = ()
        self.bytes = 0

    def results(
        self, counts: Ints, staying: Collection[int], stats: OperatorStats
    ) -> Iterator[pa.RecordBatch]:
        """Unites parts, and yields the results between them.

        `counts` has the parts on disk of each group; groups in `staying` are left alone.
        """
        crowded = [g for g in np.flatnonzero(counts >= FAN).tolist() if g not in staying]
        if not crowded:
            return
        sizes = self._state.parts.part_sizes()
        newest = sizes[max(sizes)].sum() if sizes else 0
        budget = max(UNITE_BYTES, 2 * int(newest))
        chosen: dict[int, list[int]] = {}
        for group in sorted(crowded, key=lambda group: (-int(counts[group]), group)):
            numbers = self._chosen({at: int(of[group]) for at, of in sizes.items() if of[group]})
            if numbers and self.bytes < budget:
                yield from self._between(group, numbers, stats)
                chosen[group] = numbers
                self.bytes += sum(int(sizes[number][group]) for number in numbers)
        if chosen:
            self._state.parts.unite(chosen, waiting=self._cumulative)
        self.groups = tuple(sorted(chosen))

    def _chosen(self, sizes: Mapping[int, int]) -> list[int]:
        """Returns the generations whose parts of a group become one; `sizes` has all its parts."""
        numbers = sorted(sizes)[1:] if self._cumulative else sorted(sizes)
        return [numbers[at] for at in alike([sizes[number] for number in numbers])]

    def _between(
        self, group: int, numbers: Sequence[int], stats: OperatorStats
    ) -> Iterator[pa.RecordBatch]:
        """Yields the results between parts of a group, if any are missing."""
        if isinstance(self._operator, Additive):
            parts = self._state.parts
            gaps = parts.gaps_of(group, numbers)
            keeping = Keeping(parts.keep_on_disk, gaps, self._made_bytes)
            work = Work(stats, self._state.manifest.selectivity, keeping)
            yield from between(self._operator, parts.some_of(group, numbers), work)

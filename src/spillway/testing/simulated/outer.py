"""Outer, semi and anti joins, with SQL's definition by brute force as their oracle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from spillway.operators.equi.outer import OuterJoin
from spillway.operators.operator import Operator
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.conditions import predicate
from spillway.plan.kind import ANTI, SEMI, Decision, JoinKind
from spillway.testing.simulated.joins import COLUMNS, Joined, near
from spillway.testing.simulated.rows import Gave, Row, value_of

#: The types of the columns that the user sees.
_TYPES = (pa.int64(), pa.timestamp("us"), pa.int64(), pa.string())
#: The row of each stream that is there.
_Found = dict[int, Row]


@dataclass
class Outer(Joined):
    """A join that gives rows without partners, when the watermark says that none can come."""

    kind: JoinKind
    #: Whether conditions filter the pairs of the first stream with each other one.
    filtered: bool = False

    def operator(self, block_rows: int) -> Operator:
        """The operator of the product."""
        names = {stream.name: COLUMNS for stream in self.streams}
        predicates = []
        if self.filtered:
            predicates = [
                bound(f"abs(s0.v % 5 - s{at}.v % 5) < 3", (), names, at)
                for at in range(1, len(names))
            ]
            predicates.append(bound(predicate(near), ("s0", "s1"), names, len(names)))
        types = [_TYPES] * len(names)
        return OuterJoin(self.streams, self.kind, types, block_rows, predicates)

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """The values of the rows of each result; None for a stream that is missing."""
        for row in batch.to_pylist():
            there = [one for one in row.values() if one is not None]
            assert all(value_of(one["w"]) == one["v"] for one in there)
            yield tuple(None if one is None else one["v"] for one in row.values())

    def check(self, gave: Gave) -> None:
        """Compares with SQL's definition over all rows that the watermark has decided."""
        assert gave.results == Counter(self._wanted(gave))

    def _wanted(self, gave: Gave) -> Iterator[tuple[int | None, ...]]:
        found: dict[tuple[int, int | None], list[Row]] = defaultdict(list)
        for _, row in gave.accepted:
            found[row.stream, row.key].append(row)
        names = [stream.name for stream in self.streams]
        outputs = self.kind.outputs(len(names))
        for one in self._complete(found):
            yield tuple(one[at].value for at in outputs)
        for decision in self.kind.decisions(names):
            apart = gave.apart if decision.keeps_all else ()
            alone = ({row.stream: row} for row in apart if row.stream == decision.source)
            for one in (*alone, *self._lacking(decision, found, gave.watermark_us)):
                yield tuple(one[at].value if at in one else None for at in outputs)

    def _complete(self, found: dict[tuple[int, int | None], list[Row]]) -> Iterator[_Found]:
        """What needs a partner in every stream."""
        if self.kind.how == ANTI:
            return
        whole = Decision(0, tuple(range(1, len(self.windows))), frozenset())
        for row in _of(found, 0):
            joined = self._chain(whole, row, found)
            yield from joined[:1] if self.kind.how == SEMI else joined

    def _lacking(
        self,
        decision: Decision,
        found: dict[tuple[int, int | None], list[Row]],
        watermark: int | None,
    ) -> Iterator[_Found]:
        window = self.windows[decision.source]
        assert window is not None
        for row in _of(found, decision.source):
            if watermark is not None and row.at + window <= watermark:
                joined = self._chain(decision, row, found)
                yield from (one for one in joined if len(one) < len(self.windows))

    def _chain(
        self, decision: Decision, row: Row, found: dict[tuple[int, int | None], list[Row]]
    ) -> list[_Found]:
        """A row, joined along the chain."""
        joined: list[_Found] = [{decision.source: row}]
        for target in decision.targets:
            longer: list[_Found] = []
            for one in joined:
                pairs = [{**one, target: other} for other in found[target, row.key]]
                fitting = [pair for pair in pairs if self._fits(pair)]
                longer += fitting or ([one] if target in decision.optional else [])
            joined = longer
        return joined

    def _fits(self, rows: _Found) -> bool:
        last = max(row.at for row in rows.values())
        windows = ((row, self.windows[at]) for at, row in rows.items())
        in_time = all(w is None or last - row.at < w for row, w in windows)
        if not self.filtered or 0 not in rows:
            return in_time
        mine = rows[0].value
        return in_time and all(abs(mine % 5 - one.value % 5) < 3 for one in rows.values())


def _of(found: dict[tuple[int, int | None], list[Row]], stream: int) -> list[Row]:
    return [row for (number, _), rows in found.items() if number == stream for row in rows]

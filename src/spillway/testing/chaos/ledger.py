"""The input and output of every step of every stage, and the content of the sink.

A repeated step must give the same rows: after a crash, in another attempt, or from a driver that was
paused meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from spillway.testing.simulated.rows import Row


@dataclass(frozen=True)
class Entry:
    """One batch or round of a stage."""

    batch: int
    rows: tuple[Row, ...]
    output: Counter[Hashable]


@dataclass
class Ledger:
    """All steps, by stage and number."""

    stages: int
    steps: dict[tuple[int, int], Entry] = field(default_factory=dict)
    #: The content of the sink, by number.
    sink: dict[int, Counter[Hashable]] = field(default_factory=dict)
    #: The numbers that the sink was asked to write, with any outcome.
    offered: set[int] = field(default_factory=set)
    #: What went wrong, in words.
    differences: list[str] = field(default_factory=list)
    #: How many result rows were compared with others.
    compared: int = 0

    def note_step(self, at: int, number: int, step: Entry) -> None:
        """Records a step that was evaluated to its end."""
        known = self.steps.setdefault((at, number), step)
        if known is not step:
            self._same(f"step {number} of stage {at}", known.output, step.output)

    def note_output(self, number: int, output: Counter[Hashable]) -> None:
        """Records a step that the sink has taken."""
        last = max(self.sink, default=-1)
        if number > last + 1:
            self.differences.append(f"the sink got number {number} after {last}")
        if number in self.sink:
            self._same(f"number {number} of the sink", self.sink[number], output)
        self.sink[number] = output

    def _same(self, what: str, before: Counter[Hashable], now: Counter[Hashable]) -> None:
        self.compared += sum(now.values())
        if before != now:
            self.differences.append(f"{what} was repeated: {described(before, now)}")


def described(wanted: Counter[Hashable], found: Counter[Hashable]) -> str:
    """The difference of two multisets in words."""
    missing, more = wanted - found, found - wanted
    parts = [_few("missing", missing), _few("too many", more)]
    return ", ".join(part for part in parts if part)


def _few(what: str, rows: Counter[Hashable]) -> str:
    some = sorted(map(str, rows.elements()))
    return f"{len(some)} rows {what} ({'; '.join(some[:3])})" if some else ""


@dataclass(frozen=True)
class StageHistory:
    """The input and output of a stage, as its oracle reads them."""

    accepted: Sequence[tuple[int, Row]]
    said: Sequence[tuple[int, Counter[Hashable]]]
    watermark_us: int | None
    apart: Sequence[Row] = ()

    @property
    def results(self) -> Counter[Hashable]:
        """All results."""
        return sum((output for _, output in self.said), Counter())

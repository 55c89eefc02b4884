"""The figures of many seeds: runs, disasters, compared rows, differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spillway.testing.chaos.schedule import KINDS
from spillway.testing.chaos.world import Outcome


@dataclass
class Report:
    """Sums over outcomes."""

    seeds: int = 0
    disasters: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    #: The failing seeds, each with its first difference.
    failed: dict[int, str] = field(default_factory=dict)
    #: Those that were not printed yet.
    news: dict[int, str] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Counts one seed."""
        self.seeds += 1
        self.disasters += outcome.disasters
        for name in ("rows", "results", "compared", "starts", "calls", "batches"):
            self.totals[name] += getattr(outcome, name)
        if outcome.differences:
            self.failed[outcome.seed] = self.news[outcome.seed] = outcome.differences[0]

    def document(self) -> dict[str, Any]:
        """The figures as plain data."""
        return {
            "seeds": self.seeds,
            "disasters": {kind: self.disasters[kind] for kind in KINDS},
            "batches": self.totals["batches"],
            "starts": self.totals["starts"],
            "store_calls": self.totals["calls"],
            "rows_in": self.totals["rows"],
            "rows_out": self.totals["results"],
            "rows_compared": self.totals["compared"],
            "differences": len(self.failed),
            "failed": {str(seed): what for seed, what in sorted(self.failed.items())},
        }

    def lines(self) -> Iterable[str]:
        """The same for people."""
        found = self.document()
        struck = ", ".join(f"{kind} {n}" for kind, n in found["disasters"].items() if n)
        yield f"{found['seeds']} seeds, {found['batches']} batches, {found['starts']} starts"
        yield f"{sum(self.disasters.values())} disasters: {struck or 'none'}"
        yield f"{found['store_calls']} calls to the store"
        yield (
            f"{found['rows_in']} rows in, {found['rows_out']} rows out, "
            f"{found['rows_compared']} rows compared"
        )
        yield f"{found['differences']} seeds with differences"

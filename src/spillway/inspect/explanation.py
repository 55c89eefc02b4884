"""Explains the shape of a slot's join, for `query.explain()` and `spillway inspect`.

Costs are those of policies/shape/costs.py, in lookups per second, computed again from the
measurements of the last batch in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spillway.coordinator.batch.committed import Committed
from spillway.ids import SlotId
from spillway.policies.shape.shaping import NWAY, Shaping, SlotShape
from spillway.state.layout.gaps import both
from spillway.state.manifest.manifest import Manifest


@dataclass(frozen=True)
class ShapeReport:
    """The shape of one slot's join, and the reason."""

    slot: int
    known: SlotShape
    #: Bytes of each intermediate state, in memory and on disk.
    made: Mapping[str, int]
    #: The fraction of the slot's hashes in which each is still missing.
    gaps: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Returns plain data."""
        rates, proposal = self.known.rates, self.known.proposal
        return {
            "shape": str(self.known.shape),
            "costs": {
                str(shape): {"work": cost.work, "memory_bytes": cost.memory_bytes}
                for shape, cost in self.known.costs().items()
            },
            "streams": [] if rates is None else [dict(vars(one)) for one in rates.streams],
            "selectivities": [
                {"streams": list(pair), "selectivity": part}
                for pair, part in (rates.selectivity if rates else {}).items()
            ],
            "results_per_s": None if rates is None else rates.results,
            "made": dict(self.made),
            "gaps": dict(self.gaps),
            "proposal": None
            if proposal.shape is None
            else {"shape": str(proposal.shape), "times": proposal.times},
        }

    def lines(self) -> list[str]:
        """Returns the same as text lines."""
        costs, rates, shape = self.known.costs(), self.known.rates, self.known.shape
        if rates is None:
            return [f"slot {self.slot} {shape}, not measured yet", *self._states()]
        mine, *others = costs.items()
        base = mine[1].work or 1.0
        told = (f"{other} {cost.work / base:.2f} x" for other, cost in others)
        streams = (
            f"{s.name} {s.rate:.0f} rows/s, {s.rows:.0f} rows of {s.row_bytes:.0f} bytes"
            for s in rates.streams
        )
        pairs = (f"{'~'.join(pair)} {part:.3g}" for pair, part in rates.selectivity.items())
        return [
            f"slot {self.slot} {shape}, cost {mine[1].work:.0f} lookups/s",
            f"  others {', '.join(told)}",
            f"  rates  {'; '.join(streams)}",
            f"  selectivity {', '.join(pairs)}; {rates.results or 0:.0f} results/s",
            *self._states(),
        ]

    def _states(self) -> list[str]:
        told = []
        for name, size in self.made.items():
            gap = self.gaps.get(name, 0.0)
            told.append(f"{name} {size} bytes" + (f", {gap:.0%} still missing" if gap else ""))
        return [f"  made   {'; '.join(told)}"] if told else []


def shape_report(
    state: Committed, slot: int, manifest: Manifest | None, inputs: int
) -> ShapeReport | None:
    """Returns what is known about the shape of a slot; None if all slots use the n-way join."""
    if slot >= len(state.shapes):
        return None
    made, gaps = {}, {}
    if manifest is not None:
        here = state.routing.ranges_of(SlotId(slot))
        width = sum(one.hi - one.lo for one in here) or 1
        for at, name in enumerate(manifest.made):
            sizes = (manifest.state_bytes, manifest.disk_bytes)
            made[name] = sum(size[inputs + at] for size in sizes if inputs + at < len(size))
            missing = both(manifest.gaps[at], here) if manifest.gaps else ()
            gaps[name] = sum(one.hi - one.lo for one in missing) / width
    return ShapeReport(slot, state.shapes[slot], made, gaps)


def plan_line(shaping: Shaping) -> str:
    """Describes the plan of the query in one line."""
    if shaping.given is not None:
        return f'shape "{shaping.given}" in every slot'
    if shaping.kind == NWAY:
        return f"{NWAY}: joins all streams at once"
    return f"{shaping.kind}: every slot has its own shape"

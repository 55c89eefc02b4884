"""The terms in which PSP's figures are given, and what their lines have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from spillway_lab.reproduce.flux.terms import SimulatedFigure
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.simulation import RingResult
from spillway_lab.workloads.images import PIXELS

PspFigure = SimulatedFigure[RingScenario, RingResult]
PspRuns = Mapping[str, Mapping[float, RingScenario]]
PspResults = Mapping[str, Mapping[float, RingResult]]

#: Slots of the rings in 8.2.
LENGTHS = tuple(range(4, 20))
PSP = "PSP"
#: Slices for each slot: with a whole number of them slots have the same, as the paper's even cut has it.
_SLICES = 16
#: Two runs of equal scenarios are equal; others differ by chance as well, by less than this part.
NOISE = 0.03


def ring(slots: int, found: float = 0.1) -> RingScenario:
    """A ring as in 8.2: one row at a time, and nothing changes."""
    return RingScenario("psp", slots=slots, found=found, groups=_SLICES * slots)


@dataclass(frozen=True)
class Setting:
    """Of which images a ring is, how they get to the next slot, and how many are in it at a time."""

    size: str = "middle"
    network: str = "packets"
    interleave: int = 1

    @property
    def name(self) -> str:
        """What it is called.

        Example:
            >>> Setting("small", "links", 4).name
            'small, links, 4 at a time'
        """
        return f"{self.size}, {self.network}, {self.interleave} at a time"

    def ring(self, slots: int, found: float = 0.1) -> RingScenario:
        """A ring as in 8.2: what a pair costs is in proportion to the pixels."""
        free, times = ring(slots, found), PIXELS[self.size] / PIXELS["middle"]
        return free.changed(
            pair_s=free.pair_s * times,
            row_bytes=round(free.row_bytes * times),
            network=self.network,
            interleave=self.interleave,
        )


def arriving(scenario: RingScenario) -> float:
    """Rows of all streams that come in a second."""
    return scenario.streams * scenario.rate


def milliseconds(found: RingResult) -> float:
    """The mean response of all results."""
    return found.totals["response_s"] * 1e3


def kept(found: RingResult) -> float:
    """Rows that all slots keep together, on average over the run."""
    return found.totals["rows"]


def rows_of_windows(scenario: RingScenario) -> float:
    """Rows that the windows have on average over a run that begins with none."""
    filling = scenario.window_s / 2 / scenario.seconds
    return scenario.streams * scenario.rate * scenario.window_s * (1 - filling)


def never_falls(values: list[float]) -> bool:
    """Whether no value is below the one before, but for chance."""
    return all(after >= (1 - NOISE) * before for before, after in pairwise(values))

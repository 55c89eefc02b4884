"""The terms of PSP's figures, and what their lines share."""

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
#: Slices per slot: a whole number gives all slots the same share, as in the paper's even cut.
_SLICES = 16
#: Runs of one scenario are identical; runs of different ones differ by chance too, by less than this
#: fraction.
NOISE = 0.03


def ring(slots: int, found: float = 0.1) -> RingScenario:
    """A ring as in 8.2: one row at a time, without changes."""
    return RingScenario("psp", slots=slots, found=found, groups=_SLICES * slots)


@dataclass(frozen=True)
class Setting:
    """The image size of a ring, its network, and the number of rows in the ring at a time."""

    size: str = "middle"
    network: str = "packets"
    interleave: int = 1

    @property
    def name(self) -> str:
        """The name of the setting.

        Example:
            >>> Setting("small", "links", 4).name
            'small, links, 4 at a time'
        """
        return f"{self.size}, {self.network}, {self.interleave} at a time"

    def ring(self, slots: int, found: float = 0.1) -> RingScenario:
        """A ring as in 8.2; the cost of a pair is proportional to its pixels."""
        free, times = ring(slots, found), PIXELS[self.size] / PIXELS["middle"]
        return free.changed(
            pair_s=free.pair_s * times,
            row_bytes=round(free.row_bytes * times),
            network=self.network,
            interleave=self.interleave,
        )


def arriving(scenario: RingScenario) -> float:
    """Rows of all streams that arrive in a second."""
    return scenario.streams * scenario.rate


def milliseconds(found: RingResult) -> float:
    """The mean response of all results."""
    return found.totals["response_s"] * 1e3


def kept(found: RingResult) -> float:
    """Rows that all slots store together, on average over the run."""
    return found.totals["rows"]


def rows_of_windows(scenario: RingScenario) -> float:
    """Rows in the windows, on average over a run that starts with empty windows."""
    filling = scenario.window_s / 2 / scenario.seconds
    return scenario.streams * scenario.rate * scenario.window_s * (1 - filling)


def never_falls(values: list[float]) -> bool:
    """Whether no value is below the one before, within chance (`NOISE`)."""
    return all(after >= (1 - NOISE) * before for before, after in pairwise(values))

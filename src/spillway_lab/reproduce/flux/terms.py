"""The terms of simulated figures: lines of points, each from a simulated run.

FLUX itself measured on a simulated cluster (section 3), so its own parameters apply; PLANS had ten
machines, and PSP twenty. A line is either one run over time, or a point from each of several runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from spillway_lab.simulator.cluster.scenario import Scenario
from spillway_lab.simulator.cluster.simulation import Result
from spillway_lab.simulator.join.scenario import JoinScenario


class Described(Protocol):
    """What is simulated."""

    def to_json(self) -> dict[str, Any]:
        """Plain data; what is equal there is the same run."""


class Simulated(Protocol):
    """The outcome of a simulation."""

    @property
    def series(self) -> Mapping[str, tuple[float, ...]]:
        """Points over time, by name; one of them is "second"."""

    @property
    def totals(self) -> Mapping[str, float]:
        """Numbers of the whole run; one of them is "moves"."""

    @property
    def violations(self) -> tuple[str, ...]:
        """What its checks found; empty if nothing is wrong."""


S = TypeVar("S", bound=Described)
R = TypeVar("R", bound=Simulated)

#: The runs of each line, by their places on the x axis; over time there is one, at 0.
Runs = Mapping[str, Mapping[float, Scenario]]
#: The same of joins (PLANS).
JoinRuns = Mapping[str, Mapping[float, JoinScenario]]
#: Runs, once run.
Results = Mapping[str, Mapping[float, Result]]
#: The points of each line.
Points = Mapping[str, Mapping[float, float]]
#: The measurements, and whether they support the claim.
Verdict = tuple[dict[str, Any], bool]


@dataclass(frozen=True)
class SimulatedFigure(Generic[S, R]):
    """One figure of FLUX, or of another paper, whose runs are simulated."""

    name: str
    title: str
    claim: str
    #: What the paper reports, in its own numbers or words.
    paper: str
    #: The axes, in words.
    x: str
    y: str
    runs: Callable[[], Mapping[str, Mapping[float, S]]]
    #: The y of a run's point; or the name of the series that is shown over time.
    point: Callable[[R], float] | str
    judge: Callable[[Points, Mapping[str, Mapping[float, R]]], Verdict]
    #: What was measured, in a line.
    words: Callable[[Mapping[str, Any]], str]
    setup: str = ""
    log_x: bool = False
    log_y: bool = False
    #: The names of places on the x axis, where they are not numbers.
    names: Mapping[float, str] = field(default_factory=dict)
    #: Brings points to a common measure.
    scaled: Callable[[Points], Points] = lambda points: points
    #: Runs that no line shows; the judge gets them with the others.
    others: Callable[[], Mapping[str, Mapping[float, S]]] = dict

    def points(self, results: Mapping[str, Mapping[float, R]]) -> Points:
        """The lines, from their runs."""
        if isinstance(self.point, str):
            return {line: _over_time(by_x[0], self.point) for line, by_x in results.items()}
        points = {
            line: {x: self.point(found) for x, found in by_x.items()}
            for line, by_x in results.items()
        }
        return {
            line: {x: round(y, 6) for x, y in by_x.items()}
            for line, by_x in self.scaled(points).items()
        }


@dataclass(frozen=True)
class RealFigure:
    """A figure that real executors make, as the page shows it; see `SimulatedFigure`."""

    name: str
    title: str
    claim: str
    paper: str
    x: str
    y: str
    #: Runs it and reports progress; returns its document.
    document: Callable[[Callable[[str], None]], dict[str, Any]]
    words: Callable[[Mapping[str, Any]], str]
    setup: str = ""
    #: What lines show over time.
    point: str = "rows_per_s"
    log_x: bool = False
    log_y: bool = False
    names: Mapping[float, str] = field(default_factory=dict)


def _over_time(found: Simulated, name: str) -> dict[float, float]:
    pairs = zip(found.series["second"], found.series[name], strict=True)
    return {round(at, 6): round(value, 6) for at, value in pairs}


def steady_rows(found: Result, last_s: float = 20.0) -> float:
    """Rows a second at the end of a run."""
    return found.mean("rows_per_s", found.scenario.seconds - last_s)


def steady_latency(found: Result, last_s: float = 20.0) -> float:
    """Mean seconds of a row at the end of a run."""
    since = found.scenario.seconds - last_s
    pairs = zip(
        found.series["second"], found.series["rows_per_s"], found.series["latency_s"], strict=True
    )
    taken = [(rows, rows * latency) for at, rows, latency in pairs if at > since]
    return sum(late for _, late in taken) / max(1e-9, sum(rows for rows, _ in taken))

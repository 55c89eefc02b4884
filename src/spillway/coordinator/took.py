"""How long a batch took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Took:
    """How long a batch took."""

    #: Seconds of the query's own time.
    seconds: float
    #: Seconds since the previous batch; None: a round, or the first batch of a start.
    period_s: float | None = None

    @property
    def came_s(self) -> float:
        """The seconds in which the rows of the batch came."""
        return self.seconds if self.period_s is None else self.period_s

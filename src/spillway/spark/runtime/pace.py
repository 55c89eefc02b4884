"""The pace of a stream: when its batches come, and so what may run between them.

A stream with a trigger has a gap between a batch and the next. What runs beside the batches is cut to
fit into it, so that no batch finds the cores taken. A stream without gaps is given something small to
share the cores with, once a batch.

Times are seconds of any one clock, and are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Part of the time from batch to batch below which it is no gap, only the way to the next batch.
_LEAST_GAP = 0.1
#: Spark is at work on a batch before we hear of it: it asks the sources and writes offsets.
_AHEAD_S = 0.15
#: Bytes of a load where nothing is known of the batches, and at most.
LOAD_BYTES = 32 << 20
MOST_BYTES = 128 << 20


@dataclass
class Pace:
    """What is known of the batches of one stream."""

    running: bool = False
    #: Batches that have ended.
    batches: int = 0
    #: When the last one began, and when the last one that is over ended.
    began_at: float = 0.0
    ended_at: float = 0.0
    #: From the beginning of a batch to that of the next; None before the second.
    period_s: float | None = None

    def begins(self, now: float) -> None:
        """A batch begins."""
        if self.batches:
            self.period_s = now - self.began_at
        self.began_at, self.running = now, True

    def ends(self, now: float) -> None:
        """It has ended."""
        self.ended_at, self.running = now, False
        self.batches += 1

    @property
    def gapless(self) -> bool:
        """Whether a batch follows upon the other."""
        if self.period_s is None:
            return False
        next_at = self.began_at if self.running else self.began_at + self.period_s
        return next_at - self.ended_at < _LEAST_GAP * self.period_s

    def room_s(self, now: float) -> float | None:
        """Seconds until the next batch is due; None where that is not known.

        Example:
            >>> pace = Pace()
            >>> for second in (0.0, 2.0):
            ...     pace.begins(second)
            ...     pace.ends(second + 0.5)
            >>> pace.room_s(2.6), pace.room_s(9.0)
            (1.25, None)
        """
        if self.period_s is None or self.gapless:
            return None
        left = self.began_at + self.period_s - _AHEAD_S - now
        # A batch that is later than a whole period is not waited for.
        return None if left < -self.period_s else max(0.0, left)


@dataclass
class Loads:
    """What loads take, from those that there were; and so how much fits."""

    #: Seconds that a load takes however small it is, and bytes per second beyond that. Measured on two
    #: cores: 0.2 s, and 80 to 150 MB/s.
    fixed_s: float = 0.25
    bytes_per_s: float = 80e6
    #: Batches that had ended when the last one began.
    batches: int = -1

    def took(self, size: int, seconds: float) -> None:
        """Learns from a load."""
        rate = size / max(seconds - self.fixed_s, seconds / 4)
        self.bytes_per_s += (rate - self.bytes_per_s) / 4

    def allowed(self, pace: Pace, now: float, least: int) -> int:
        """Bytes that a load may have that begins now, at least `least`; 0: it has to wait.

        One load goes for every batch, also where nothing fits.
        """
        none_yet = pace.batches > self.batches
        if pace.running:
            return least if none_yet and pace.gapless else 0
        room = pace.room_s(now)
        if room is None:
            return max(least, LOAD_BYTES)
        fitting = int((room - self.fixed_s) * self.bytes_per_s)
        if fitting >= least:
            return max(least, min(fitting, MOST_BYTES))
        return least if none_yet else 0

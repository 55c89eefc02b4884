"""The pace of a stream: when its batches come, and so how much work fits between them.

A stream with a trigger has a gap between two batches. Other work fits into the gap, so that no batch
finds the cores busy. A stream without gaps gets one small piece of other work per batch.

Times are arguments: seconds of any clock.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A pause shorter than this fraction of the time from batch to batch is not a gap.
_LEAST_GAP = 0.1
#: Spark works on a batch before it calls us: it asks the sources and writes offsets.
_AHEAD_S = 0.15
#: Bytes of a load before the pace is known, and at most.
LOAD_BYTES = 32 << 20
MOST_BYTES = 512 << 20


@dataclass
class Pace:
    """What is known of the batches of one stream."""

    running: bool = False
    #: Batches that have ended.
    batches: int = 0
    #: When the last one began, and when the last completed one ended.
    began_at: float = 0.0
    ended_at: float = 0.0
    #: From the start of a batch to the start of the next; None before the second.
    period_s: float | None = None

    def begin_batch(self, now: float) -> None:
        """Notes that a batch begins."""
        if self.batches:
            self.period_s = now - self.began_at
        self.began_at, self.running = now, True

    def end_batch(self, now: float) -> None:
        """Notes that the batch has ended."""
        self.ended_at, self.running = now, False
        self.batches += 1

    @property
    def gapless(self) -> bool:
        """Whether batches follow each other without a gap."""
        if self.period_s is None:
            return False
        next_at = self.began_at if self.running else self.began_at + self.period_s
        return next_at - self.ended_at < _LEAST_GAP * self.period_s

    def room_s(self, now: float) -> float | None:
        """Seconds until the next batch is due; None if that is not known.

        Example:
            >>> pace = Pace()
            >>> for second in (0.0, 2.0):
            ...     pace.begin_batch(second)
            ...     pace.end_batch(second + 0.5)
            >>> pace.room_s(2.6), pace.room_s(9.0)
            (1.25, None)
        """
        if self.period_s is None or self.gapless:
            return None
        left = self.began_at + self.period_s - _AHEAD_S - now
        # Do not wait for a batch that is more than a period late.
        return None if left < -self.period_s else max(0.0, left)


@dataclass
class Loads:
    """The time that loads take, learned from earlier ones, and so how much fits."""

    #: Fixed seconds of a load, and bytes per second beyond that, before loads were measured.
    fixed_s: float = 0.25
    bytes_per_s: float = 400e6
    #: Number of batches that had ended when the last load began.
    batches: int = -1

    def learn(self, size: int, seconds: float) -> None:
        """Learns from a load."""
        rate = size / max(seconds - self.fixed_s, seconds / 4)
        self.bytes_per_s += (rate - self.bytes_per_s) / 4

    def allowed(self, pace: Pace, now: float, least: int) -> int:
        """Bytes of a load that begins now, at least `least`; 0: it must wait.

        One load runs for every batch, even if nothing fits.
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

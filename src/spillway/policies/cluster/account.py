"""What moving groups has won so far, and what it has cost.

The unit is a second of the query's work in the state in which moving began. There the busiest slot took
`base_s` for each row of all slots; where it takes half of that, a second does the work of two, and one
is won. While groups move, less is done than just before: that is the cost. A balance that is good for
one load and bad for the next wins and loses in turn, and the sum says whether it was worth following.

Older times count less: half after a minute. A base that was taken while slots were still slowing down
is raised as long as moves go one way, since such moves make no slot busier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: What was won counts half after so long.
_HALF_S = 60.0
#: Part of the time that has to be won. Buffers are emptied faster for a moment after each change of
#: load, which no move has won: it is a twelfth where FLUX's skew buffer meets a change every 5 s.
_LEAST = 0.1
#: A second counts for two at most: a stop of all slots at the beginning would outweigh all that follows.
_MOST_GAIN = 1.0


@dataclass(frozen=True)
class Account:
    """The sum so far.

    Example:
        >>> begun = Account(base_s=2e-3)
        >>> begun.collected(10.0, peak_s=1e-3).pays, begun.collected(10.0, peak_s=2e-3).pays
        (True, False)
    """

    #: Seconds of the busiest slot for a row when moving began; 0: it has not.
    base_s: float = 0.0
    #: Seconds of work won less those lost, and the seconds that were looked at.
    won_s: float = 0.0
    seen_s: float = 0.0
    #: What a second of the last collection has won.
    gain: float = 0.0
    #: Whether moves have been reversed since it began.
    turned: bool = False

    @property
    def pays(self) -> bool:
        """Whether moving has won something."""
        return self.won_s > _LEAST * self.seen_s

    def begun(self, peak_s: float) -> Account:
        """When groups begin to move, or go on as they went; the busiest slot takes so long for a row."""
        if self.base_s <= 0:
            return Account(peak_s)
        if self.turned:
            return self
        # Half of the way, since a short collection says it badly.
        return replace(self, base_s=(self.base_s + max(self.base_s, peak_s)) / 2)

    def collected(self, span_s: float, peak_s: float) -> Account:
        """After a collection, in which the busiest slot took so long for a row."""
        if self.base_s <= 0:
            return self
        gain = min(_MOST_GAIN, self.base_s / peak_s - 1)
        return replace(self, gain=gain)._after(span_s, span_s * gain)

    def moved(self, moving_s: float, lost_s: float) -> Account:
        """After moves, in which so many seconds of the work just before them were not done."""
        return self._after(moving_s, moving_s * self.gain - lost_s * (1 + self.gain))

    def _after(self, span_s: float, won_s: float) -> Account:
        kept = 0.5 ** (span_s / _HALF_S)
        return replace(self, won_s=kept * self.won_s + won_s, seen_s=kept * self.seen_s + span_s)

"""The account of moving groups: what moves have gained and cost so far.

The unit is a second of the query's work when moving began, when the busiest slot took `base_s` per
row of all slots. If it now takes half of that, one second does the work of two, and one second is
gained. While groups move, the query does less than just before: that is the cost. The sum says
whether following the load was worth it.

Gains decay with a half-life of a minute. If the base was measured while slots were still slowing
down, it rises as long as moves go one way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: Half-life of gains, in seconds.
_HALF_S = 60.0
#: Fraction of the time that moves must gain. After each change of load, buffers drain faster for a
#: moment, which is not a gain of any move: about 1/12 when FLUX's skew buffer meets a change every
#: 5 s.
_LEAST = 0.1
#: A second counts as at most two: a pause of all slots at the start would outweigh all that
#: follows.
_MOST_GAIN = 1.0


@dataclass(frozen=True)
class Account:
    """The sum so far.

    Example:
        >>> begun = Account(base_s=2e-3)
        >>> begun.collected(10.0, peak_s=1e-3).pays, begun.collected(10.0, peak_s=2e-3).pays
        (True, False)
    """

    #: Seconds of the busiest slot per row when moving began; 0: it has not begun.
    base_s: float = 0.0
    #: Seconds of work gained minus seconds lost, and the seconds observed.
    won_s: float = 0.0
    seen_s: float = 0.0
    #: Gain per second in the last collection.
    gain: float = 0.0
    #: Whether moves have been reversed since it began.
    turned: bool = False

    @property
    def pays(self) -> bool:
        """Whether moving has gained enough."""
        return self.won_s > _LEAST * self.seen_s

    def begun(self, peak_s: float) -> Account:
        """Returns the account when moves begin or go on; `peak_s` is per row of the busiest slot."""
        if self.base_s <= 0:
            return Account(peak_s)
        if self.turned:
            return self
        # Go half of the way, since a short collection is not accurate.
        return replace(self, base_s=(self.base_s + max(self.base_s, peak_s)) / 2)

    def collected(self, span_s: float, peak_s: float) -> Account:
        """Returns the account after a collection; `peak_s` is per row of the busiest slot."""
        if self.base_s <= 0:
            return self
        gain = min(_MOST_GAIN, self.base_s / peak_s - 1)
        return replace(self, gain=gain)._after(span_s, span_s * gain)

    def moved(self, moving_s: float, lost_s: float) -> Account:
        """Returns the account after moves that cost `lost_s` seconds of work."""
        return self._after(moving_s, moving_s * self.gain - lost_s * (1 + self.gain))

    def _after(self, span_s: float, won_s: float) -> Account:
        kept = 0.5 ** (span_s / _HALF_S)
        return replace(self, won_s=kept * self.won_s + won_s, seen_s=kept * self.seen_s + span_s)

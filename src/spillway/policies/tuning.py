"""Settings that are found while a query runs: the open problem at the end of FLUX section 5.4.

`Tuner` finds delta_min and th_imb, `GapTuner` finds t_gap. What was measured goes in, the next value
comes out.

**How long to collect.** Loads are counts of rows, so they are known to one part in the square root of
the count. Statistics are collected until a slot has taken `_SEEN` rows on average, and for twice as
long as the last time whenever that proved too short. It was too short if a decision is a *reversal*, in
which a slot that has received is to send or one that has sent is to receive; or if the moves before did
not *pay*: the busiest slot's time per row did not go down enough to make up for the rows that were not
processed while groups moved. After a calm while it is half as long again.

**What difference to act on.** A pair at ratio r can be made at most (1 - 1/r)/2 faster, and it stays so
until moves are reversed. So a difference is worth a move if that, over the time that balances have
lasted, is `_MARGIN` times what moves have cost; and it must be more than what has proved to be noise.

**Why it does not thrash.** A reversal is put off once: it is carried out only if the next collection, at
least twice as long, still asks for it. So each reversal, and each round of moves that did not pay, goes
with a doubling of the shortest collection. That is between `LEAST_S` and `MOST_S`, and is halved at most
every `CALM_S`. Hence in any W seconds at most `most_bad_rounds(W)` rounds of moves are reversals or did
not pay, whatever the load does: five a minute in the long run. Between two reversals a slot only sends
or only receives, so that a group moves at most once: `most_moves_of_a_group(W)` in all. Load that
alternates faster than a collection takes is not answered at all, but its average is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway.metrics.view import ClusterView
from spillway.policies.decision import Decision, Move

#: Bounds of the shortest collection. The least is delta_min of the paper's experiments.
LEAST_S = 0.01
MOST_S = 60.0
#: Without a reversal or a loss for so long, it is halved.
CALM_S = 15.0
#: Rows that a slot takes on average: 1024 give its load to one part in 32, so that the most and the
#: least of many equal slots differ by less than the fifth that the paper acts on.
_SEEN = 1024
#: Bounds of the difference to act on, beyond 1; where it begins; and by what factor it changes.
_LEAST_NOISE, _NOISE, _MOST_NOISE, _STEP = 0.1, 0.2, 2.0, 1.5
#: What is gained must be so many times the cost; gains are known to within this part.
_MARGIN = 2.0
_BLUR = 0.05
#: How long a balance lasts, before anything is known and at most.
_LASTS_S, _MOST_LASTS_S = 60.0, 600.0

_SENT, _RECEIVED = -1, 1


def most_bad_rounds(window_s: float) -> float:
    """The most rounds of moves in so many seconds that are reversals or did not pay."""
    return math.log2(MOST_S / LEAST_S) + window_s / CALM_S + window_s / MOST_S + 1


def most_moves_of_a_group(window_s: float) -> float:
    """The most times that one group moves in so many seconds: roles end by reversals and in calm."""
    return most_bad_rounds(window_s) + window_s / CALM_S + 1


@dataclass(frozen=True)
class Tuner:
    """What a query has learned about its own moves."""

    #: The shortest collection that has not proved too short, and that in which slots take enough rows.
    floor_s: float = LEAST_S
    seen_s: float = LEAST_S
    #: The difference, beyond 1, that has not proved to be noise.
    noise: float = _NOISE
    #: Seconds of the query's work that moves have cost, on average and last.
    cost_s: float = 0.0
    last_cost_s: float = 0.0
    #: How long a balance lasts; and since when moves go the way they go.
    lasts_s: float = _LASTS_S
    since_s: float = 0.0
    #: When it last became more careful, and less.
    warned_s: float = -1.0
    eased_s: float = 0.0
    #: What each slot did in the moves since: received (1), sent (-1), or neither.
    roles: tuple[int, ...] = ()
    #: Whether a reversal was put off at the last evaluation.
    put_off: bool = False
    #: Before the moves that are to be judged: seconds of the busiest slot per row, and rows per second.
    peak_s: float = 0.0
    rate: float = 0.0

    @property
    def delta_min_s(self) -> float:
        """The least time to collect statistics for."""
        return min(MOST_S, max(self.floor_s, self.seen_s))

    @property
    def imbalance(self) -> float:
        """The ratio of two slots from which on a group moves: th_imb."""
        # At its most a move gains half of the pair's difference: (1 - 1/r)/2.
        needed = min(0.9, 2 * _MARGIN * self.cost_s / self.lasts_s)
        return min(max(1 / (1 - needed), 1 + self.noise), 1 + _MOST_NOISE)

    def observe(self, view: ClusterView, now_s: float) -> Tuner:
        """At an evaluation, before anything is decided: judges the moves before."""
        rows = sum(slot.rows_in for slot in view.slots)
        if not rows or view.span_s <= 0:
            return self
        seen_s = _SEEN * len(view.slots) / rows * view.span_s
        known = replace(self, seen_s=min(MOST_S, seen_s), peak_s=0.0)
        peak_s = max(slot.busy_s for slot in view.slots) / rows
        if self.peak_s > 0 and not self._paid(1 - peak_s / self.peak_s):
            return known._careful(view, now_s)
        return known._calm(now_s)

    def decide(
        self, decisions: Sequence[Decision], view: ClusterView, now_s: float
    ) -> tuple[Tuner, tuple[Decision, ...]]:
        """What of the decisions is carried out: a reversal is put off once."""
        kept = tuple(one for one in decisions if not self._reverses(one))
        if len(kept) == len(decisions):
            return replace(self, put_off=False)._begun(kept, view, now_s), kept
        if not self.put_off:
            careful = replace(self._careful(view, now_s), put_off=True)
            return careful._begun(kept, view, now_s), kept
        lasted = (self.lasts_s + now_s - self.since_s) / 2
        turned = replace(self, put_off=False, roles=(), lasts_s=lasted)
        return turned._begun(decisions, view, now_s), tuple(decisions)

    def moved(self, moving_s: float, rows: int) -> Tuner:
        """When moves are over: what they took, and the rows that were processed meanwhile."""
        lost = moving_s - rows / self.rate if self.rate > 0 else 0.0
        cost_s = max(0.0, lost)
        return replace(self, last_cost_s=cost_s, cost_s=(self.cost_s + cost_s) / 2)

    def nothing_moved(self) -> Tuner:
        """When no sender had a group to give: there is nothing to judge."""
        return replace(self, peak_s=0.0)

    def _begun(self, decisions: Sequence[Decision], view: ClusterView, now_s: float) -> Tuner:
        moves = [one for one in decisions if isinstance(one, Move)]
        rows = sum(slot.rows_in for slot in view.slots)
        if not moves or not rows or view.span_s <= 0:
            return self
        roles = dict(enumerate(self.roles))
        for move in moves:
            roles |= {move.sender: _SENT, move.receiver: _RECEIVED}
        return replace(
            self,
            roles=tuple(roles.get(slot, 0) for slot in range(max(roles) + 1)),
            since_s=self.since_s if any(self.roles) else now_s,
            peak_s=max(slot.busy_s for slot in view.slots) / rows,
            rate=rows / view.span_s,
        )

    def _reverses(self, decision: Decision) -> bool:
        if not isinstance(decision, Move):
            return False
        roles = dict(enumerate(self.roles))
        return roles.get(decision.sender) == _RECEIVED or roles.get(decision.receiver) == _SENT

    def _paid(self, gain: float) -> bool:
        """Whether the gain makes up for the cost while the balance lasts, as far as is known."""
        return gain + _BLUR >= self.last_cost_s / self.lasts_s

    def _careful(self, view: ClusterView, now_s: float) -> Tuner:
        busy = [slot.busy_s for slot in view.slots]
        # A difference far beyond the noise is no noise: then only time was too short.
        more = _STEP if max(busy) < (1 + 2 * self.noise) * min(busy) else 1.0
        return replace(
            self,
            floor_s=min(MOST_S, 2 * max(self.floor_s, view.span_s)),
            noise=min(_MOST_NOISE, self.noise * more),
            warned_s=now_s,
        )

    def _calm(self, now_s: float) -> Tuner:
        """Less careful, if nothing has gone wrong for long enough to have been noticed."""
        since_s = max(self.warned_s, self.eased_s)
        if now_s - since_s < max(CALM_S, 2 * self.delta_min_s):
            return self
        return replace(
            self,
            floor_s=max(LEAST_S, self.floor_s / 2),
            noise=max(_LEAST_NOISE, self.noise / _STEP),
            lasts_s=min(_MOST_LASTS_S, self.lasts_s * 2),
            eased_s=now_s,
            # What slots did long ago is no reason against the opposite now.
            roles=() if self.floor_s <= max(LEAST_S, self.seen_s) else self.roles,
        )


#: t_gap is between these multiples of the time to read a group; it begins with the paper's rule, 1.
_LEAST_GAP, _MOST_GAP = 0.5, 64.0
#: What waits has grown, or shrunk, if it did by this part; then t_gap changes by these factors.
_GROWTH = 0.1
_LONGER, _SHORTER = 1.5, 0.8
#: A slot that works less than this part of the time has time for more turns.
_IDLE = 0.8


@dataclass(frozen=True)
class GapTuner:
    """How long groups stay in memory in their turns: t_gap of FLUX section 6.1.

    Longer turns mean less reading and writing, so more rows; shorter turns mean that rows wait less. So
    turns become longer while more and more input waits, and shorter while less and less does or the slot
    has time. It takes two looks in a row that say the same, each after at least one turn.
    """

    #: Seconds to read a group, on average; 0: none was read yet.
    read_s: float = 0.0
    #: t_gap as a multiple of it.
    factor: float = 1.0
    #: What waited at the last look, and what it said: longer (1), shorter (-1), or neither.
    waiting_bytes: int = 0
    said: int = 0

    @property
    def t_gap_s(self) -> float:
        """Seconds from one turn to the next."""
        return self.factor * self.read_s

    def observe(self, read_s: float, waiting_bytes: int, utilisation: float) -> GapTuner:
        """After turns: seconds to read a group in them, input that waits, how busy the slot was."""
        known = (self.read_s + read_s) / 2 if self.read_s else read_s
        says = self._says(waiting_bytes, utilisation)
        agreed = says if says == self.said else 0
        factor = self.factor * {1: _LONGER, 0: 1.0, -1: _SHORTER}[agreed]
        factor = min(max(factor, _LEAST_GAP), _MOST_GAP)
        return GapTuner(known, factor, waiting_bytes, 0 if agreed else says)

    def _says(self, waiting_bytes: int, utilisation: float) -> int:
        if waiting_bytes > self.waiting_bytes * (1 + _GROWTH):
            return 1 if utilisation >= _IDLE else 0
        if waiting_bytes < self.waiting_bytes * (1 - _GROWTH) or utilisation < _IDLE:
            return -1
        return 0

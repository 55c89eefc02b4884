"""Settings that are found while a query runs: the open problem at the end of FLUX section 5.4.

`Tuner` finds delta_min and th_imb, `GapTuner` finds t_gap. What was measured goes in, the next value
comes out.

**How long to collect.** Loads are counts of rows, so they are known to one part in the square root of
the count. Statistics are collected until a slot has taken `_SEEN` rows on average; where a strategy
goes by bytes of state, which are known exactly, there is nothing to wait for, not even for as long as
the moves took. That has proved too short if a decision is a *reversal*, in which the busiest slot is
one that has received, and if all the moves so far have not *paid* (policies/cluster/account.py). Then
it becomes twice as long; while moves pay, or after a calm while, half as long again.

**What difference to act on.** A pair at ratio r can be made at most (1 - 1/r)/2 faster, and it stays so
until moves are reversed. So a difference is worth a move if that, over the time that balances have
lasted, is `_MARGIN` times what moves have cost; and it must be more than what has proved to be noise, as
a small difference does that is reversed.

**Why it does not thrash.** A reversal is put off once: it is carried out only if the next collection
still asks for it. It is not put off where moves have paid, the difference is far from noise, and the
last reversal is `TURN_S` ago. So each reversal while moves do not pay goes with a doubling of the
shortest collection. That is between `LEAST_S` and `MOST_S`, and while they do not pay it is halved at
most every `CALM_S`: in W seconds of that kind there are at most `most_bad_rounds(W)` reversals, whatever
the load does. And paying or not, a query moves no more groups in `ONCE_S` than it has, after as many at
once: `most_moves(groups, W)`. Load that alternates faster than a balance takes is so not answered at
all, but its average is; load that alternates more slowly is followed.

Known limitation: what moves have won is measured by how busy slots are. A strategy that goes by bytes is
about latency as well, which is not in the account.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway.metrics.view import ClusterView
from spillway.policies.cluster.account import Account
from spillway.policies.cluster.decision import Decision, Move

#: Bounds of the shortest collection. The least is delta_min of the paper's experiments.
LEAST_S = 0.01
MOST_S = 60.0
#: Without a reversal that was put off for so long, it is halved.
CALM_S = 15.0
#: The least time between two reversals that are not put off.
TURN_S = 3.0
#: As many groups as there are may move in so long.
ONCE_S = 60.0
#: Rows that a slot takes on average: 1024 give its load to one part in 32, so that the most and the
#: least of many equal slots differ by less than the fifth that the paper acts on.
_SEEN = 1024
#: Bounds of the difference to act on, beyond 1; where it begins; and by what factor it changes.
_LEAST_NOISE, _NOISE, _MOST_NOISE, _STEP = 0.1, 0.2, 0.6, 1.5
#: Where moves are dear, the difference to act on is at most this, beyond 1.
_MOST_DIFFERENCE = 2.0
#: What is gained must be so many times the cost.
_MARGIN = 2.0
#: How long a balance lasts, before anything is known and at most.
_LASTS_S, _MOST_LASTS_S = 60.0, 600.0

_SENT, _RECEIVED = -1, 1


def most_bad_rounds(window_s: float) -> float:
    """The most reversals in so many seconds in which moves do not pay."""
    return math.log2(MOST_S / LEAST_S) + window_s / CALM_S + window_s / MOST_S + 1


def most_moves(groups: int, window_s: float) -> float:
    """The most moves in so many seconds, whatever the load does.

    Example:
        >>> most_moves(64, 60.0)
        128.0
    """
    return groups * (1 + window_s / ONCE_S)


@dataclass(frozen=True)
class Tuner:
    """What a query has learned about its own moves."""

    #: The shortest collection that has not proved too short, and that in which slots take enough rows.
    floor_s: float = LEAST_S
    seen_s: float = LEAST_S
    #: Whether the last evaluation went by bytes, which are known exactly.
    exact: bool = False
    #: The difference, beyond 1, that has not proved to be noise.
    noise: float = _NOISE
    #: Seconds of the query's work that a round of moves has cost, on average.
    cost_s: float = 0.0
    #: How long a balance lasts; and since when moves go the way they go.
    lasts_s: float = _LASTS_S
    since_s: float = 0.0
    #: When it last became more careful, and less; and when groups last moved.
    warned_s: float = -1.0
    eased_s: float = 0.0
    moved_s: float = 0.0
    #: What each slot did in the moves since: received (1), sent (-1), or neither.
    roles: tuple[int, ...] = ()
    #: Whether a reversal was put off at the last evaluation.
    put_off: bool = False
    #: What moves have won, the moves that count against the most, and rows per second before the last.
    account: Account = Account()
    spent: float = 0.0
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
        return min(max(1 / (1 - needed), 1 + self.noise), 1 + _MOST_DIFFERENCE)

    def observe(self, view: ClusterView, now_s: float, *, counts: bool = True) -> Tuner:
        """At an evaluation, before anything is decided: what the moves before have won.

        Args:
            view: What was measured since the last evaluation.
            now_s: The time.
            counts: Whether the strategy goes by counts of rows.
        """
        rows = sum(slot.rows_in for slot in view.slots)
        if not rows or view.span_s <= 0:
            return self
        enough_s = _SEEN * len(view.slots) / rows * view.span_s
        seen_s = min(MOST_S, enough_s) if counts else LEAST_S
        account = self.account.collected(view.span_s, _peak_s(view))
        known = replace(self, seen_s=seen_s, exact=not counts, account=account)
        if account.pays:
            known = replace(known, floor_s=max(LEAST_S, self.floor_s / 2))
        return known._calm(now_s)

    def decide(
        self, decisions: Sequence[Decision], view: ClusterView, now_s: float
    ) -> tuple[Tuner, tuple[Decision, ...]]:
        """What of the decisions is carried out: a reversal is put off once, unless moving pays."""
        kept = tuple(one for one in decisions if not self._reverses(one))
        # The first decision is about the busiest slot, for which all others wait.
        if not decisions or not self._reverses(decisions[0]):
            return replace(self, put_off=False)._begun(kept, view, now_s)
        clear = self._clear(decisions[0], view)
        at_once = clear and self.account.pays and now_s - self.since_s >= TURN_S
        turning = replace(self, account=replace(self.account, turned=True))
        if not (self.put_off or at_once):
            careful = replace(turning._careful(now_s, clear=clear), put_off=True)
            return careful._begun(kept, view, now_s)
        lasted_s = (self.lasts_s + now_s - self.since_s) / 2
        turned = replace(turning, put_off=False, roles=(), lasts_s=lasted_s, since_s=now_s)
        return turned._begun(tuple(decisions), view, now_s)

    def moved(self, moving_s: float, rows: int) -> Tuner:
        """When moves are over: what they took, and the rows that were processed meanwhile."""
        cost_s = max(0.0, moving_s - rows / self.rate) if self.rate > 0 else 0.0
        account = self.account.moved(moving_s, cost_s)
        return replace(self, account=account, cost_s=(self.cost_s + cost_s) / 2)

    def _begun(
        self, decisions: tuple[Decision, ...], view: ClusterView, now_s: float
    ) -> tuple[Tuner, tuple[Decision, ...]]:
        """The decisions that are not one move too many, and what is known when they begin."""
        groups = sum(slot.groups for slot in view.slots)
        spent = max(0.0, self.spent - groups * (now_s - self.moved_s) / ONCE_S)
        allowed = decisions[: max(0, int(groups - spent))]
        moves = [one for one in allowed if isinstance(one, Move)]
        if not moves:
            return self, allowed
        roles = dict(enumerate(self.roles))
        for move in moves:
            roles |= {move.sender: _SENT, move.receiver: _RECEIVED}
        known = replace(
            self,
            roles=tuple(roles.get(slot, 0) for slot in range(max(roles) + 1)),
            since_s=self.since_s if any(self.roles) or self.account.turned else now_s,
            moved_s=now_s,
            spent=spent + len(moves),
        )
        rows = sum(slot.rows_in for slot in view.slots)
        if rows and view.span_s > 0:
            account = self.account.begun(_peak_s(view))
            known = replace(known, account=account, rate=rows / view.span_s)
        return known, allowed

    def _reverses(self, decision: Decision) -> bool:
        if not isinstance(decision, Move):
            return False
        return dict(enumerate(self.roles)).get(decision.sender) == _RECEIVED

    def _clear(self, decision: Decision, view: ClusterView) -> bool:
        """Whether the difference of a pair is far beyond what noise may be."""
        if not isinstance(decision, Move):
            return False
        busy = {slot.slot: slot.busy_s for slot in view.slots}
        return busy[decision.sender] >= (1 + 2 * self.noise) * busy[decision.receiver]

    def _careful(self, now_s: float, *, clear: bool) -> Tuner:
        # A difference far beyond the noise is no noise: then only time was too short.
        return replace(
            self,
            floor_s=min(MOST_S, 2 * self.delta_min_s),
            noise=min(_MOST_NOISE, self.noise * (1.0 if clear else _STEP)),
            warned_s=now_s,
        )

    def _calm(self, now_s: float) -> Tuner:
        """Less careful, if nothing has gone wrong for long enough to have been noticed."""
        since_s = max(self.warned_s, self.eased_s)
        if now_s - since_s < max(CALM_S, 2 * self.delta_min_s):
            return self
        # What slots did long ago is no reason against the opposite now.
        forgets = self.floor_s <= max(LEAST_S, self.seen_s)
        ended = now_s - self.moved_s > MOST_S
        return replace(
            self,
            floor_s=max(LEAST_S, self.floor_s / 2),
            noise=max(_LEAST_NOISE, self.noise / _STEP),
            lasts_s=min(_MOST_LASTS_S, self.lasts_s * 2),
            eased_s=now_s,
            roles=() if forgets else self.roles,
            account=Account() if ended else self.account,
        )


def _peak_s(view: ClusterView) -> float:
    """Seconds of the busiest slot for each row of all slots."""
    rows = sum(slot.rows_in for slot in view.slots)
    busiest_s = max(view.peak_s, *(slot.busy_s for slot in view.slots))
    return max(busiest_s, 1e-9) / max(rows, 1)


#: t_gap is between these multiples of the time to read a group; it begins with the paper's rule, 1.
_LEAST_GAP, _MOST_GAP = 0.5, 16.0
#: What waits has grown, or shrunk, if it did by this part; then t_gap changes by these factors.
_GROWTH = 0.1
_LONGER, _SHORTER = 2.0, 0.8
#: A slot that works less than this part of the time has time for more turns, and one that works more
#: than that part has no time for those that it has.
_IDLE, _BUSY = 0.8, 0.95


@dataclass(frozen=True)
class GapTuner:
    """How long groups stay in memory in their turns: t_gap of FLUX section 6.1.

    Longer turns mean less reading and writing, so more rows; shorter turns mean that rows wait less. So
    turns become longer while the slot has no time or more and more input waits, and shorter while less
    and less does or the slot has time. It takes two looks in a row that say the same, each after at
    least one turn; but where a slot has no time, its input waits at the source, however short turns
    are, and one look is enough.
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
        agreed = says if says == self.said or utilisation >= _BUSY else 0
        factor = self.factor * {1: _LONGER, 0: 1.0, -1: _SHORTER}[agreed]
        factor = min(max(factor, _LEAST_GAP), _MOST_GAP)
        return GapTuner(known, factor, waiting_bytes, 0 if agreed else says)

    def _says(self, waiting_bytes: int, utilisation: float) -> int:
        if utilisation >= _BUSY:
            return 1
        if waiting_bytes > self.waiting_bytes * (1 + _GROWTH):
            return 1 if utilisation >= _IDLE else 0
        if waiting_bytes < self.waiting_bytes * (1 - _GROWTH) or utilisation < _IDLE:
            return -1
        return 0

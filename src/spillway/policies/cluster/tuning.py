"""Settings tuned while a query runs: the open problem at the end of FLUX section 5.4.

`Tuner` finds delta_min and th_imb, `GapTuner` finds t_gap.

**How long to collect.** A row count has a relative error of one over its square root, so a
collection lasts until a slot has taken `_SEEN` rows on average. Bytes are exact and need no wait. A
collection was too short if a decision is a *reversal* (the busiest slot is one that has received)
and moves have not *paid* so far (policies/cluster/account.py); then its length doubles. While moves
pay, or after a calm period, it halves.

**What difference to act on.** A pair at ratio r can become at most (1 - 1/r)/2 faster. A move must
gain `_MARGIN` times its cost over the lifetime of a balance. The difference must also exceed the
noise, which small reversed differences reveal.

**Why it does not thrash.** The tuner defers a reversal until the next collection confirms it.
Exception: moves have paid, the difference is far from noise, and the last reversal is `TURN_S` ago. So
while moves do not pay, each reversal doubles the shortest collection. That length is between
`LEAST_S` and `MOST_S`, and halves at most every `CALM_S`: W such seconds have at most
log2(MOST_S / LEAST_S) + W / CALM_S + W / MOST_S + 1 reversals. A query moves at most as many groups
in `ONCE_S` as it has, after as many at once: `most_moves(groups, W)`. So the tuner follows slow
changes of load, and only the average of fast ones.

Known limitation: the account ignores latency, which matters to a strategy that uses bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway.metrics.view import ClusterView
from spillway.policies.cluster.account import Account
from spillway.policies.cluster.decision import Decision, Move

#: Bounds of the shortest collection. The minimum is delta_min of the paper's experiments.
LEAST_S = 0.01
MOST_S = 60.0
#: The shortest collection halves after this long without a deferred reversal.
CALM_S = 15.0
#: Minimum time between two reversals that are not deferred.
TURN_S = 3.0
#: In this time, as many groups may move as there are.
ONCE_S = 60.0
#: Rows that a slot takes on average: 1024 give its load to one part in 32. So the most and the
#: least of many equal slots differ by less than the fifth that the paper acts on.
_SEEN = 1024
#: Bounds of the difference to act on, beyond 1; its start; and its factor of change.
_LEAST_NOISE, _NOISE, _MOST_NOISE, _STEP = 0.1, 0.2, 0.6, 1.5
#: If moves are expensive, the difference to act on is at most this, beyond 1.
_MOST_DIFFERENCE = 2.0
#: The gain must be this many times the cost.
_MARGIN = 2.0
#: How long a balance lasts: the initial guess and the maximum.
_LASTS_S, _MOST_LASTS_S = 60.0, 600.0

_SENT, _RECEIVED = -1, 1


def most_moves(groups: int, window_s: float) -> float:
    """Returns the most moves in `window_s` seconds, whatever the load does.

    Example:
        >>> most_moves(64, 60.0)
        128.0
    """
    return groups * (1 + window_s / ONCE_S)


@dataclass(frozen=True)
class Tuner:
    """What a query has learned about its own moves."""

    #: The shortest collection not proved too short, and the one in which slots take enough rows.
    floor_s: float = LEAST_S
    seen_s: float = LEAST_S
    #: Whether the last evaluation used bytes, which are exact.
    exact: bool = False
    #: The difference, beyond 1, not proved to be noise.
    noise: float = _NOISE
    #: Average cost of the moves of one cycle, in seconds of the query's work.
    cost_s: float = 0.0
    #: How long a balance lasts; and when moves took their present direction.
    lasts_s: float = _LASTS_S
    since_s: float = 0.0
    #: When it last became more careful, and less; and when groups last moved.
    warned_s: float = -1.0
    eased_s: float = 0.0
    moved_s: float = 0.0
    #: What each slot did in the moves since: received (1), sent (-1), or neither.
    roles: tuple[int, ...] = ()
    #: Whether the last evaluation deferred a reversal.
    put_off: bool = False
    #: What moves have gained, the moves counted against the maximum, and rows per second before the
    #: last.
    account: Account = Account()
    spent: float = 0.0
    rate: float = 0.0

    @property
    def delta_min_s(self) -> float:
        """The minimum time to collect statistics."""
        return min(MOST_S, max(self.floor_s, self.seen_s))

    @property
    def imbalance(self) -> float:
        """The ratio of two slots at which a group moves: th_imb."""
        # A move gains at most half of the pair's difference: (1 - 1/r)/2.
        needed = min(0.9, 2 * _MARGIN * self.cost_s / self.lasts_s)
        return min(max(1 / (1 - needed), 1 + self.noise), 1 + _MOST_DIFFERENCE)

    def observe(self, view: ClusterView, now_s: float, *, counts: bool = True) -> Tuner:
        """Returns the tuner, before a decision, with what the earlier moves have gained.

        Args:
            view: Measurements since the last evaluation.
            now_s: The time.
            counts: Whether the strategy uses row counts.
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
        """Returns the decisions to carry out; defers a reversal once, unless moving pays."""
        kept = tuple(one for one in decisions if not self._reverses(one))
        # The first decision is about the busiest slot, which all others wait for.
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
        """Returns the tuner after moves: their time, and the rows processed meanwhile."""
        cost_s = max(0.0, moving_s - rows / self.rate) if self.rate > 0 else 0.0
        account = self.account.moved(moving_s, cost_s)
        return replace(self, account=account, cost_s=(self.cost_s + cost_s) / 2)

    def _begun(
        self, decisions: tuple[Decision, ...], view: ClusterView, now_s: float
    ) -> tuple[Tuner, tuple[Decision, ...]]:
        """Returns the decisions within the move limit, and what is known when they begin."""
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
        """Whether the difference of a pair is far beyond noise."""
        if not isinstance(decision, Move):
            return False
        busy = {slot.slot: slot.busy_s for slot in view.slots}
        return busy[decision.sender] >= (1 + 2 * self.noise) * busy[decision.receiver]

    def _careful(self, now_s: float, *, clear: bool) -> Tuner:
        # A difference far beyond noise is real: then only the time was too short.
        return replace(
            self,
            floor_s=min(MOST_S, 2 * self.delta_min_s),
            noise=min(_MOST_NOISE, self.noise * (1.0 if clear else _STEP)),
            warned_s=now_s,
        )

    def _calm(self, now_s: float) -> Tuner:
        """Becomes less careful, if nothing has gone wrong for long enough."""
        since_s = max(self.warned_s, self.eased_s)
        if now_s - since_s < max(CALM_S, 2 * self.delta_min_s):
            return self
        # What slots did long ago does not speak against the opposite now.
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
    """Returns the seconds of the busiest slot per row of all slots."""
    rows = sum(slot.rows_in for slot in view.slots)
    busiest_s = max(view.peak_s, *(slot.busy_s for slot in view.slots))
    return max(busiest_s, 1e-9) / max(rows, 1)


#: t_gap is between these multiples of the time to read a group; it starts with the paper's rule, 1.
_LEAST_GAP, _MOST_GAP = 0.5, 16.0
#: The backlog has grown or shrunk if it changed by this fraction; then t_gap changes by these
#: factors.
_GROWTH = 0.1
_LONGER, _SHORTER = 2.0, 0.8
#: Below the first utilisation a slot has time for more turns; above the second it has too little
#: time for its turns.
_IDLE, _BUSY = 0.8, 0.95


@dataclass(frozen=True)
class GapTuner:
    """Tunes how long groups stay in memory in their turns: t_gap of FLUX section 6.1.

    Longer turns mean less reading and writing, so more rows; shorter turns mean less waiting. So
    turns become longer while the slot has no time or the backlog grows, and shorter while the
    backlog shrinks or the slot has time. A change needs two equal observations in a row, each after
    at least one turn. If a slot has no time, its input waits at the source, however short turns
    are; then one observation is enough.
    """

    #: Average seconds to read a group; 0: none was read yet.
    read_s: float = 0.0
    #: t_gap as a multiple of it.
    factor: float = 1.0
    #: The last backlog, and the last observation: longer (1), shorter (-1), or neither.
    waiting_bytes: int = 0
    said: int = 0

    @property
    def t_gap_s(self) -> float:
        """The seconds between turns."""
        return self.factor * self.read_s

    def observe(self, read_s: float, waiting_bytes: int, utilisation: float) -> GapTuner:
        """Returns the tuner after turns: seconds per read, bytes that wait, how busy the slot was."""
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

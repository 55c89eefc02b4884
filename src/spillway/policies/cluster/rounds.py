"""The rounds of FLUX's strategies: collect, decide, move; with the times and thresholds tuned or not.

`Rounds` is what the settings say, `Progress` is where a query stands; both are values. A driver, be it
the coordinator or the simulator, asks `due`, then `decided`, and says `ended` when no move is under way
any more. In between it tells what it sees of the moves with `seen`. After `decided` and after `ended` it
begins to measure anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spillway.metrics.view import ClusterView
from spillway.policies.cluster.collection import Collection
from spillway.policies.cluster.decision import Decision
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.cluster.tuning import Tuner


@dataclass(frozen=True)
class Progress:
    """Where the rounds stand, and what was learned of moves."""

    collection: Collection = Collection()
    tuner: Tuner = Tuner()

    def seen(self, *, groups: bool) -> Progress:
        """While moves are under way: whether groups were chosen for one of them."""
        return replace(self, collection=self.collection.seen(groups=groups))


@dataclass(frozen=True)
class Rounds:
    """How rounds go.

    Example:
        >>> rounds = Rounds(Strategy("flux-load"), delta_min_s=2.0)
        >>> rounds.due(Progress(), 1.0), rounds.due(Progress(), 2.0)
        (False, True)
    """

    strategy: Strategy
    #: The least seconds that statistics are collected for; None: it is tuned.
    delta_min_s: float | None = 1.0
    #: Whether the imbalance from which on groups move is tuned, and not what the strategy says.
    tunes_imbalance: bool = False

    def least_s(self, progress: Progress) -> float:
        """The least seconds that statistics are collected for now."""
        return progress.tuner.delta_min_s if self.delta_min_s is None else self.delta_min_s

    def due(self, progress: Progress, elapsed_s: float) -> bool:
        """Whether slots are to be compared, so long after collecting began."""
        return progress.collection.due(elapsed_s, self.least_s(progress))

    def decided(
        self, progress: Progress, view: ClusterView, now_s: float
    ) -> tuple[Progress, tuple[Decision, ...]]:
        """An evaluation: what is to be done now."""
        strategy, tuner = self.strategy, progress.tuner
        if not self._tunes:
            decisions = strategy.decide(view)
        else:
            tuner = tuner.observe(view, now_s, counts=strategy.counts(view))
            if self.tunes_imbalance:
                flux = replace(strategy.flux, imbalance=tuner.imbalance)
                strategy = replace(strategy, flux=flux)
            tuner, decisions = tuner.decide(strategy.decide(view), view, now_s)
        least_s = self.least_s(replace(progress, tuner=tuner))
        collection = progress.collection.decided(least_s, moves=bool(decisions))
        return Progress(collection, tuner), decisions

    def ended(self, progress: Progress, moving_s: float, rows: int) -> Progress:
        """The moves are over: they took so long, and so many rows were processed meanwhile."""
        tuner = progress.tuner
        if self._tunes:
            # Where no sender had a group to give, it has cost nothing.
            tuner = tuner.moved(moving_s, rows) if progress.collection.moved else tuner
        # What is known exactly needs no time to be measured in, however long the moves took.
        waits_s = 0.0 if self.delta_min_s is None and tuner.exact else moving_s
        return Progress(progress.collection.ended(waits_s, self.least_s(progress)), tuner)

    @property
    def _tunes(self) -> bool:
        return self.delta_min_s is None or self.tunes_imbalance

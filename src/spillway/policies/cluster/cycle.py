"""The cycle of FLUX's strategies: collect, decide, move; with tuned or given thresholds.

`Cycle` holds the settings, `Progress` the current position; both are values. A driver (the
coordinator or the simulator) calls `due`, then `decided`, and `ended` when no move is running. In
between it reports the moves with `seen`. After `decided` and after `ended` it starts a new
measurement.
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
    """The position in the cycle, and what was learned about moves."""

    collection: Collection = Collection()
    tuner: Tuner = Tuner()

    def seen(self, *, groups: bool) -> Progress:
        """Returns the progress while moves run: whether one of them has groups."""
        return replace(self, collection=self.collection.seen(groups=groups))


@dataclass(frozen=True)
class Cycle:
    """The settings of the cycle.

    Example:
        >>> cycle = Cycle(Strategy("flux-load"), delta_min_s=2.0)
        >>> cycle.due(Progress(), 1.0), cycle.due(Progress(), 2.0)
        (False, True)
    """

    strategy: Strategy
    #: Minimum seconds of a collection; None: tuned.
    delta_min_s: float | None = 1.0
    #: Whether to tune the imbalance at which groups move, instead of the strategy's value.
    tunes_imbalance: bool = False

    def least_s(self, progress: Progress) -> float:
        """Returns the current minimum seconds of a collection."""
        return progress.tuner.delta_min_s if self.delta_min_s is None else self.delta_min_s

    def due(self, progress: Progress, elapsed_s: float) -> bool:
        """Whether an evaluation is due, `elapsed_s` after the collection began."""
        return progress.collection.due(elapsed_s, self.least_s(progress))

    def decided(
        self, progress: Progress, view: ClusterView, now_s: float
    ) -> tuple[Progress, tuple[Decision, ...]]:
        """Evaluates: returns what to do now."""
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
        """Returns the progress after moves that took `moving_s` and let `rows` rows through."""
        tuner = progress.tuner
        if self._tunes:
            # If no sender had a group to give, the moves cost nothing.
            tuner = tuner.moved(moving_s, rows) if progress.collection.moved else tuner
        # Exact measurements need no time, however long the moves took.
        waits_s = 0.0 if self.delta_min_s is None and tuner.exact else moving_s
        return Progress(progress.collection.ended(waits_s, self.least_s(progress)), tuner)

    @property
    def _tunes(self) -> bool:
        return self.delta_min_s is None or self.tunes_imbalance

"""What a query is while it runs, for one of its operators: plain data that does not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spillway.coordinator.terms import Terms
from spillway.faults import Faults
from spillway.operators.operator import Operator
from spillway.operators.theta.sliced import SlicedJoin
from spillway.plan.join import Plan
from spillway.policies.shape.shaping import Shaping
from spillway.settings import Adapt
from spillway.spark.runtime.lanes import COPY, Lanes


@dataclass(frozen=True)
class QuerySpec:
    """Everything about a query that does not change while it runs."""

    plan: Plan
    lanes: Lanes
    operator: Operator
    schema: StructType
    #: The user's where and select, applied to the results.
    shape: Callable[[DataFrame], DataFrame]
    #: The rows of this operator as they travel, from the results of the one before.
    feed: Callable[[DataFrame], DataFrame]
    adapt: Adapt
    query_id: str
    identity: bool = False
    faults: Faults = field(default_factory=Faults)
    #: What shapes slots may join in; None: the operator has only one.
    shaping: Shaping | None = None
    #: How the join is distributed and why, where that was not asked for.
    distribution: str | None = None

    @property
    def life_us(self) -> int | None:
        """How long an old row counts, by event time, with rows that come late; None: for ever."""
        windows = [stream.window for stream in self.plan.streams if stream.window is not None]
        if self.operator.untracked or not windows or len(self.plan.streams) > COPY:
            return None
        return max(window.window_us + window.lateness_us for window in windows)

    @property
    def sliced(self) -> SlicedJoin | None:
        """The operator, if rows visit it in rounds."""
        operator = self.operator
        return operator if isinstance(operator, SlicedJoin) and not self.identity else None

    @property
    def terms(self) -> Terms:
        """What the coordinator must know of it."""
        streams = self.plan.streams
        return Terms(
            tuple(one.window.lateness_us if one.window else None for one in streams),
            self.adapt,
            self.life_us,
            self.shaping,
            self.sliced,
            self.identity,
        )

"""One operator of a running query as plain data that does not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spillway.coordinator.terms import Terms
from spillway.faults import Faults
from spillway.operators.operator import Expiring, Operator
from spillway.operators.theta.sliced import SlicedJoin
from spillway.plan.join import Plan
from spillway.policies.local.spare import Spare
from spillway.policies.shape.shaping import Shaping
from spillway.settings import Adapt
from spillway.spark.runtime.exchange.lanes import Lanes


@dataclass(frozen=True)
class QuerySpec:
    """Everything about an operator that does not change while the query runs."""

    plan: Plan
    lanes: Lanes
    operator: Operator
    schema: StructType
    #: The user's where and select, applied to the results.
    shape: Callable[[DataFrame], DataFrame]
    #: Turns the results of the operator before into rows of this one.
    feed: Callable[[DataFrame], DataFrame]
    adapt: Adapt
    query_id: str
    identity: bool = False
    faults: Faults = field(default_factory=Faults)
    #: The shapes that slots may have; None: the operator has only one.
    shaping: Shaping | None = None
    #: The memory that the slots share, if the user has set no limit.
    spare: Spare | None = None
    #: How the join is distributed and why, if the query chose it.
    distribution: str | None = None

    @property
    def life_us(self) -> int | None:
        """How long an old row matters in event time, with lateness; None: forever."""
        windows = [stream.window for stream in self.plan.streams if stream.window is not None]
        if self.operator.untracked or not windows:
            return None
        return max(window.window_us + window.lateness_us for window in windows)

    @property
    def sliced(self) -> SlicedJoin | None:
        """The operator, if it is a time-sliced join."""
        operator = self.operator
        return operator if isinstance(operator, SlicedJoin) and not self.identity else None

    @property
    def terms(self) -> Terms:
        """What the coordinator needs to know."""
        streams = self.plan.streams
        return Terms(
            tuple(one.window.lateness_us if one.window else None for one in streams),
            self.adapt,
            self.life_us,
            self.shaping,
            self.sliced,
            self.identity,
            self.spare,
            final=isinstance(self.operator, Expiring) and not self.identity,
        )

"""The builder of a dedup. It is immutable and checks its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql.types import StructType

from spillway.operators.grouping.dedup import DedupOperator
from spillway.plan.dedup import DedupPlan
from spillway.plan.join import StreamPlan, WindowPlan
from spillway.settings import Adapt
from spillway.spark.api.result import Planned, Result
from spillway.spark.runtime.exchange.lanes import assign_lanes, nullable

#: Hint for parallel tracks, which cannot move a dedup with `within`.
EVERY_INSTEAD = (
    "use every= instead of within=: it keeps one row of each key in each time interval, "
    "whatever came before the interval"
)


@dataclass(frozen=True)
class Dedup(Result):
    """A dedup that has not started; `writeStream` starts it.

    A row is a result if its key is new. With `within`, it is a result if no other result of its key is
    closer in time than the range. With `every`, it is a result if it is the first of its key in its
    time interval.
    """

    KIND: ClassVar[str] = "a dedup"
    WHY_MODES: ClassVar[str] = "a dedup never changes or withdraws a row that it let through"

    keys: tuple[str, ...] = ()
    window: WindowPlan | None = None
    #: The column that orders the rows of a batch if there is no window.
    by: str | None = None

    @property
    def whole_schema(self) -> StructType:
        """The columns of the stream."""
        [frame] = self.frames.values()
        whole = nullable(frame.schema)
        assert isinstance(whole, StructType)
        return whole

    def planned(self, adapt: Adapt) -> Planned:
        """The checked dedup."""
        [(name, frame)] = self.frames.items()
        types = [nullable(frame.schema[key].dataType) for key in self.keys]
        columns = tuple((f.name, f.dataType.simpleString()) for f in frame.schema.fields)
        source = StreamPlan(name, columns, self.keys, self.window, null_keys=True)
        plan = DedupPlan(source, tuple(kind.simpleString() for kind in types), self.by)
        lanes = assign_lanes(plan, self.frames, types)
        order = None if self.by is None else frame.columns.index(self.by)
        window = self.window
        tumbling = window is not None and window.tumbling
        operator = DedupOperator(lanes.streams[0], order, adapt.block_rows, tumbling=tumbling)
        hint = "" if window is None or tumbling else EVERY_INSTEAD
        return Planned(plan, lanes, self.frames, operator, track_hint=hint)

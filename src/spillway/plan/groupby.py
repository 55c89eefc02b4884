"""The plan of a group-by: keys and aggregates, as plain values without Spark objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from spillway.plan.join import StreamPlan, streams_fingerprint
from spillway.plan.windows import EventWindows


@dataclass(frozen=True)
class AggregatePlan:
    """One aggregate: its name, its function, and its input."""

    name: str
    function: str
    #: All of it in the user's words.
    text: str


@dataclass(frozen=True)
class GroupByPlan:
    """Aggregates of one stream by key."""

    OPERATOR: ClassVar[str] = "group-by"

    stream: StreamPlan
    key_types: tuple[str, ...]
    aggregates: tuple[AggregatePlan, ...]
    #: The number of last rows that aggregates cover, and the column that orders the rows of a batch;
    #: None: all rows, or those in the window of the stream.
    last: tuple[int, str | None] | None = None
    #: The windows of event time, and the output mode; None: there are none.
    windows: EventWindows | None = None
    mode: str = "update"

    @property
    def streams(self) -> tuple[StreamPlan, ...]:
        """The one input stream."""
        return (self.stream,)

    def fingerprint(self) -> dict[str, Any]:
        """The plan as plain data, for the checkpoint's metadata."""
        aggregates = [[one.name, one.function, one.text] for one in self.aggregates]
        found = {
            **streams_fingerprint(self),
            "operator": self.OPERATOR,
            "aggregates": aggregates,
            "last": None if self.last is None else list(self.last),
        }
        # Fingerprints of other group-bys must stay as older checkpoints have them.
        if self.windows is not None:
            found["windows"] = self.windows.fingerprint(self.mode)
        return found

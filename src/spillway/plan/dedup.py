"""The plan of a dedup: keys and a window, with nothing of Spark's objects in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from spillway.plan.join import StreamPlan, streams_fingerprint


@dataclass(frozen=True)
class DedupPlan:
    """One row of each key, or one per range or stretch of time."""

    OPERATOR: ClassVar[str] = "dedup"

    stream: StreamPlan
    key_types: tuple[str, ...]
    #: What orders the rows of a batch, where there is no window; None: their content alone.
    by: str | None = None

    @property
    def streams(self) -> tuple[StreamPlan, ...]:
        """The one stream that comes in."""
        return (self.stream,)

    def fingerprint(self) -> dict[str, Any]:
        """The plan as plain data, for the checkpoint's metadata."""
        return {**streams_fingerprint(self), "operator": self.OPERATOR, "by": self.by}

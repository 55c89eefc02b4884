"""The plan of a dedup: keys and a window, as plain values without Spark objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from spillway.plan.join import StreamPlan, streams_fingerprint


@dataclass(frozen=True)
class DedupPlan:
    """One row of each key, or one per range of time or tumbling window."""

    OPERATOR: ClassVar[str] = "dedup"

    stream: StreamPlan
    key_types: tuple[str, ...]
    #: The column that orders the rows of a batch where there is no window; None: only their content.
    by: str | None = None

    @property
    def streams(self) -> tuple[StreamPlan, ...]:
        """The one input stream."""
        return (self.stream,)

    def fingerprint(self) -> dict[str, Any]:
        """The plan as plain data, for the checkpoint's metadata."""
        return {**streams_fingerprint(self), "operator": self.OPERATOR, "by": self.by}

"""What makes rows wait, leave memory and move: settings, and what the log then tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spillway.coordinator.batch.committed import Committed
from spillway.metrics.events import Event, GroupsChosen, Scaled, Spilled

_OFTEN: dict[str, Any] = {"relocation_batches": 1, "relocation_threshold": 0.99}

#: Settings; `round_bytes` are the bytes of a round of cleanup.
MECHANISMS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "generations": {"memory": 5_000, "round_bytes": 4_000, "strategy": "spill-only"},
    "moves": {"strategy": "relocate-only", **_OFTEN},
    "tracks": {"strategy": "relocate-only", "moves": "ptlb", **_OFTEN},
    "both": {"memory": 2_000, "round_bytes": 4_000, "strategy": "active-disk", **_OFTEN},
    "rotation": {"memory": 800, "spill_mode": "rotation", "t_gap": "1 millisecond"},
    "copies": {"distribute": "ctr", "copies": 2, "memory": 5_000, "strategy": "spill-only"},
    "segments": {
        "distribute": "atr",
        "segment": "4 minutes",
        "strategy": "relocate-only",
        **_OFTEN,
    },
    "ring": {"ring": "auto", "adjustment": "passive"},
    "skew buffer": {"skew_buffer": "1MB", "batch_target": "1 millisecond"},
}


def _happened(kind: type[Event]) -> Callable[[Committed], bool]:
    """Whether a commit tells of such an event; one of no groups is none, but of slots."""
    return lambda state: any(
        isinstance(event, kind) and (event.groups or kind is Scaled) for event in state.events
    )


def _waited(state: Committed) -> bool:
    return state.spooled_rows > 0


#: What the log of a query in which a mechanism has worked tells, of some batch or round.
WORKED: dict[str, Callable[[Committed], bool]] = {
    "generations": _happened(Spilled),
    "moves": _happened(GroupsChosen),
    "tracks": _happened(GroupsChosen),
    "both": _happened(Spilled),
    "rotation": _waited,
    "copies": _happened(Spilled),
    "segments": _happened(GroupsChosen),
    "ring": _happened(Scaled),
    "skew buffer": _waited,
}

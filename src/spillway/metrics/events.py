"""Events: what a query did to its own state, one typed record each.

They travel in the slot records. The query keeps them in its log, its progress and its `events`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spillway.codec import tagged


@tagged("event", by="kind")
@dataclass(frozen=True)
class Event:
    """A change to groups of one slot in one batch."""

    kind: ClassVar[str] = "event"

    batch: int
    slot: int
    #: The groups, and their bytes.
    groups: tuple[int, ...]
    bytes: int
    seconds: float
    #: The reason, for people.
    reason: str


@dataclass(frozen=True)
class Spilled(Event):
    """The slot moved groups to disk, as a new generation."""

    kind: ClassVar[str] = "spilled"


@dataclass(frozen=True)
class ForceSpilled(Spilled):
    """The same, because the coordinator ordered it."""

    kind: ClassVar[str] = "force-spilled"


@dataclass(frozen=True)
class CleanedUp(Event):
    """The slot produced missing results of groups; the parts that missed them are one part again."""

    kind: ClassVar[str] = "cleaned-up"

    rows_out: int = 0


@dataclass(frozen=True)
class Reloaded(CleanedUp):
    """The same, and the groups are in memory again."""

    kind: ClassVar[str] = "reloaded"


@dataclass(frozen=True)
class MoveEvent(Event):
    """A step of a move; `slot` is the sender, `seconds` the time since the step before."""

    #: The message of DCAPE-TR 5.1, or of PLANS 3.2, for this step.
    message: ClassVar[str] = ""

    move: int
    receiver: int


@dataclass(frozen=True)
class MoveAsked(MoveEvent):
    """Step 1: the coordinator wants to move state."""

    kind: ClassVar[str] = "move-asked"
    message: ClassVar[str] = "ComputePartitionsToMove"


@dataclass(frozen=True)
class GroupsChosen(MoveEvent):
    """Step 2: the sender has chosen groups; none ends the move."""

    kind: ClassVar[str] = "groups-chosen"
    message: ClassVar[str] = "PartitionsToMove"


@dataclass(frozen=True)
class DeactivationAsked(MoveEvent):
    """Step 3: the coordinator orders rows of the groups to wait."""

    kind: ClassVar[str] = "deactivation-asked"
    message: ClassVar[str] = "DeactivatePartitions"


@dataclass(frozen=True)
class GroupsDeactivated(MoveEvent):
    """Step 4: these rows wait."""

    kind: ClassVar[str] = "groups-deactivated"
    message: ClassVar[str] = "Deactivated"


@dataclass(frozen=True)
class SendingAsked(MoveEvent):
    """Step 5: the coordinator orders the sender to send the groups."""

    kind: ClassVar[str] = "sending-asked"
    message: ClassVar[str] = "SendPartitions"


@dataclass(frozen=True)
class GroupsSent(MoveEvent):
    """Step 6: the first bytes have reached the receiver."""

    kind: ClassVar[str] = "groups-sent"
    message: ClassVar[str] = "ReceivePartitions"


@dataclass(frozen=True)
class GroupsReceived(MoveEvent):
    """Step 7: the last bytes have reached it."""

    kind: ClassVar[str] = "groups-received"
    message: ClassVar[str] = "Received"


@dataclass(frozen=True)
class GroupsReactivated(MoveEvent):
    """Step 8: the receiver serves the groups, rows that waited first."""

    kind: ClassVar[str] = "groups-reactivated"
    message: ClassVar[str] = "ReactivatePartitions"


@dataclass(frozen=True)
class SendingFailed(MoveEvent):
    """Sending the groups failed; the coordinator retries or gives up the move."""

    kind: ClassVar[str] = "sending-failed"


@dataclass(frozen=True)
class MoveRolledBack(MoveEvent):
    """The sender serves the groups again, because the coordinator gave up the move."""

    kind: ClassVar[str] = "move-rolled-back"
    message: ClassVar[str] = "ReactivatePartitions"


@dataclass(frozen=True)
class DuplicationAsked(MoveEvent):
    """Step 3 of a parallel track: new rows of the groups go to both slots."""

    kind: ClassVar[str] = "duplication-asked"
    message: ClassVar[str] = "DuplicatePartitions"


@dataclass(frozen=True)
class OldPurged(MoveEvent):
    """Step 4 of a parallel track: the sender has no old row that counts."""

    kind: ClassVar[str] = "old-purged"
    message: ClassVar[str] = "AllOldPurged"


@dataclass(frozen=True)
class GroupsDeleted(MoveEvent):
    """Step 5 of a parallel track: the sender has dropped the groups."""

    kind: ClassVar[str] = "groups-deleted"
    message: ClassVar[str] = "DeletePartitions"


@dataclass(frozen=True)
class TrackGivenUp(MoveEvent):
    """The coordinator no longer waits for the old rows of a parallel track."""

    kind: ClassVar[str] = "track-given-up"


@dataclass(frozen=True)
class Scaled(Event):
    """The query has changed its slot count; `slot` is the new number."""

    kind: ClassVar[str] = "scaled"


@dataclass(frozen=True)
class Reshaped(Event):
    """A slot changes its join shape from the next batch on; `bytes` is the size of dropped states."""

    kind: ClassVar[str] = "reshaped"

    before: str
    shape: str


#: The events of a successful relocation, in the order of its steps.
STEPS: tuple[type[MoveEvent], ...] = (
    MoveAsked,
    GroupsChosen,
    DeactivationAsked,
    GroupsDeactivated,
    SendingAsked,
    GroupsSent,
    GroupsReceived,
    GroupsReactivated,
)

#: The same for a parallel track. Tests hold the protocols and the documentation against both.
TRACK_STEPS: tuple[type[MoveEvent], ...] = (
    MoveAsked,
    GroupsChosen,
    DuplicationAsked,
    OldPurged,
    GroupsDeleted,
)

"""The messages of the papers, under their names (DCAPE-TR 5.1, PLANS 3.2).

Coordinator, sender, receiver and split are not four machines here. Messages to slots and to the
split travel as orders in the plan of a batch; answers return in the slot records and in the commit.
Three facts have no name in the papers: a batch has reactivated groups, sending has failed, and a
parallel track is given up.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """A message about one move."""

    move: int


@dataclass(frozen=True)
class ComputePartitionsToMove(Message):
    """Step 1, coordinator to sender: choose groups with this many bytes."""


@dataclass(frozen=True)
class PartitionsToMove(Message):
    """Step 2, sender to coordinator: these groups."""

    groups: tuple[int, ...]
    bytes: int
    reason: str = ""


@dataclass(frozen=True)
class DeactivatePartitions(Message):
    """Step 3, coordinator to sender and split: no more rows for these groups."""


@dataclass(frozen=True)
class Deactivated(Message):
    """Step 4, split to coordinator: rows wait, and none is in transit."""


@dataclass(frozen=True)
class SendPartitions(Message):
    """Step 5, coordinator to sender: send the groups."""


@dataclass(frozen=True)
class ReceivePartitions(Message):
    """Step 6, sender to receiver: here they are."""


@dataclass(frozen=True)
class Received(Message):
    """Step 7, receiver to coordinator: all of them have arrived."""

    #: The manifest of the received part.
    part: str
    bytes: int


@dataclass(frozen=True)
class ReactivatePartitions(Message):
    """Step 8, coordinator to split: rows of these groups again, those that wait first."""


@dataclass(frozen=True)
class Reactivated(Message):
    """A batch that reactivated the groups is committed."""


@dataclass(frozen=True)
class SendFailed(Message):
    """Sending or receiving the groups failed."""

    reason: str


@dataclass(frozen=True)
class DuplicatePartitions(Message):
    """Step 3 of PTLB, coordinator to sender and split: rows of these groups go to both slots."""


@dataclass(frozen=True)
class AllOldPurged(Message):
    """Step 4 of PTLB, sender to coordinator: no future row can meet an old one."""


@dataclass(frozen=True)
class DeletePartitions(Message):
    """Step 5 of PTLB, coordinator to sender and split: only the receiver has the groups."""


@dataclass(frozen=True)
class EndOfPartitions(Message):
    """Split to coordinator: a batch that deleted the groups on one side is committed."""


@dataclass(frozen=True)
class GivenUp(Message):
    """The coordinator no longer waits for the old rows."""

    reason: str

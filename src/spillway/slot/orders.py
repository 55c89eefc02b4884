"""Orders: what a slot is told to do to its groups in one batch, apart from its rows.

The coordinator's protocols (spillway/protocols) speak of partitions and of machines; a slot task knows
only its own state. An order is what a message of the papers means for that state, and it is carried out
at the beginning of the batch, except for `Choose`, which is answered at its end, from the newest
statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

#: What one group is picked by.
LOAD = "load"
SIZE = "size"


@dataclass(frozen=True)
class Pick:
    """That one group is to be sent, and which; see `policies.local.picking`."""

    #: `LOAD`: the busiest with at most `share`; `SIZE`: the largest with at most the bytes asked for.
    by: str
    #: Part of the sender's load.
    share: float = 1.0
    #: No group with more bytes goes; None: no limit, but for what is asked for.
    most_bytes: int | None = None
    #: What all rows of the sender would cost the receiver, over what they cost the sender; and how busy
    #: the receiver may become, over what the sender is now. 0: no group beyond `share` goes.
    cost: float = 1.0
    ceiling: float = 0.0


@dataclass(frozen=True)
class Choose:
    """Choose groups to send, most productive first (ComputePartitionsToMove)."""

    move: int
    bytes: int
    #: The least number of groups, whatever their bytes.
    groups: int = 0
    #: All groups, also those that are on disk.
    everything: bool = False
    #: One group, of this kind.
    pick: Pick | None = None
    #: Only groups that are in memory.
    in_memory: bool = False


@dataclass(frozen=True)
class Depart:
    """Cut groups out of what is probed, to be sent (DeactivatePartitions, at the sender)."""

    move: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Park:
    """Keep the rows that come for groups, unprocessed (DeactivatePartitions, at the split)."""

    move: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Arrive:
    """Take groups over, and process the rows that waited for them (ReactivatePartitions)."""

    move: int
    #: The manifest of what was received.
    part: str


@dataclass(frozen=True)
class Leave:
    """Let go of what a move has here: it is in another slot now."""

    move: int


@dataclass(frozen=True)
class TakeBack:
    """Put groups back that were to be sent, and process the rows that waited for them elsewhere."""

    move: int
    #: The manifest of the slot where rows waited; None if none can have.
    parked_in: str | None


@dataclass(frozen=True)
class Duplicate:
    """Groups whose new rows another slot gets as well (DuplicatePartitions, at the sender).

    An additive operator makes only what needs an old row of them; a cumulative one answers for them.
    """

    move: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Shadow:
    """The same at the receiver: it serves the groups from their new rows on.

    A cumulative operator keeps what it needs of the rows, and another slot answers for them.
    """

    move: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Rejoin:
    """Make old and new rows of groups one: no other slot gets them any more."""

    move: int


@dataclass(frozen=True)
class Delete:
    """Let go of groups that another slot serves (DeletePartitions)."""

    move: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Force:
    """Move groups out of memory, below its limit or not."""

    bytes: int
    reason: str
    #: Only groups up to this class of productivity; None: all.
    below: int | None = None


Tracked = Duplicate | Shadow | Rejoin | Delete
Order = Choose | Depart | Park | Arrive | Leave | TakeBack | Tracked | Force

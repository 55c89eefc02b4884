"""Orders: what a slot must do to its groups in one batch, apart from processing rows.

The coordinator's protocols (spillway/protocols) speak of partitions and machines; a slot task knows
only its own state. An order translates a message of the papers to that state. The slot carries out
orders at the start of the batch. It answers only `Choose` at the end, from the newest statistics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: How to pick one group.
LOAD = "load"
SIZE = "size"


@dataclass(frozen=True)
class Pick:
    """An order to send one group, and which; see `policies.local.picking`."""

    #: `LOAD`: the busiest group with at most `share`; `SIZE`: the largest that fits the bytes asked
    #: for.
    by: str
    #: Fraction of the sender's load.
    share: float = 1.0
    #: Maximum bytes of the group; None: no limit except the bytes asked for.
    most_bytes: int | None = None
    #: Cost of all the sender's rows at the receiver, relative to their cost at the sender; and how
    #: busy the receiver may become, relative to the sender now. 0: no group above `share` goes.
    cost: float = 1.0
    ceiling: float = 0.0


@dataclass(frozen=True)
class Choose:
    """Choose groups to send, most productive first (ComputePartitionsToMove)."""

    move: int
    bytes: int
    #: The least number of groups, regardless of bytes.
    groups: int = 0
    #: All groups, including those on disk.
    everything: bool = False
    #: One group, chosen this way.
    pick: Pick | None = None
    #: Only groups that are in memory.
    in_memory: bool = False


@dataclass(frozen=True)
class Depart:
    """Remove groups from the probed state, ready to send (DeactivatePartitions, at the sender)."""

    move: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Park:
    """Buffer the rows that arrive for groups in transit (DeactivatePartitions, at the split)."""

    move: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Arrive:
    """Take over groups, and process the rows that waited for them (ReactivatePartitions)."""

    move: int
    #: The manifest of the received part.
    part: str


@dataclass(frozen=True)
class Leave:
    """Drop what a move has here: another slot owns it now."""

    move: int


@dataclass(frozen=True)
class TakeBack:
    """Put back groups that were to be sent, and process the rows that waited for them elsewhere."""

    move: int
    #: The manifest of the slot where rows waited; None if there cannot be any.
    parked_in: str | None


@dataclass(frozen=True)
class Duplicate:
    """Groups whose new rows another slot receives too (DuplicatePartitions, at the sender).

    An additive operator produces only results that need an old row; a cumulative one still answers.
    """

    move: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Shadow:
    """The same at the receiver: it serves the groups, starting with their new rows.

    A cumulative operator keeps what it needs of the rows; the sender produces the results.
    """

    move: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Rejoin:
    """Merge the old and new rows of groups: no other slot receives them now."""

    move: int


@dataclass(frozen=True)
class Delete:
    """Drop groups that another slot serves (DeletePartitions)."""

    move: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Force:
    """Spill groups, even if memory is below its limit."""

    bytes: int
    reason: str
    #: Only groups up to this productivity class; None: all.
    below: int | None = None


Tracked = Duplicate | Shadow | Rejoin | Delete
Order = Choose | Depart | Park | Arrive | Leave | TakeBack | Tracked | Force


def pinned_groups(orders: Iterable[Order]) -> frozenset[int]:
    """Returns the groups that another slot serves too, in a parallel track."""
    shared = (order.groups for order in orders if isinstance(order, Duplicate | Shadow))
    return frozenset(group for groups in shared for group in groups)

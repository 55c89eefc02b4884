"""The memory limit of a query that sets none: a share of what is free when it starts.

Without a limit, state grows until the kernel kills the container. So the slots of a host share half
of its free memory. The other half is for Python workers, shuffles and other queries. Memory that the
heaps of Spark may still take counts as used. All slots get the same limit, from the host with the least
room, since a slot can move to any host.

The query decides once, at its start. Notes have the limit of every slot, so a repeated batch has the
limits of its first run.

Known limitation: two queries that start at the same time each take half of the same free memory, so
together all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spillway.capacity import Free

#: The part of the free memory that state may take.
SHARE = 0.5
#: A slot gets this much even if less is free: with less it would spill all the time.
LEAST_BYTES = 32 << 20


@dataclass(frozen=True)
class Room:
    """One host that runs slots."""

    free: tuple[Free, ...]
    #: What the heaps of Spark on this host may still take.
    reserved_bytes: int = 0
    #: Executors of the query there; slots spread evenly over them.
    executors: int = 1


@dataclass(frozen=True)
class Spare:
    """The memory of all slots together, and why it is this much."""

    pool_bytes: int
    reason: str

    def limit_of(self, slots: int) -> int:
        """The limit of one slot of `slots`."""
        return max(LEAST_BYTES, self.pool_bytes // max(1, slots))


def spare_memory(rooms: Sequence[Room], slots: int, stages: int = 1) -> Spare | None:
    """The memory for the slots of one of several stages; None if no host can tell what is free."""
    executors = sum(room.executors for room in rooms)
    found = []
    for room in rooms:
        if not room.free:
            continue
        least = min(room.free, key=lambda one: one.bytes)
        there = max(1, math.ceil(slots * room.executors / executors))
        usable = int(max(0, least.bytes - room.reserved_bytes) * SHARE)
        found.append((usable // (there * stages), least, there))
    if not found:
        return None
    limit, least, there = min(found, key=lambda one: one[0])
    limit = max(LEAST_BYTES, limit)
    reason = (
        f"half of what {least.source} leaves ({least.bytes >> 20} MiB free at the start), for "
        f"{there} slots on the host" + (f" in each of {stages} stages" if stages > 1 else "")
    )
    return Spare(limit * slots, reason)

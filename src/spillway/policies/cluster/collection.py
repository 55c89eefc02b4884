"""How long statistics are collected before groups move again: the rounds of FLUX section 5.3.

Statistics are collected for a while, delta; an evaluation decides on moves; while they are under way
nothing is decided, and what is measured meanwhile does not count. Then statistics are collected again,
for as long as the moves took. So even if every decision is a bad one, at most half of the time goes into
moving. Where an evaluation moves nothing, the next is due in half the time, but never before delta_min.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


def collection_s(last_s: float, moving_s: float | None, least_s: float) -> float:
    """How long statistics are collected next: delta.

    Args:
        last_s: How long they were collected last.
        moving_s: How long the moves took; None if no group has moved.
        least_s: The least: delta_min.

    Example:
        >>> collection_s(4.0, 3.0, 1.0), collection_s(4.0, None, 1.0), collection_s(1.5, None, 1.0)
        (3.0, 2.0, 1.0)
    """
    return max(least_s, last_s / 2 if moving_s is None else moving_s)


@dataclass(frozen=True)
class Collection:
    """Where the rounds stand."""

    #: How long statistics are collected; the least until something has moved.
    delta_s: float = 0.0
    #: Whether moves of the last evaluation are under way, and whether any of them has a group: a sender
    #: may have none to give.
    moving: bool = False
    moved: bool = False

    def due(self, elapsed_s: float, least_s: float) -> bool:
        """Whether slots are to be compared, so long after collecting began."""
        return not self.moving and elapsed_s >= max(self.delta_s, least_s)

    def decided(self, least_s: float, *, moves: bool) -> Collection:
        """After an evaluation: moves begin, or statistics are collected anew."""
        if moves:
            return replace(self, moving=True, moved=False)
        return Collection(collection_s(self.delta_s, None, least_s))

    def seen(self, *, groups: bool) -> Collection:
        """While moves are under way: whether groups were chosen for one of them."""
        return replace(self, moved=self.moved or groups)

    def ended(self, moving_s: float, least_s: float) -> Collection:
        """When the moves are over that took so long: statistics are collected from now on."""
        return Collection(collection_s(self.delta_s, moving_s if self.moved else None, least_s))

"""How long to collect statistics before groups move again: the cycle of FLUX section 5.3.

The query collects statistics for a time delta; then an evaluation decides on moves. While they run,
nothing is decided and measurements do not count. Then it collects for as long as the moves took. So
even if every decision is bad, moving takes at most half of the time. If an evaluation moves nothing,
the next is due in half the time, but never before delta_min.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


def collection_s(last_s: float, moving_s: float | None, least_s: float) -> float:
    """Returns how long to collect statistics next: delta.

    Args:
        last_s: How long the last collection took.
        moving_s: How long the moves took; None if no group has moved.
        least_s: The minimum: delta_min.

    Example:
        >>> collection_s(4.0, 3.0, 1.0), collection_s(4.0, None, 1.0), collection_s(1.5, None, 1.0)
        (3.0, 2.0, 1.0)
    """
    return max(least_s, last_s / 2 if moving_s is None else moving_s)


@dataclass(frozen=True)
class Collection:
    """The current position in the cycle."""

    #: How long to collect statistics; the minimum until something has moved.
    delta_s: float = 0.0
    #: Whether moves of the last evaluation are running, and whether any of them has a group: a
    #: sender may have none to give.
    moving: bool = False
    moved: bool = False

    def due(self, elapsed_s: float, least_s: float) -> bool:
        """Whether an evaluation is due, `elapsed_s` after the collection began."""
        return not self.moving and elapsed_s >= max(self.delta_s, least_s)

    def decided(self, least_s: float, *, moves: bool) -> Collection:
        """Returns the state after an evaluation: moves begin, or a new collection starts."""
        if moves:
            return replace(self, moving=True, moved=False)
        return Collection(collection_s(self.delta_s, None, least_s))

    def seen(self, *, groups: bool) -> Collection:
        """Returns the state while moves run: whether one of them has groups."""
        return replace(self, moved=self.moved or groups)

    def ended(self, moving_s: float, least_s: float) -> Collection:
        """Returns the state after moves that took `moving_s`: a new collection starts."""
        return Collection(collection_s(self.delta_s, moving_s if self.moved else None, least_s))

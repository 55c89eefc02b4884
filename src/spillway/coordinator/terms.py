"""The terms of a stage: plain data for decisions that does not change while a query runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from spillway.operators.theta.sliced import SlicedJoin
from spillway.policies.local.spare import Spare
from spillway.policies.shape.shaping import Shaping
from spillway.settings import Adapt, parse_bytes


@dataclass(frozen=True)
class Terms:
    """The settings of one stage, and what its operator allows."""

    #: How late rows may come, for each stream; None: the stream has no window.
    lateness_us: tuple[int | None, ...]
    adapt: Adapt = field(default_factory=Adapt)
    #: How long an old row counts; None: forever.
    life_us: int | None = None
    #: The permitted join shapes of slots; None: the operator has only one.
    shaping: Shaping | None = None
    #: The operator, if all rows visit it in all slots.
    join: SlicedJoin | None = None
    #: Whether rows pass through without state, so that nothing is committed.
    identity: bool = False
    #: The memory that slots share if the user has set no limit, and why it is this much.
    spare: Spare | None = None
    #: Whether slots give results when the watermark advances, without a row.
    final: bool = False

    @property
    def streams(self) -> int:
        """The number of input streams."""
        return len(self.lateness_us)

    @property
    def copies(self) -> int:
        """The number of copies of a slice."""
        return 1 if self.join is None else self.join.slicing.copies

    def memory_of(self, slot: int, slots: int) -> int | None:
        """The memory of one of `slots` slots in bytes; None: no limit."""
        return self.adapt.memory_of(slot) if self.spare is None else self.spare.limit_of(slots)

    @property
    def buffer_bytes(self) -> int:
        """The bytes that may wait for groups in transit before batches wait for them."""
        return parse_bytes("buffer", self.adapt.buffer)

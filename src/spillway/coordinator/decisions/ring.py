"""The slot count of a join on predicates, and how slots come and go.

With `ring="auto"` every batch is an evaluation (policies/ring/length.py). A decision becomes a
request for another slot count, like `query.scale()`. A ring begins with all its slots: before any
measurement, that is what the user asked for. A restart forgets the measurements; the log keeps the
length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spillway.coordinator.batch.committed import Committed, Scaling
from spillway.coordinator.decisions.visiting import Model
from spillway.metrics.record import SlotRecord
from spillway.policies.ring.length import BEHIND, Length
from spillway.policies.ring.model import utilisation
from spillway.policies.ring.slicing import RingRules
from spillway.settings import AUTO, Adapt


@dataclass(frozen=True)
class Ring:
    """The slot count of one join, and the latest evaluations of it."""

    adapt: Adapt
    most: int
    length: Length

    @classmethod
    def of(cls, adapt: Adapt, most: int) -> Ring:
        """Returns a ring without measurements, of at most `most` slots."""
        rules = RingRules(most, adjustment=adapt.adjustment, behind=BEHIND)
        return cls(adapt, most, Length(rules))

    @property
    def automatic(self) -> bool:
        """Whether measurements decide."""
        return self.adapt.ring == AUTO

    def slots_at_start(self, state: Committed) -> int | None:
        """Returns the slots that a start must have; None: those that it finds."""
        if not self.automatic or state.batch < 0:
            return self.most
        found = state.routing.slots if state.scaling is None else state.scaling.slots
        return None if found <= self.most else self.most

    def passive(self, model: Model | None, slots: int) -> bool:
        """Whether slots now come and go without moves."""
        busy = 0.0 if model is None else utilisation(*model, slots)
        return not self.length.rules.moves(busy)

    def observed(
        self,
        state: Committed,
        records: Mapping[int, SlotRecord],
        model: Model | None,
        *,
        changing: bool,
    ) -> tuple[Ring, Scaling | None]:
        """Returns the ring after a batch, and the change that is due, if any.

        While slots change, and until new ones have rows, no measurement counts. Only for an automatic
        ring.
        """
        if state.round:
            return self, None
        length, held = self.length, [sum(one.held_rows) for one in records.values()]
        settled = len(held) == state.routing.slots and all(held)
        if changing or state.moves or state.scaling is not None or not settled:
            length = length.rested()
        elif model is not None:
            length = length.observed(*model, state.routing.slots)
        if (due := length.decided) is None:
            return replace(self, length=length), None
        wish = Scaling(due.slots, passive=not due.aggressive, reason=due.reason)
        return replace(self, length=length.rested()), wish

    def lines(self, state: Committed, wished: Scaling | None) -> list[str]:
        """Returns its lines in `explain`."""
        slots = state.routing.slots
        told = self.length.told(slots) if self.automatic else f"{slots} slots in use"
        lines = [f"ring {self.adapt.ring}, adjustment {self.adapt.adjustment}: {told}"]
        if (change := state.scaling or wished) is not None:
            how = "as rows come and expire" if change.passive else "by moves"
            why = f": {change.reason}" if change.reason else ""
            lines.append(f"ring of {slots} changes to {change.slots} slots, {how}{why}")
        return lines

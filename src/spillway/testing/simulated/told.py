"""Policies that follow a script instead of measurements.

They run through the same code as the product's policies: `adapt`, `reshape`, `hear`. They drop a
decision that the product would refuse, because a slot is busy or a track cannot begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway.coordinator.decisions.adaptation import Rules
from spillway.metrics.record import SlotRecord
from spillway.metrics.view import NORMAL, ClusterView
from spillway.plan.shape import Shape
from spillway.policies.cluster.decision import Decision, ForceSpill, Move
from spillway.policies.cluster.protocols import Protocols
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.local.skew import Skew
from spillway.policies.shape.proposal import Reshape
from spillway.policies.shape.shaping import TREE, Shaping, SlotShape
from spillway.slot.limits import Budget


@dataclass
class Script:
    """The requests that no policy has carried out yet."""

    decisions: list[Decision] = field(default_factory=list)
    shapes: dict[int, Shape] = field(default_factory=dict)
    #: Whether to give up parallel tracks before the next batch.
    impatient: bool = False
    #: What a slot may process in a batch; None: everything.
    budget: Budget | None = None


@dataclass(frozen=True, eq=False)
class ToldStrategy(Strategy):
    """Begins the moves and spills of the script where slots are free."""

    script: Script = field(default_factory=Script)

    def decide(self, view: ClusterView) -> tuple[Decision, ...]:
        """The decisions of the script whose slots are free."""
        free = {slot.slot for slot in view.slots if slot.mode == NORMAL}
        taken: set[int] = set()
        chosen: list[Decision] = []
        for one in self.script.decisions:
            slots = {one.slot} if isinstance(one, ForceSpill) else {one.sender, one.receiver}
            alone = isinstance(one, Move) and len(slots) == 1
            if slots <= free - taken and not alone:
                taken |= slots
                chosen.append(one)
        self.script.decisions.clear()
        return tuple(chosen)


@dataclass(frozen=True, eq=False)
class ToldProtocols(Protocols):
    """Uses the protocol of the script if the product could."""

    script: Script = field(default_factory=Script)

    def of(self, move: Move, view: ClusterView) -> Move:
        """The move, with the scripted protocol if possible."""
        return Protocols(move.protocol, self.life_s).of(move, view)

    def impatience(self, lasted_s: float, batch_s: float) -> str:
        """The reason to give up a track now; "" to keep it."""
        return "a test" if self.script.impatient else super().impatience(lasted_s, batch_s)


@dataclass(frozen=True, eq=False)
class ToldShaping(Shaping):
    """Gives slots the shapes of the script."""

    script: Script = field(default_factory=Script)

    @classmethod
    def of(cls, names: tuple[str, ...], first: Shape, script: Script) -> ToldShaping:
        """Shapes over these streams, beginning with one."""
        return cls(names, TREE, first, script=script)

    @property
    def fixed(self) -> None:
        """No shape is fixed."""
        return None

    @property
    def first(self) -> Shape:
        """The shape to begin with."""
        assert self.given is not None
        return self.given

    def decided(
        self, slot: int, known: SlotShape, room_bytes: float | None
    ) -> tuple[Reshape | None, SlotShape]:
        """The shape of the script, if it differs."""
        shape = self.script.shapes.get(slot)
        if shape is None or shape == known.shape:
            return None, known
        return Reshape(slot, shape, "a test"), known


@dataclass(frozen=True, eq=False)
class ToldSkew(Skew):
    """Gives every slot the budget of the script."""

    script: Script = field(default_factory=Script)

    def observed(self, records: Mapping[int, SlotRecord], *, is_round: bool = False) -> Skew:
        """Returns the same: it measures nothing."""
        return self

    def budgets(self) -> dict[int, Budget]:
        """The budget of the script, for every slot."""
        budget = self.script.budget
        return {} if budget is None else dict.fromkeys(range(64), budget)


def told_rules(script: Script, life_s: float | None) -> Rules:
    """Rules that compare slots after every batch and let the script decide."""
    strategy = ToldStrategy("lazy-disk", script=script)
    protocols = ToldProtocols("auto", life_s, script=script)
    return Rules(strategy, interval_batches=1, protocols=protocols)

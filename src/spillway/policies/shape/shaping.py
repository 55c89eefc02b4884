"""The shape of one slot's join from batch to batch: what is allowed, what is measured, what follows.

`Shaping` is what `plan(...)` of a join says. A *fixed* shape is every slot's from the next batch on. A
"tree" begins left-deep, has the cheapest binary tree when it is first evaluated with anything measured,
and "auto" may also join at once, which it begins with; from then on both change with hysteresis
(policies/shape/proposal.py).

Rates are averaged over batches, each of which counts twice as much as the one before: streams whose rows
come in turns look alike. Selectivities are blended where they are sampled (operators/stats.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

from spillway.errors import PlanError, QueryError
from spillway.metrics.counts import Sampled
from spillway.metrics.record import SlotRecord
from spillway.plan.shape import Shape, binary_shapes, flat, left_deep, parse
from spillway.policies.shape.costs import (
    MOST_STREAMS,
    Estimate,
    JoinRates,
    ShapeCost,
    cheapest,
    join_rates,
)
from spillway.policies.shape.proposal import Reshape, ShapeRules, Wish, propose

NWAY, TREE, AUTO = "nway", "tree", "auto"
PLANS = (NWAY, TREE, AUTO)
#: Streams up to which the costs of all binary trees are told: 15 of four.
_TOLD_STREAMS = 4
#: What cannot be in the name of a stream that is written in a shape.
_MARKS = frozenset("()+")


@dataclass(frozen=True)
class SlotShape:
    """The shape of one slot's join, and what the next decision is to know."""

    shape: Shape
    wish: Wish = field(default_factory=Wish)
    #: What was measured last; None before.
    rates: JoinRates | None = None
    #: Whether measurements have decided about it; before that nothing but a start speaks for it.
    chosen: bool = False

    def costs(self) -> dict[Shape, ShapeCost]:
        """What the shape would cost by what was measured, and then the others, cheapest first.

        Of more than four streams the others are the cheapest and the n-way join, and of so many that
        shapes are not compared the n-way join alone.
        """
        if self.rates is None:
            return {}
        estimate, names = Estimate(self.rates), self.rates.names
        others = {flat(names)}
        if len(names) <= MOST_STREAMS:
            others.add(cheapest(self.rates))
        if len(names) <= _TOLD_STREAMS:
            others |= {one for one in binary_shapes(names) if isinstance(one, Shape)}
        found = {shape: estimate.cost(shape) for shape in (self.shape, *others)}
        order = sorted(found, key=lambda one: (one != self.shape, found[one].work, str(one)))
        return {shape: found[shape] for shape in order}


@dataclass(frozen=True)
class Shaping:
    """What shapes the slots of a join may have."""

    #: The streams, in the order in which they come.
    names: tuple[str, ...]
    kind: str = NWAY
    #: The shape of all slots, where it is given.
    given: Shape | None = None

    def __post_init__(self) -> None:
        if self.kind not in PLANS:
            raise PlanError(
                f"there is no plan {self.kind!r}",
                hint='use plan("nway"), plan("tree") or plan("auto"), or plan(shape="((a b) c)")',
            )
        if self.given is not None:
            self._check_given(self.given)
        if self.kind == NWAY:
            return
        if odd := [name for name in self.names if _MARKS & set(name) or name.split() != [name]]:
            raise PlanError(
                f"stream {odd[0]!r} cannot be written in a shape",
                hint='use a name without spaces, brackets and plus signs, or plan("nway")',
            )
        if self.given is None and len(self.names) > MOST_STREAMS:
            raise PlanError(
                f'plan("{self.kind}") compares shapes of up to {MOST_STREAMS} streams, '
                f"not {len(self.names)}",
                hint='use plan("nway"), or say the shape: plan(shape="((a b) c ...)")',
            )

    def _check_given(self, given: Shape) -> None:
        if self.kind != TREE:
            raise PlanError(
                f'plan("{self.kind}") takes no shape',
                hint=f'use plan(shape="{given}") for this shape in every slot',
            )
        unknown = [name for name in given.streams if name not in self.names]
        missing = [name for name in self.names if name not in given.streams]
        if unknown or missing:
            what = f"names no stream {unknown[0]}" if unknown else f"leaves out {missing[0]}"
            raise PlanError(
                f"plan(shape={str(given)!r}) {what}",
                hint=f"the streams are {', '.join(self.names)}, each of them once",
            )

    @classmethod
    def asked(cls, names: Sequence[str], kind: str | None, shape: str | None) -> Shaping:
        """What a user says, checked."""
        if shape is None:
            return cls(tuple(names), NWAY if kind is None else kind)
        hint = 'write streams in brackets, two or more in each, for example "((a b) c)"'
        if not isinstance(shape, str):
            raise PlanError(f"plan(shape={shape!r}): a shape is text", hint=hint)
        try:
            return cls(tuple(names), TREE if kind is None else kind, parse(shape))
        except QueryError as problem:
            raise PlanError(problem.message, hint=problem.hint or hint) from None

    @cached_property
    def fixed(self) -> Shape | None:
        """The one shape that slots may have; None: it is chosen."""
        return flat(self.names) if self.kind == NWAY else self.given

    @cached_property
    def first(self) -> Shape:
        """The shape that a slot begins with."""
        if self.fixed is not None:
            return self.fixed
        return left_deep(self.names) if self.kind == TREE else flat(self.names)

    def observed(self, known: SlotShape, record: SlotRecord, seconds: float) -> SlotShape:
        """What is known of a slot after a batch whose rows came in so many seconds."""
        if seconds <= 0 or not _measured(len(self.names), record):
            return known
        rates = join_rates(self.names, record, seconds)
        return replace(known, rates=rates if known.rates is None else _averaged(known.rates, rates))

    def decided(
        self, slot: int, known: SlotShape, room_bytes: float | None
    ) -> tuple[Reshape | None, SlotShape]:
        """Whether a slot is to have another shape now, and what the next decision is to know."""
        if self.fixed is not None:
            change = None
            if known.shape != self.fixed:
                change = Reshape(slot, self.fixed, "the query asks for it")
            return change, replace(known, wish=Wish())
        if known.rates is None:
            return None, known
        rules = ShapeRules(room_bytes=room_bytes, binary=self.kind == TREE)
        if not known.chosen and self.kind == TREE:
            rules = replace(rules, margin=0.0, evaluations=1)
        change, wish = propose(slot, known.rates, known.shape, known.wish, rules)
        return change, replace(known, wish=wish, chosen=True)


def _measured(streams: int, record: SlotRecord) -> bool:
    """Whether something is known of all pairs of streams."""
    sampled = {key for key, (pairs, _) in record.sampled.items() if pairs}
    return all(
        Sampled(str(i), str(j)) in sampled or Sampled(str(j), str(i)) in sampled
        for i, j in combinations(range(streams), 2)
    )


def _averaged(older: JoinRates, newer: JoinRates) -> JoinRates:
    streams = tuple(
        replace(now, rate=(before.rate + now.rate) / 2)
        for before, now in zip(older.streams, newer.streams, strict=True)
    )
    results = ((older.results or 0.0) + (newer.results or 0.0)) / 2
    return replace(newer, streams=streams, results=results)

"""How long the ring of a running join is to be: `ring="auto"` (PSP 5.2 and 6).

After every batch the cost model is asked with what the batch has measured (`slicing.resize`). One
measurement is not trusted: the ring changes when several in a row want it longer, or shorter.

The model is of rows that travel one by one, and Spark has batches. So a batch is the row of the model
(`ring.in_batches`): its work is that of all its rows, its response is how long it takes, and what it
takes beside the work of slots is the hops. Then the model says what a user of Spark would: more slots
while most of a batch is comparing, fewer where most of it is exchange. Two things it does not know:

    a batch has a part that no slot has a share in, which counts as hops; so rings are rather short
    hops and work of a batch follow upon each other, where a ring does both at once; the model takes the
    larger of the two, so it may be wrong by a factor of two, the same one for all lengths nearly

Slots of a batch engine are never more than busy: when they fall behind, batches grow. So slots count as
behind when they work for nearly all of the time from batch to batch.

What is measured decides on speed alone: the results are the same at any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway.policies.ring.model import HopCosts, Source, utilisation
from spillway.policies.ring.slicing import Resize, RingRules, resize

#: Evaluations in a row that must want a longer, or a shorter ring.
PATIENCE = 3
#: Part of the time from batch to batch in which slots may work and are not behind.
BEHIND = 0.9
#: No work is less than this, so that parts of it can be told.
_LEAST = 1e-12


@dataclass(frozen=True)
class Length:
    """What the last evaluations said of the length of a ring.

    Example:
        >>> from spillway.policies.ring.model import ProbeStep
        >>> rows = [Source("a", 300.0, (ProbeStep("b", 1000.0, 0.0002, 30e-6),))]
        >>> length = Length(RingRules(most=19))
        >>> for _ in range(3):
        ...     length = length.observed(rows, HopCosts(10e-6, 70e-6), slots=9)
        >>> length.decided.slots
        15
    """

    rules: RingRules
    #: What the last evaluation wanted; None: nothing else than there is.
    wanted: Resize | None = None
    #: How many evaluations in a row wanted a longer ring; below 0, a shorter one.
    times: int = 0
    #: What came of the last evaluation, in words.
    reason: str = "not evaluated yet"

    def observed(self, sources: Sequence[Source], costs: HopCosts, slots: int) -> Length:
        """After one more evaluation, of a ring of so many slots."""
        wanted = resize(sources, costs, slots, self.rules)
        if wanted is None:
            busy = utilisation(sources, costs, slots)
            return replace(self.rested(), reason=f"{slots} slots are {busy:.0%} busy, and right")
        way = 1 if wanted.slots > slots else -1
        times = self.times + way if self.times * way > 0 else way
        return replace(self, wanted=wanted, times=times, reason=wanted.reason)

    @property
    def decided(self) -> Resize | None:
        """The change that is due, if one is."""
        return self.wanted if abs(self.times) >= PATIENCE else None

    def rested(self) -> Length:
        """With nothing wanted: what was measured before says nothing any more."""
        return replace(self, wanted=None, times=0)

    def told(self, slots: int) -> str:
        """In words, for a ring of so many slots."""
        wanted = "no other wanted"
        if self.wanted is not None:
            wanted = f"{self.wanted.slots} wanted {abs(self.times)} times of {PATIENCE}"
        return f"{slots} of {self.rules.most} slots in use, {wanted}; last: {self.reason}"


def deciding(sources: Sequence[Source]) -> tuple[str, float]:
    """The stream whose rows do the most of the comparing, and their part of it.

    Where all streams have one length, it is the best for the mean row, and so for these most of all.

    Example:
        >>> from spillway.policies.ring.model import ProbeStep
        >>> step = ProbeStep("b", 100, 0.1, 1e-6)
        >>> name, part = deciding([Source("a", 30.0, (step,)), Source("c", 10.0, (step,))])
        >>> name, round(part, 2)
        ('a', 0.75)
    """
    work = {source.name: max(source.rate * source.probing_s, _LEAST) for source in sources}
    most = max(work, key=work.__getitem__)
    return most, work[most] / sum(work.values())

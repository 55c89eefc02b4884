"""The ring length of a running join: `ring="auto"` (PSP 5.2 and 6).

After every batch, the policy asks the cost model with the batch's measurements (`slicing.resize`).
The ring changes when several evaluations in a row want it longer, or shorter.

The model describes rows that travel one by one, but Spark has batches. So a batch is the row of the
model (`model.in_batches`): its work is that of all its rows, its response is its duration, and other
time counts as hops. The model wants more slots while comparing dominates a batch, and fewer while
the exchange does. It ignores two things:

    a part of a batch runs in no slot, and counts as hops; so the rings are rather short
    hops and work of a batch follow each other, while a ring does both at once; the model takes the
    larger of the two, so it may be wrong by up to a factor of two, almost the same for all lengths

Slots of a batch engine cannot be more than busy: batches grow instead. So slots count as behind when
they work almost all of the time between batches.

Measurements affect only speed, not results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway.policies.ring.model import HopCosts, Source, utilisation
from spillway.policies.ring.slicing import Resize, RingRules, resize

#: Evaluations in a row that must want a longer, or a shorter, ring.
PATIENCE = 3
#: Fraction of the time between batches that slots may work without being behind.
BEHIND = 0.9
#: Least work, so that fractions of it are defined.
_LEAST = 1e-12


@dataclass(frozen=True)
class Length:
    """What the last evaluations want for the length of a ring.

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
    #: What the last evaluation wanted; None: no change.
    wanted: Resize | None = None
    #: Evaluations in a row that wanted a longer ring; below 0, a shorter one.
    times: int = 0
    #: The outcome of the last evaluation, in words.
    reason: str = "not evaluated yet"

    def observed(self, sources: Sequence[Source], costs: HopCosts, slots: int) -> Length:
        """Returns the length after one more evaluation, of a ring of `slots` slots."""
        wanted = resize(sources, costs, slots, self.rules)
        if wanted is None:
            busy = utilisation(sources, costs, slots)
            return replace(self.rested(), reason=f"{slots} slots are {busy:.0%} busy, so they fit")
        way = 1 if wanted.slots > slots else -1
        times = self.times + way if self.times * way > 0 else way
        return replace(self, wanted=wanted, times=times, reason=wanted.reason)

    @property
    def decided(self) -> Resize | None:
        """The change that is due, if any."""
        return self.wanted if abs(self.times) >= PATIENCE else None

    def rested(self) -> Length:
        """Returns the length without a decision: earlier measurements no longer apply."""
        return replace(self, wanted=None, times=0)

    def told(self, slots: int) -> str:
        """Describes it in words, for a ring of `slots` slots."""
        wanted = "no change wanted"
        if self.wanted is not None:
            times = f"{abs(self.times)} of {PATIENCE} evaluations"
            wanted = f"{self.wanted.slots} slots were better in {times}"
        return f"{slots} of {self.rules.most} slots in use, {wanted}; last: {self.reason}"


def deciding(sources: Sequence[Source]) -> tuple[str, float]:
    """Returns the stream whose rows do most of the comparing, and their fraction of it.

    If all streams have one length, it is the best for the mean row, and so mostly for this stream.

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

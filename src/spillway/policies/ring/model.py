"""Cost model of a time-sliced join on a ring of slots, and the best ring length (PSP 5.1 to 5.4).

A row of a source stream probes the other streams one after the other. ProbeStep k of its order
meets rows_k = λW rows of the next stream. Each pair takes T_j, and the fraction `selectivity` of
them matches. So coming_k partial combinations reach step k (coming_1 = 1 is the row itself), and

    probing     Σ coming_k rows_k T_j                                              in L_C of Equation 1
    passing on  T_s N Σ coming_k: all that reaches a step goes round the ring      in L_PSP of Equation 1

The paper prints Equation 1 with the selectivity of step k in its own term, so with matches instead
of pairs. Its Equation 2 follows only from pairs, and every pair is compared. So the model uses
pairs, and Equation 2 is exact for any mixture of steps. `Source` is a stream with its order; values
of a join are means over its sources, weighted by their rates.

All functions are pure. Time affects speed here, never results.

Known limitation: Equation 5 has no queues. It assumes enough capacity; `utilisation` says whether
there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

#: Maximum length compared, if no limit is given.
MOST_SLOTS = 1024
#: Least work, so that fractions of it are defined.
_LEAST_S = 1e-9


@dataclass(frozen=True)
class HopCosts:
    """The cost of a row apart from comparing it: T_s, T_n, T_i and T_p of Table 1."""

    #: CPU time to receive a row or partial combination and pass it on.
    send_s: float
    #: Time in transit to the next slot.
    hop_s: float
    insert_s: float = 0.0
    purge_s: float = 0.0


@dataclass(frozen=True)
class ProbeStep:
    """One step of a probe order: what a row or partial combination meets in the next stream."""

    stream: str
    rows: float
    selectivity: float
    pair_s: float

    @property
    def found(self) -> float:
        """The matches of one row or partial combination."""
        return self.rows * self.selectivity

    @property
    def work_s(self) -> float:
        """The CPU time to compare it with all rows."""
        return self.rows * self.pair_s


@dataclass(frozen=True)
class Source:
    """A stream whose rows probe the others in an order."""

    name: str
    #: Rows per second.
    rate: float
    steps: tuple[ProbeStep, ...]

    @property
    def coming(self) -> tuple[float, ...]:
        """What reaches each step for one row; the last number is its results.

        Example:
            >>> Source("a", 1.0, (ProbeStep("b", 10, 0.2, 1.0), ProbeStep("c", 10, 0.3, 1.0))).coming
            (1.0, 2.0, 6.0)
        """
        found = [1.0]
        for step in self.steps:
            found.append(found[-1] * step.found)
        return tuple(found)

    @property
    def probing_s(self) -> float:
        """The CPU time of all comparisons of one row: the third part of L_C."""
        return sum(n * step.work_s for n, step in zip(self.coming, self.steps, strict=False))

    @property
    def passed(self) -> float:
        """What goes round the ring for one row, including itself."""
        return sum(self.coming[:-1])


def central_s(source: Source, costs: HopCosts) -> float:
    """Equation 1, L_C: the work of one row if all state is in one place."""
    return costs.insert_s + costs.purge_s + source.probing_s


def ring_s(source: Source, costs: HopCosts, slots: int) -> float:
    """Equation 1, L_PSP: the work of one row on a ring, over all slots."""
    return central_s(source, costs) + costs.send_s * slots * source.passed


def overhead(source: Source, costs: HopCosts, slots: int) -> float:
    """Equation 2: overhead of passing on, relative to probing; T_s N / (λ W T_j) for equal steps."""
    return costs.send_s * slots * source.passed / source.probing_s


def output_rate(source: Source, costs: HopCosts, slots: int, alone: float = 1.0) -> float:
    """Equation 4: results per second of a ring that is always busy; one slot alone has `alone`."""
    return alone * slots / (1.0 + overhead(source, costs, slots))


def response_s(source: Source, costs: HopCosts, lengths: int | Mapping[str, int]) -> float:
    """Equation 5: mean time to a result, on a ring with enough capacity.

    With a separate ring for every stream (5.4), a step uses the length of the ring it goes round: M
    N hops are one way round each ring, and the last ring produces the result.
    """
    rings = [_length(lengths, step.stream) for step in source.steps]
    steps = zip(source.coming, source.steps, rings, strict=False)
    busy_s = sum(n * (step.work_s / ring + costs.send_s) for n, step, ring in steps)
    hops = sum(rings) + _length(lengths, source.name)
    return (rings[-1] - 1) / 2 * costs.hop_s + max(busy_s, hops * costs.hop_s)


def _length(lengths: int | Mapping[str, int], stream: str) -> int:
    return lengths if isinstance(lengths, int) else lengths[stream]


def over_sources(sources: Sequence[Source], of: Callable[[Source], float]) -> float:
    """Returns the mean of a value over the rows of all sources."""
    rate = sum(source.rate for source in sources)
    return sum(source.rate * of(source) for source in sources) / rate


def best_length(sources: Sequence[Source], costs: HopCosts, most: int = MOST_SLOTS) -> int:
    """Returns the length with the least response by Equation 5; of equal ones the shortest.

    Example:
        >>> step = ProbeStep("b", 500, 0.0002, 30e-6)
        >>> rows = Source("a", 50, (step, replace(step, stream="c")))
        >>> best_length([rows], HopCosts(send_s=10e-6, hop_s=70e-6))
        9
    """
    return min(
        range(1, most + 1),
        key=lambda slots: over_sources(sources, lambda source: response_s(source, costs, slots)),
    )


def utilisation(sources: Sequence[Source], costs: HopCosts, slots: int) -> float:
    """Returns the fraction of time that a slot of the ring works; above 1 it falls behind."""
    return sum(source.rate * ring_s(source, costs, slots) for source in sources) / slots


def least_length(
    sources: Sequence[Source], costs: HopCosts, busy: float = 0.8, most: int = MOST_SLOTS
) -> int:
    """Returns the shortest ring that is at most `busy`; the longest if there is none."""
    fits = (n for n in range(1, most + 1) if utilisation(sources, costs, n) <= busy)
    return next(fits, most)


def bandwidth(source: Source, slots: int, row_bytes: float) -> float:
    """Equation 6: bytes per second of a link on which no slot waits for the next row."""
    return row_bytes / min(step.work_s / slots for step in source.steps)


def ring_lengths(
    sources: Sequence[Source], costs: HopCosts, most: int = MOST_SLOTS
) -> dict[str, int]:
    """The heuristic of 5.4: a length for each stream's ring, for unequal rates and windows.

    A query reports these lengths, and uses one for all: a group has a slice of every stream.

    It takes streams by rows times mean selectivity, smallest first, since later ones matter more
    and know more about the others. A stream without a known length takes that of the current
    stream.
    """
    known: dict[str, int] = {}
    names = [source.name for source in sources]
    for name in sorted(names, key=lambda name: (_weight(sources, name), names.index(name))):

        def took_s(length: int, name: str = name) -> float:
            rings = {other: known.get(other, length) for other in names} | {name: length}
            return over_sources(sources, lambda source: response_s(source, costs, rings))

        known[name] = min(range(1, most + 1), key=took_s)
    return {name: known[name] for name in names}


def _weight(sources: Sequence[Source], name: str) -> float:
    """λ W S of 5.4: rows of a stream in the window, times the mean selectivity of probing it."""
    steps = [step for source in sources for step in source.steps if step.stream == name]
    return sum(step.found for step in steps) / max(1, len(steps))


@dataclass(frozen=True)
class Forecast:
    """What the model says about one length."""

    slots: int
    response_s: float
    #: Maximum results per second, relative to a single slot.
    output: float
    utilisation: float
    #: Required bandwidth of a link, in bytes per second.
    bandwidth: float


def forecast(
    sources: Sequence[Source], costs: HopCosts, slots: int, row_bytes: float = 0.0
) -> Forecast:
    """Returns everything that the model says about a length."""
    return Forecast(
        slots,
        over_sources(sources, lambda source: response_s(source, costs, slots)),
        over_sources(sources, lambda source: output_rate(source, costs, slots)),
        utilisation(sources, costs, slots),
        max(bandwidth(source, slots, row_bytes) for source in sources),
    )


def explained(
    sources: Sequence[Source],
    costs: HopCosts,
    slots: int,
    row_bytes: float = 0.0,
    most_rate: float | None = None,
) -> str:
    """Formats the model for `query.explain()`: lengths around the current one, and the best one.

    `most_rate` is the measured results per second of the current slots while they are busy, if
    known. Then Equation 4 predicts it for other lengths.
    """
    best = best_length(sources, costs)
    lengths = sorted({1, max(1, slots // 2), slots, 2 * slots, best})
    in_use = forecast(sources, costs, slots).output
    results = "" if most_rate is None else f" {'results/s':>10}"
    lines = [
        f"{'slots':>5} {'response ms':>12} {'output x':>9}{results} {'busy':>6} {'link MB/s':>10}"
    ]
    for one in (forecast(sources, costs, length, row_bytes) for length in lengths):
        marks = [text for text, n in (("in use", slots), ("best", best)) if n == one.slots]
        if most_rate is not None:
            results = f" {most_rate * one.output / in_use:>10.4g}"
        lines.append(
            f"{one.slots:>5} {one.response_s * 1e3:>12.3f} {one.output:>9.2f}{results} "
            f"{one.utilisation:>6.0%} {one.bandwidth / 1e6:>10.3f}  {', '.join(marks)}".rstrip()
        )
    return "\n".join([*lines, told_orders(sources)])


def told_orders(sources: Sequence[Source]) -> str:
    """Describes the order in which the rows of each stream visit the others."""
    orders = (" -> ".join((s.name, *(step.stream for step in s.steps))) for s in sources)
    return f"probe orders: {'; '.join(orders)}"


def in_batches(
    sources: Sequence[Source], costs: HopCosts, rows: float
) -> tuple[tuple[Source, ...], HopCosts]:
    """Returns the same join with `rows` rows that go round together: a batch replaces a row.

    A hop takes a batch as long as a row. So the more rows go together, the longer the ring may be;
    the response is that of the batch.

    Example:
        >>> one = Source("a", 100.0, (ProbeStep("b", 500, 0.01, 1e-6),))
        >>> sources, costs = in_batches([one], HopCosts(1e-6, 0.05), rows=1000)
        >>> sources[0].rate, sources[0].probing_s, costs.hop_s
        (0.1, 0.5, 0.05)
        >>> best_length([one], HopCosts(1e-6, 0.05)), best_length(sources, costs)
        (1, 2)
    """
    batches = tuple(replace(one, rate=one.rate / rows) for one in _slower(sources, rows))
    each = {name: getattr(costs, name) * rows for name in ("send_s", "insert_s", "purge_s")}
    return batches, replace(costs, **each)


def fitted(
    sources: Sequence[Source], costs: HopCosts, slots: int, work_s: float
) -> tuple[Source, ...]:
    """Returns the same join with pair costs fitted to the measured work of a row.

    The model compares all rows; a query compares only those in the window or in a band.

    Example:
        >>> one = Source("a", 1.0, (ProbeStep("b", 100, 0.01, 1.0),))
        >>> fitted([one], HopCosts(0.5, 0.1), slots=4, work_s=12.0)[0].probing_s
        10.0
    """
    probing_s = over_sources(sources, lambda source: source.probing_s)
    other_s = over_sources(sources, lambda source: ring_s(source, costs, slots)) - probing_s
    return _slower(sources, max(work_s - other_s, _LEAST_S) / max(probing_s, _LEAST_S))


def _slower(sources: Sequence[Source], times: float) -> tuple[Source, ...]:
    """Returns the same join with pairs that take `times` times as long."""
    return tuple(
        replace(one, steps=tuple(replace(step, pair_s=step.pair_s * times) for step in one.steps))
        for one in sources
    )

"""Two of three streams become slow, and then another shape makes the fewest combinations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import SettingsError
from spillway.policies.shape.costs import JoinRates, StreamRates, cheapest
from spillway_lab.workloads.ebb import NAMES, Ebb

EBB = Ebb(rate=4_000.0, seconds=9.0, partners=12.0, results=0.5)


def partners(name: str, other: str, until_s: float) -> float:
    """Rows of another stream that a row of one finds among those that came until then."""
    mine, theirs = (
        EBB.drawn[one][: np.searchsorted(EBB.times[one], until_s)] for one in (name, other)
    )
    keys, counts = np.unique(theirs, return_counts=True)
    at = np.searchsorted(keys, mine).clip(max=len(keys) - 1)
    return float(np.where(keys[at] == mine, counts[at], 0).mean())


def test_two_streams_have_a_twentieth_of_their_rows_after_the_change() -> None:
    for name in NAMES:
        before = int((EBB.times[name] < EBB.change_s).sum())
        after = len(EBB.times[name]) - before
        assert before == pytest.approx(EBB.rate * EBB.change_s, rel=0.05)
        share = 1.0 if name == "a" else 1 / EBB.factor
        assert after == pytest.approx(EBB.rate * share * 6.0, rel=0.1)
    assert EBB.rows(EBB.seconds) == sum(len(times) for times in EBB.times.values())


def test_rows_find_as_many_partners_as_is_said() -> None:
    # Those of the domain that all three have are found as well.
    few = 0.1 * (EBB.results / 0.1) ** 0.5
    assert partners("a", "b", EBB.change_s) == pytest.approx(EBB.partners + few, rel=0.05)
    for pair in ("ac", "bc"):
        found = partners(*pair, EBB.change_s)
        assert found == pytest.approx(EBB.more * EBB.partners + few, rel=0.05)


def rates_at(a: float, others: float) -> JoinRates:
    """What a slot measures with the rows of the first stretch in its states."""
    rows = EBB.rate * EBB.change_s
    pairs = {("a", "b"): 1.0, ("a", "c"): EBB.more, ("b", "c"): EBB.more}
    return JoinRates(
        tuple(StreamRates(n, a if n == "a" else others, rows) for n in NAMES),
        {pair: times * EBB.partners / rows for pair, times in pairs.items()},
        results=EBB.results * a,
    )


def test_change_of_rates_makes_another_shape_the_cheapest() -> None:
    before = rates_at(EBB.rate, EBB.rate)
    assert str(cheapest(before, binary=True)) == "((a b) c)"
    after = rates_at(EBB.rate, EBB.rate / EBB.factor)
    assert str(cheapest(after, binary=True)) == "(a (b c))"


def test_rows_are_the_same_however_the_input_is_cut() -> None:
    whole = EBB.table("b", 0.0, 9.0)
    parts = [EBB.table("b", at, at + 0.5) for at in np.arange(0.0, 9.0, 0.5)]
    assert pa.concat_tables(parts).combine_chunks().equals(whole.combine_chunks())
    assert Ebb(rate=4_000.0, seconds=9.0).table("b", 0.0, 9.0).equals(whole)


def test_partners_that_so_few_rows_cannot_have_are_refused() -> None:
    with pytest.raises(SettingsError, match="10 rows a second are too few for 100 partners"):
        Ebb(rate=10.0, seconds=9.0, partners=100.0)

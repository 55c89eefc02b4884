"""The law of stages in a row: a join, and a group-by or a dedup of what it gives.

Every batch and round of the join is a batch of the next stage. A crash may come between their commits,
so that the next stage is a step ahead; memory, slots and moves of both change meanwhile.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law import Cluster, Row
from subjects import Deduped, Joined, KeyedTotals
from test_slot_law import MEMORIES, histories, small

from tier import examples

THEN = {"group-by": KeyedTotals, "dedup": Deduped}


def row_of(result: tuple[int, int]) -> Row:
    """A result of the join as a row of the next stage; its value is its own."""
    first, second = result
    return Row(0, (first + second) % 5, 0, 1000 * first + second)


def check(cluster: Cluster) -> None:
    """Both stages are right, and the second has had each result of the first once."""
    join, then = cluster.stages
    join.subject.check(join)
    then.subject.check(then)
    given_on = Counter(row_of(one).value for one in join.results.elements())
    assert Counter(row.value for _, row in then.accepted) == given_on


@st.composite
def chained(draw, subject):
    """Histories in which either commit of a batch, or both, may be lost, and rounds are of any stage."""
    events = []
    for name, *values in draw(histories(subject)):
        if name == "batch":
            values[2] = draw(st.sampled_from([0, 0, 0, 1, 2]))
        elif name == "round":
            values.append(draw(st.integers(0, 1)))
        events.append((name, *values))
    return events


@pytest.mark.parametrize("kind", THEN)
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.data(),
    st.sampled_from([[None, None], [6, 6]]),
    st.sampled_from(MEMORIES),
    st.sampled_from([None, None, 1.0]),
    st.sampled_from([1, 3]),
    st.sampled_from([None, 1 << 20]),
)
def test_any_history_gives_the_batch_query_of_the_chain(
    kind, data, windows, memory_bytes, t_gap_s, hosts, skew_bytes
) -> None:
    subject = Joined(windows)
    events = data.draw(chained(subject))
    with small() as folder:
        how = {"t_gap_s": t_gap_s, "hosts": hosts, "skew_bytes": skew_bytes}
        then = [(THEN[kind](), row_of)]
        cluster = Cluster(folder, subject, 2, 2, memory_bytes, then=then, **how)
        for name, *values in events:
            if name == "memory":
                cluster.memory_bytes = values[0]
            else:
                getattr(cluster, name)(*values)
        cluster.clean_up()
        check(cluster)


@pytest.mark.parametrize("memory_bytes", [None, 600])
@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("kind", THEN)
def test_crash_between_two_commits_repeats_only_what_was_lost(kind, lost, memory_bytes) -> None:
    rng, values = np.random.default_rng(4), itertools.count()
    with small() as folder:
        then = [(THEN[kind](), row_of)]
        cluster = Cluster(folder, Joined([None, None]), 0, 2, memory_bytes, then=then)
        for clock in range(12):
            drawn = zip(rng.integers(0, 2, 10), rng.integers(0, 12, 10), strict=True)
            rows = [Row(int(s), int(k), clock, next(values)) for s, k in drawn]
            cluster.batch(rows, [], lost if clock % 3 == 1 else 0)
        cluster.clean_up()
        check(cluster)
    assert sum(cluster.results.values()) > 50

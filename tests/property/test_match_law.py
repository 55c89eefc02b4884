"""Predicates beside equal keys under the law, and the join of aligned intervals made of them (ATR)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law import Cluster
from test_slot_law import MEMORIES, histories, small

from spillway.routing.intervals import Intervals
from spillway.testing.simulated.joins import Aligned, Matched
from tier import examples


@st.composite
def matched(draw):
    streams = draw(st.integers(2, 4))
    windowed = draw(st.booleans())
    windows = [draw(st.integers(1, 12)) if windowed else None for _ in range(streams)]
    return Matched(windows, draw(st.booleans()))


@st.composite
def aligned(draw):
    streams = draw(st.sampled_from([2, 2, 3, 3, 4, 5]))
    windows = [draw(st.integers(1, 6)) for _ in range(streams)]
    length, master = draw(st.integers(1, 9)), draw(st.integers(0, streams - 1))
    intervals = Intervals(length, master, tuple(windows))
    return Aligned(windows, draw(st.booleans()), intervals)


@pytest.mark.parametrize("subjects", [matched(), aligned()], ids=["beside keys", "atr"])
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), st.integers(0, 5), st.sampled_from(MEMORIES))
def test_any_history_gives_what_predicates_leave(subjects, data, lateness, memory_bytes) -> None:
    subject = data.draw(subjects)
    with small() as folder:
        cluster = Cluster(folder, subject, lateness, 2, memory_bytes)
        for name, *values in data.draw(histories(subject)):
            if name == "memory":
                cluster.memory_bytes = values[0]
            elif name == "batch" and isinstance(subject, Aligned):
                cluster.batch(subject.copied(values[0]), *values[1:])
            else:
                getattr(cluster, name)(*values)
        cluster.clean_up()
        subject.check(cluster)

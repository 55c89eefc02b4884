"""Predicates beside equal keys under the law, and the join of aligned intervals made of them (ATR)."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law import Cluster, Row
from subjects import Joined
from test_slot_law import MEMORIES, histories, small

from spillway.operators.equi.join import JoinOperator
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.conditions import predicate
from spillway.routing.intervals import Intervals
from tier import examples

COLUMNS = {"k": "bigint", "t": "timestamp", "v": "bigint"}


def near(a, b):
    return np.abs(a.v % 5 - b.v % 5) < 3


def differ(*rows):
    return sum(one.v for one in rows) % 3 != 1


@dataclass
class Matched(Joined):
    """The combinations of equal keys for which predicates hold, too."""

    whole: bool

    def operator(self, block_rows: int) -> JoinOperator:
        names = {stream.name: COLUMNS for stream in self.streams}
        predicates = [
            bound("abs(s0.v % 5 - s1.v % 5) < 3", (), names),
            bound(predicate(near, prefilter="s0.v != s1.v"), ("s0", "s1"), names, 1),
        ]
        if len(names) > 2:
            chain = "s0.v - s1.v < 9 and s1.v - s2.v < 9"
            predicates.append(bound(chain, (), names, 3))
        if self.whole:
            predicates.append(bound(differ, (), names, 2))
        return JoinOperator(self.streams, block_rows, predicates)

    def stands(self, rows: tuple[Row, ...]) -> bool:
        last = max(r.time for r in rows)
        in_time = all(
            w is None or last - r.time < w for r, w in zip(rows, self.windows, strict=True)
        )
        paired = abs(rows[0].value % 5 - rows[1].value % 5) < 3
        if len(rows) > 2:
            paired &= all(rows[at].value - rows[at + 1].value < 9 for at in (0, 1))
        return in_time and paired and (not self.whole or sum(r.value for r in rows) % 3 != 1)

    def check(self, cluster: Cluster) -> None:
        assert cluster.results == self.wanted([row for _, row in cluster.accepted])

    def wanted(self, rows: list[Row]) -> Counter:
        found = defaultdict(list)
        for row in rows:
            found[row.stream].append(row)
        done: list[tuple[Row, ...]] = [()]
        for stream in range(len(self.streams)):
            done = [
                (*some, row)
                for some in done
                for row in found[stream]
                if not some or row.key == some[0].key
            ]
        return Counter(tuple(r.value for r in rows) for rows in done if self.stands(rows))


@dataclass
class Aligned(Matched):
    """All combinations for which predicates hold, whatever their keys: rows are copied to intervals."""

    intervals: Intervals

    def copied(self, rows: list[Row]) -> list[Row]:
        copies = []
        for row in rows:
            _, numbers = self.intervals.copies(row.stream, np.array([row.time]))
            copies += [replace(row, key=int(number)) for number in numbers]
        return copies

    def check(self, cluster: Cluster) -> None:
        rows = {row.value: replace(row, key=0) for _, row in cluster.accepted}
        assert cluster.results == self.wanted(list(rows.values()))


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

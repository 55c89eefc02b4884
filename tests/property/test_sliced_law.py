"""The time-sliced join under the law: any history gives the brute-force cross join with its predicates.

The histories are those of all other operators (test_slot_law.py): restarts, lost hosts, spilling,
moves of groups that take several batches, budgets, attempts that die. Rounds go over lists in place of
exchanges.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law import ATTEMPTS, GROUPS, Cluster, Row
from test_slot_law import MEMORIES, histories, small

from spillway.coordinator.adaptation import rescale
from spillway.coordinator.smoothing import smooth
from spillway.metrics.record import SlotRecord
from spillway.operators.input import StreamColumns
from spillway.operators.predicates.conditions import predicate
from spillway.operators.predicates.predicate import bound
from spillway.operators.theta.combinations import manifest_in
from spillway.operators.theta.sliced import VISITING_ROWS, Probing, SlicedJoin
from spillway.policies.local.controller import LocalController
from spillway.routing.slices import Slicing
from spillway.settings import VICTIMS
from spillway.slot.run import Attempt
from spillway.slot.visits import LaterVisit, completed, first_visit
from spillway.spark.runtime.visits import probing_of

NAMES = ("k", "t", "v", "x")
TYPES = (pa.int64(), pa.timestamp("us"), pa.int64(), pa.int64())
KINDS = ("bigint", "timestamp_ntz", "bigint", "bigint")


def near(a, b):
    return np.abs(a.k - b.k) <= 1


def lower(a, b):
    return a.x < b.x


#: Pair predicates over two streams: the condition, and the same of two rows.
PAIRED = {
    "function": (lambda a, b: near, lambda a, b: abs(a.key - b.key) <= 1),
    "band": (lambda a, b: f"abs({a}.k - {b}.k) < 2", lambda a, b: abs(a.key - b.key) < 2),
    "range": (lambda a, b: f"{a}.k + 1 < 2 * {b}.k", lambda a, b: a.key + 1 < 2 * b.key),
    "between": (
        lambda a, b: f"{b}.k - {a}.k between -1 and 2 and {a}.v != 3",
        lambda a, b: -1 <= b.key - a.key <= 2 and a.value != 3,
    ),
    "nulls": (
        lambda a, b: f"{a}.x < {b}.x or {b}.x is null",
        lambda a, b: b.amount is None or (a.amount is not None and a.amount < b.amount),
    ),
    "nulls, function": (
        lambda a, b: lower,
        lambda a, b: None not in (a.amount, b.amount) and a.amount < b.amount,
    ),
    "prefilter": (
        lambda a, b: predicate(near, prefilter=f"abs({a}.k - {b}.k) < 3"),
        lambda a, b: abs(a.key - b.key) <= 1,
    ),
}


def odd_sum(*rows):
    return sum(one.k for one in rows) % 2 == 1


@dataclass
class Sliced:
    """The combinations whose times fit and for which all predicates hold."""

    windows: list[int]
    #: (kind, one stream, another).
    pairs: list[tuple[str, int, int]]
    whole: bool
    widths: list[int]
    copies: int = 1
    #: Positions of the columns that results have; None: all.
    shown: tuple[int, ...] | None = None
    #: Whether SQL conditions are one, over all their streams.
    conjoined: bool = False
    #: Rows that visit at a time.
    interleave: int = VISITING_ROWS
    null_keys = False

    @property
    def passive(self) -> bool:
        """Whether slots may come and go with slices to come alone."""
        return self.copies == 1

    def __post_init__(self) -> None:
        self.streams = tuple(
            StreamColumns(f"s{i}", NAMES, (0, 1, 2, 3), (), 1, w, self.shown)
            for i, w in enumerate(self.windows)
        )
        columns = {stream.name: dict(zip(NAMES, KINDS, strict=True)) for stream in self.streams}
        tests = [
            (PAIRED[kind][0](f"s{a}", f"s{b}"), (f"s{a}", f"s{b}")) for kind, a, b in self.pairs
        ]
        texts = [f"({test})" for test, _ in tests if isinstance(test, str)]
        if self.conjoined and texts:
            rest = [one for one in tests if not isinstance(one[0], str)]
            tests = [(" and ".join(texts), ()), *rest]
        self.predicates = [
            bound(test, over, columns, number) for number, (test, over) in enumerate(tests)
        ]
        if self.whole:
            self.predicates.append(bound(odd_sum, (), columns, len(tests)))
        self.slicing = Slicing(tuple(self.widths), GROUPS, self.copies)

    def operator(self, block_rows: int) -> SlicedJoin:
        types = [TYPES] * len(self.streams)
        how = (self.slicing, block_rows, self.interleave)
        return SlicedJoin(self.streams, types, self.predicates, *how)

    def read(self, batch: pa.RecordBatch):
        for row in batch.to_pylist():
            yield tuple(row[s.name]["v"] for s in self.streams)

    def stands(self, rows: tuple[Row, ...]) -> bool:
        last = max(r.time for r in rows)
        in_time = all(last - r.time < w for r, w in zip(rows, self.windows, strict=True))
        paired = all(PAIRED[kind][1](rows[a], rows[b]) for kind, a, b in self.pairs)
        return in_time and paired and (not self.whole or sum(r.key for r in rows) % 2 == 1)

    def check(self, cluster: Cluster) -> None:
        by_stream = [[] for _ in self.streams]
        for _, row in cluster.accepted:
            by_stream[row.stream].append(row)
        wanted = Counter(
            tuple(r.value for r in rows) for rows in self.product(by_stream) if self.stands(rows)
        )
        assert cluster.results == wanted

    def product(self, by_stream):
        """All combinations, without those whose first rows cannot stand already."""
        found = [()]
        for at, rows in enumerate(by_stream):
            pairs = [one for one in self.pairs if max(one[1:]) == at]
            found = [
                (*done, row)
                for done in found
                for row in rows
                if all(PAIRED[k][1]((*done, row)[a], (*done, row)[b]) for k, a, b in pairs)
                and abs(row.time - (done or (row,))[-1].time) < max(self.windows)
            ]
        return found


class SlicedCluster(Cluster):
    """A cluster whose batches have several visits, and whose slices to come go where there is room."""

    #: How often slices to come were given another slot.
    smoothed = 0
    #: How often a group was in several parts.
    parted = 0
    #: Slots that went by passive adjustment.
    left = 0
    #: What the slots said of the last batch.
    records: Mapping[int, SlotRecord] = MappingProxyType({})

    @property
    def gaps(self) -> dict[int, float]:
        """None: groups that take turns are refused, as rows that wait are (spark/api/matching.py)."""
        return {}

    def batch(self, rows, dies, lost=False, budget=None):
        super().batch(rows, dies, lost)

    def scale(self, slots: int) -> None:
        """Another number of slots, by moves; also on the way to one without."""
        self.state = rescale(self.state, slots)
        self.slots = slots

    def adjust(self, slots: int) -> None:
        """Another number of slots, for which nothing moves; at any time."""
        self.state = rescale(self.state, slots, passive=True)
        self.slots = slots

    def run(self, plan, rows, dies, seen=None):
        adjusting = self.state.scaling is not None and self.state.scaling.passive
        pending = super().run(plan, rows, dies, seen)
        if adjusting:
            self.left += max(0, plan.routing.slots - self.state.routing.slots)
        state = smooth(self.state, self.records, self.subject.slicing)
        self.smoothed += state is not self.state
        self.state = state
        # Visitors have looked into all parts of a group, so cleanup has nothing to do.
        assert pending == 0
        tables = [self.checkpoint.manifest(name).groups for name in state.manifests if name]
        self.parted += sum(int(table.pending.sum()) for table in tables)
        return pending

    visits = 0

    def probing(self, plan) -> Probing:
        """That of a query; every other time with any orders."""
        found = probing_of(self.operator(0), plan, self.records, 1.0)
        rng = np.random.default_rng(plan.batch + 7 * len(self.said))
        if rng.integers(0, 2):
            return found
        streams = range(len(self.streams))
        orders = (rng.permutation([j for j in streams if j != i]).tolist() for i in streams)
        return replace(found, orders=tuple(map(tuple, orders)))

    def outputs(self, plan, rows, dies):
        join, probing = self.operator(0), self.probing(plan)
        records, travelling, later = {}, [], []
        for slot in range(plan.routing.slots):
            for attempt in ["dies"] * (slot in dies) + ["lives"]:
                taken = []
                number = next(ATTEMPTS)
                job = self.job(plan, slot, number)
                attempted = Attempt(
                    job,
                    self.manifest(plan, slot),
                    join,
                    self.policy,
                    self.opened_store(plan),
                    taken.append,
                )
                mine = self.exchanged(rows, job, probing.sources_at(slot), number)
                found = first_visit(mine, attempted, probing)
                if attempt == "dies":
                    next(found, None)
                else:
                    travelling += found
                    records[slot] = taken[0]
        for number in range(2, probing.visit_count + 1):
            came, travelling = travelling, []
            for slot in range(plan.routing.slots):
                mine = self.sent(came, slot, probing.sources_at(slot))
                job, store = self.job(plan, slot, next(ATTEMPTS)), self.opened_store(plan)
                visit = LaterVisit(number, job, join, probing, store, later.append)
                travelling += visit.run(mine)
        output = Counter(r for b in travelling for r in self.subject.read(b))
        assert all(b.num_rows <= max(self.block_rows, 1) for b in travelling)
        for slot, record in records.items():
            mine = [one for one in later if one.slot == slot]
            records[slot] = completed(record, mine)
        assert sum(r.rows_out for r in records.values()) == sum(output.values())
        # A row is counted once, wherever its copies are, and late or not.
        for stream in range(len(self.streams)):
            given = sum(row.stream == stream for row in rows)
            assert sum(r.rows_in[stream] for r in records.values()) == given
        self.records = records
        return records, output

    def exchanged(self, rows, job, visiting, attempt):
        rows = [rows[at] for at in np.random.default_rng(attempt).permutation(len(rows))]
        slicing, copies = self.subject.slicing, range(self.subject.copies)
        h = [slicing.places(r.stream, np.array([r.time]))[0] for r in rows]
        groups = [{int(p) * GROUPS >> 32 for p in self.copied(one, copies)} for one in h]
        mine = [
            at
            for at, some in enumerate(groups)
            if rows[at].stream in visiting or some & set(job.owned)
        ]
        self.visits += len(mine)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([rows[at].stream for at in mine], pa.int8()),
                pa.array(np.array([h[at] for at in mine], np.uint32).view(np.int32)),
                pa.array([rows[at].key for at in mine], pa.int64()),
                pa.array([rows[at].time for at in mine], pa.timestamp("us")),
                pa.array([rows[at].value for at in mine], pa.int64()),
                pa.array([rows[at].amount for at in mine], pa.int64()),
            ],
            names=["_stream", "_h", "lane0", "lane1", "lane2", "lane3"],
        )
        cut = len(mine) // 2
        return [batch.slice(0, cut), batch.slice(cut)] if mine else []

    def copied(self, place, copies):
        return [self.subject.slicing.copied(np.array([place], np.uint32), k)[0] for k in copies]

    def sent(self, came, slot, visiting):
        named = [b for b in came if manifest_in(b)]
        own = [b for b in named if b.column(0)[0].as_py() == slot]
        assert len(own) == 1
        rest = [b for b in came if manifest_in(b) is None and b.column(1)[0].as_py() in visiting]
        order = np.random.default_rng(next(ATTEMPTS)).permutation(len(rest) + 1)
        return [[*rest, *own][at] for at in order]


@st.composite
def sliced(draw, copies=1):
    streams = draw(st.sampled_from([2, 2, 3, 3, 4, 5]))
    windows = [draw(st.integers(1, 8)) for _ in range(streams)]
    if draw(st.booleans()):
        windows = windows[:1] * streams
    pairs = [
        (draw(st.sampled_from(sorted(PAIRED))), *sorted((at, draw(st.integers(0, at - 1)))))
        for at in range(1, streams)
        if streams > 3 or draw(st.integers(0, 4))
    ]
    widths = [draw(st.sampled_from([1, 2, 3, 7])) for _ in range(streams)]
    shown = draw(st.sampled_from([None, (2,)]))
    whole, conjoined = draw(st.booleans()), draw(st.booleans())
    interleave = draw(st.sampled_from([1, 3, VISITING_ROWS]))
    return Sliced(windows, pairs, whole, widths, copies, shown, conjoined, interleave)


@pytest.mark.parametrize("copies", [1, 2, 4])
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.data(),
    st.integers(0, 5),
    st.sampled_from(MEMORIES),
    st.sampled_from(VICTIMS),
    st.booleans(),
)
def test_any_history_gives_the_cross_join(
    copies, data, lateness, memory_bytes, victims, amortised
) -> None:
    subject = data.draw(sliced(copies))
    events = data.draw(histories(subject))
    with small() as folder:
        policy = LocalController(victims, amortised, inactive_batches=2)
        cluster = SlicedCluster(folder, subject, lateness, 2, memory_bytes, policy, 0.3)
        for name, *values in events:
            if name == "memory":
                cluster.memory_bytes = values[0]
            else:
                getattr(cluster, name)(*values)
        cluster.clean_up()
        subject.check(cluster)
        assert cluster.late == cluster.late_seen
        assert cluster.events["CleanedUp"] == 0


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_a_row_is_counted_once_wherever_its_copies_are(copies: int) -> None:
    subject = Sliced([4, 4], [], False, [1, 1], copies)
    with small() as folder:
        cluster = SlicedCluster(folder, subject, 0, 3)
        for clock in range(1, 9):
            # The last row of a batch is late from the second batch on.
            times = [2 * clock, 2 * clock + 1, 0]
            rows = [Row(s, 1, t, 10 * clock + s) for s in (0, 1) for t in times]
            cluster.batch(rows, [])
            stored = sum(r.brought_rows for r in cluster.records.values())
            assert stored == copies * (6 if clock == 1 else 4)
        assert cluster.state.rows_in == (24, 24)
        assert cluster.state.rows_late == (7, 7)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("streams", [2, 3])
def test_slices_that_move_and_spill_are_probed_wherever_they_are(streams: int, copies: int) -> None:
    rng, values = np.random.default_rng(streams), itertools.count()
    pairs = [("band", at - 1, at) for at in range(1, streams)]
    subject = Sliced([6] * streams, pairs, False, [2] * streams, copies)
    with small() as folder:
        cluster = SlicedCluster(
            folder, subject, 2, 3, 1500, LocalController("inactive", False), block_rows=40
        )
        for clock in range(30):
            drawn = zip(
                rng.integers(0, streams, 10),
                rng.integers(0, 6, 10),
                rng.integers(0, 4, 10),
                strict=True,
            )
            rows = [Row(int(s), int(k), clock - int(t), next(values)) for s, k, t in drawn]
            cluster.batch(rows, [], clock % 7 == 6)
            if clock % 4 == 0:
                cluster.memory_bytes = 700
                cluster.move(clock, clock + 1, 0, 2, False)
            if clock % 4 == 3:
                cluster.send(fails=clock % 8 == 3)
        cluster.clean_up()
        subject.check(cluster)
    assert cluster.moves > 2
    assert cluster.events["Spilled"] > 2
    assert cluster.parted > 2
    assert sum(cluster.results.values()) > 100


@pytest.mark.parametrize("streams", [2, 3])
def test_slots_come_and_go_with_slices_to_come_alone(streams: int) -> None:
    rng, values, seen = np.random.default_rng(streams), itertools.count(), []
    pairs = [("band", at - 1, at) for at in range(1, streams)]
    # Widths that differ: a group is to come in one stream while another fills it.
    subject = Sliced(
        [3 + at for at in range(streams)], pairs, False, [2 + at for at in range(streams)]
    )
    wanted = {3: 4, 12: 1, 30: 3, 33: 2}
    with small() as folder:
        policy = LocalController("inactive", False)
        cluster = SlicedCluster(folder, subject, 3, 2, 1500, policy, block_rows=40)
        for clock in range(48):
            drawn = zip(
                rng.integers(0, streams, 8),
                rng.integers(0, 6, 8),
                rng.integers(0, 4, 8),
                strict=True,
            )
            rows = [Row(int(s), int(k), clock - int(t), next(values)) for s, k, t in drawn]
            cluster.batch(rows, [])
            if clock in wanted:
                cluster.adjust(wanted[clock])
            seen.append(cluster.state.routing.slots)
        cluster.clean_up()
        subject.check(cluster)
    # New slots are there at once, those that are to go when a window and the lateness have passed.
    assert (seen[2], seen[3], seen[12], seen[25], seen[31], seen[-1]) == (2, 4, 4, 1, 3, 2)
    assert cluster.left == 4
    assert cluster.state.moves_begun == 0
    assert cluster.events["Scaled"] == 4
    assert sum(cluster.results.values()) > 100

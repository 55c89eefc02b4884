"""The time-sliced join under the law: any history gives the brute-force cross join with its predicates.

The histories are those of all other operators (test_slot_law.py): restarts, lost hosts, spilling,
moves of groups that take several batches, budgets, attempts that die. Rounds go over lists in place of
exchanges.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law import ATTEMPTS, GROUPS, Cluster, Held, Results, Row
from law.rows import exchanged
from test_slot_law import MEMORIES, histories, small

from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.jobs import controller_of
from spillway.coordinator.batch.plan import BatchPlan
from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.input import StreamColumns
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.conditions import predicate
from spillway.operators.theta.combinations import manifest_in
from spillway.operators.theta.sliced import VISITING_ROWS, Probing, SlicedJoin
from spillway.routing.slices import Slicing
from spillway.settings import ADJUSTMENTS, VICTIMS
from spillway.slot.run import Attempt
from spillway.slot.visits import LaterVisit, completed, first_visit
from tier import examples

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


class SlicedHeld(Held):
    """Slots that all rows visit."""

    #: How often a group was in several parts.
    parted = 0
    #: Rows that came to slots, wherever they stay.
    visits = 0

    def probing(self, plan: BatchPlan) -> Probing:
        """That of a query; every other time with any orders."""
        found = self.conductor.coordinator.probing(plan)
        rng = np.random.default_rng(plan.batch + 7 * len(self.said))
        if rng.integers(0, 2):
            return found
        streams = range(len(self.streams))
        orders = (rng.permutation([j for j in streams if j != i]).tolist() for i in streams)
        return replace(found, orders=tuple(map(tuple, orders)))

    def results_of(self, rows: list[Row], plan: BatchPlan) -> Results:
        join, probing = self.first_operator(), self.probing(plan)
        found, travelling, later = Results(rows), [], []
        for slot in range(plan.routing.slots):
            if slot in self.dies:
                next(self._first_visit(plan, rows, slot, probing, [].append), None)
            taken: list[SlotRecord] = []
            travelling += self._first_visit(plan, rows, slot, probing, taken.append)
            found.records[slot] = taken[0]
        for number in range(2, probing.visit_count + 1):
            came, travelling = travelling, []
            for slot in range(plan.routing.slots):
                mine = self._sent(came, slot, probing.sources_at(slot))
                job, store = self.job(plan, slot, next(ATTEMPTS)), self.swept_store(plan)
                visit = LaterVisit(number, job, join, probing, store, later.append)
                travelling += visit.run(mine)
        found.output.update(one for batch in travelling for one in self.subject.read(batch))
        assert all(b.num_rows <= max(self.adapt.block_rows, 1) for b in travelling)
        for slot, record in found.records.items():
            mine = [one for one in later if one.slot == slot]
            found.records[slot] = self.timed(completed(record, mine))
        self._check_counts(rows, found)
        self.running = plan, found
        return found

    def committed(self, state: Committed) -> None:
        super().committed(state)
        # Visitors have looked into all parts of a group, so cleanup has nothing to do.
        assert state.pending == ()
        tables = [self.checkpoint.manifest(name).groups for name in state.manifests if name]
        self.parted += sum(int(table.pending.sum()) for table in tables)

    def _first_visit(self, plan, rows, slot, probing, report):
        attempt = next(ATTEMPTS)
        job = self.job(plan, slot, attempt)
        attempted = Attempt(
            job,
            self.manifest(plan, slot),
            self.first_operator(),
            controller_of(self.adapt, SlotId(slot)),
            self.swept_store(plan),
            report,
        )
        mine = self._visiting(rows, job, probing.sources_at(slot), attempt)
        return first_visit(mine, attempted, probing)

    def _check_counts(self, rows: list[Row], found: Results) -> None:
        """A row is counted once, wherever its copies are, and late or not."""
        records = found.records.values()
        assert sum(r.rows_out for r in records) == sum(found.output.values())
        for stream in range(len(self.streams)):
            given = sum(row.stream == stream for row in rows)
            assert sum(r.rows_in[stream] for r in records) == given

    def _visiting(self, rows, job, visiting, attempt):
        slicing, copies = self.subject.slicing, range(self.subject.copies)
        h = [slicing.places(r.stream, np.array([r.time]))[0] for r in rows]
        groups = [{int(p) * GROUPS >> 32 for p in self._copied(one, copies)} for one in h]
        mine = [
            at
            for at, some in enumerate(groups)
            if rows[at].stream in visiting or some & set(job.owned)
        ]
        self.visits += len(mine)
        return exchanged([rows[at] for at in mine], [h[at] for at in mine], attempt)

    def _copied(self, place, copies):
        return [self.subject.slicing.copied(np.array([place], np.uint32), k)[0] for k in copies]

    def _sent(self, came, slot, visiting):
        named = [b for b in came if manifest_in(b)]
        own = [b for b in named if b.column(0)[0].as_py() == slot]
        assert len(own) == 1
        rest = [b for b in came if manifest_in(b) is None and b.column(1)[0].as_py() in visiting]
        order = np.random.default_rng(next(ATTEMPTS)).permutation(len(rest) + 1)
        return [[*rest, *own][at] for at in order]


class SlicedCluster(Cluster):
    """A query whose rows visit all slots, and whose slices to come go where there is room."""

    held = SlicedHeld

    def change_settings(self) -> None:
        # Groups that take turns are refused, as rows that wait are (spark/api/matching.py).
        self._memory_bytes = None if self._memory_bytes else 600

    def batch(self, rows, dies=(), lost=False, budget=None, slow=()):
        super().batch(rows, dies, lost, None, slow)


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
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.data(),
    st.integers(0, 5),
    st.sampled_from(MEMORIES),
    st.sampled_from(VICTIMS),
    st.booleans(),
    st.sampled_from(ADJUSTMENTS),
    st.sampled_from([{}, {"ring": "auto"}]),
)
def test_any_history_gives_the_cross_join(
    copies, data, lateness, memory_bytes, victims, amortised, adjustment, ring
) -> None:
    subject = data.draw(sliced(copies))
    events = data.draw(histories(subject))
    with small() as folder:
        how = {"victims": victims, "amortised": amortised, "adjustment": adjustment}
        how |= {} if copies > 1 else ring
        cluster = SlicedCluster(folder, subject, lateness, 2, memory_bytes, **how)
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
            stored = sum(r.brought_rows for r in cluster.coordinator.last.values())
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
        cluster = SlicedCluster(folder, subject, 2, 3, 1500, victims="inactive", block_rows=40)
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
    assert cluster.state.moves_begun > 2
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
        how = {"victims": "inactive", "adjustment": "passive", "block_rows": 40}
        cluster = SlicedCluster(folder, subject, 3, 2, 1500, **how)
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
                cluster.scale(wanted[clock])
            seen.append(cluster.state.routing.slots)
        cluster.clean_up()
        subject.check(cluster)
    # New slots are there with the next batch, retiring ones go when a window and the lateness are over.
    assert (seen[3], seen[4], seen[12], seen[25], seen[31], seen[-1]) == (2, 4, 4, 1, 3, 2)
    assert cluster.state.moves_begun == 0
    assert cluster.events["Scaled"] == 4
    assert sum(cluster.results.values()) > 100

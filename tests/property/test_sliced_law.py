"""The time-sliced join under the law: any history gives the brute-force cross join with its predicates.

The histories are those of all other operators (test_slot_law.py): restarts, lost hosts, spilling,
moves of groups that take several batches, budgets, attempts that die. Rounds go over lists in place of
exchanges.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law import Cluster, Row, SlicedHeld
from test_slot_law import MEMORIES, histories, small

from spillway.operators.theta.sliced import VISITING_ROWS
from spillway.settings import ADJUSTMENTS, VICTIMS
from spillway.testing.simulated.sliced import PAIRED, Sliced
from tier import examples


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
        # Parts unite, but nothing is missing between them.
        assert cluster.state.rows_cleaned == 0


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

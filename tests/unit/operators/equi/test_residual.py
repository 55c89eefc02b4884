"""Predicates beside equal keys: in which order streams are probed, how much is compared at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spillway.metrics.counts import Counts, Judged, Spent
from spillway.operators.equi.join import JoinOperator
from spillway.operators.input import StreamColumns
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.probing import Measured, probe_order
from spillway.operators.stats import OperatorStats
from spillway.rows import bounds
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData

NAMES = ("k", "t", "x", "image")
TYPES = ("bigint", "timestamp", "double", "binary")
COLUMNS = {key: dict(zip(NAMES, TYPES, strict=True)) for key in "abc"}
WINDOW_US = 10_000_000
STORED, NEW = 100, 20


def rows(count: int, seed: int, image_bytes: int = 1) -> RunData:
    """Rows of one key, as those of a segment of time are."""
    x = np.random.default_rng(seed).uniform(0, 1000, count)
    columns = [
        pa.array(np.zeros(count, np.uint32)),
        pa.array(np.zeros(count, np.int64)),
        pa.array(np.arange(count) * 10, pa.timestamp("us")),
        pa.array(x),
        pa.array([bytes(image_bytes)] * count, pa.binary()),
    ]
    return RunData(pa.RecordBatch.from_arrays(columns, names=["_h", "c0", "c1", "c2", "c3"]), 1)


class Counted:
    """Predicates between neighbours, which count the pairs that they are given."""

    def __init__(self) -> None:
        self.given = {"ab": 0, "bc": 0}
        self.largest = 0
        streams = [StreamColumns(n, NAMES, (0, 1, 2, 3), (0,), 1, WINDOW_US) for n in "abc"]
        conditions = [
            bound(self._near(pair, width), tuple(pair), COLUMNS, number)
            for number, (pair, width) in enumerate([("ab", 50.0), ("bc", 0.5)])
        ]
        self.join = JoinOperator(streams, predicates=conditions)

    def _near(self, pair: str, width: float):
        def near(left, right):
            self.given[pair] += len(left)
            self.largest = max(self.largest, len(left))
            return np.abs(left.x - right.x) < width

        return near

    def batches(self, image_bytes: int = 1):
        """Batches of rows of the first stream; yields the pairs that predicates were given in each."""
        old = [[Segment(rows(STORED, at, image_bytes), 0, STORED)] for at in range(3)]
        known: Counts = {}
        for batch in range(4):
            self.given = dict.fromkeys(self.given, 0)
            stats = OperatorStats(16)
            new = [rows(NEW if at == 0 else 0, 10 + batch, image_bytes) for at in range(3)]
            for _ in self.join.terms(old, new, stats, known):
                pass
            known = stats.blended(known)
            yield dict(self.given)


def test_stream_that_no_predicate_connects_waits_for_one_that_is_connected() -> None:
    for given in Counted().batches():
        assert given["ab"] == NEW * STORED
        assert given["bc"] < NEW * STORED * STORED / 4


def test_stream_in_which_a_row_finds_at_most_one_partner_need_not_be_connected() -> None:
    chain = Counted().join.residual._predicates
    assert probe_order("a", "abc", chain, {"b": 50.0, "c": 0.2}, Measured()) == ("c", "b")
    assert probe_order("a", "abc", chain, {"b": 50.0, "c": 1.5}, Measured()) == ("b", "c")
    assert probe_order("c", "abc", chain, {}, Measured()) == ("b", "a")


def test_streams_are_probed_by_cost_and_selectivity_of_what_is_asked() -> None:
    star = [bound("a.x < b.x", (), COLUMNS, 0), bound("a.x < c.x", (), COLUMNS, 1)]
    labels = [one.label for one in star]
    partners = {"b": 10.0, "c": 10.0}
    counts = {Judged(labels[0]): (100.0, 50.0), Judged(labels[1]): (100.0, 1.0)}
    assert probe_order("a", "abc", star, partners, Measured(counts)) == ("c", "b")
    counts = {Spent(labels[0]): (1e6, 1e-3), Spent(labels[1]): (1e6, 10.0)}
    counts |= {Judged(label): (100.0, 1.0) for label in labels}
    assert probe_order("a", "abc", star, partners, Measured(counts)) == ("b", "c")


@pytest.mark.parametrize("image_bytes", [1, 1000])
def test_pairs_are_given_to_a_function_in_blocks_of_bounded_bytes(
    monkeypatch: pytest.MonkeyPatch, image_bytes: int
) -> None:
    monkeypatch.setattr(bounds, "BLOCK_BYTES", 100_000)
    counted = Counted()
    assert sum(given["ab"] for given in counted.batches(image_bytes)) == 4 * NEW * STORED
    assert counted.largest * 2 * (image_bytes + 20) <= 100_000
    assert counted.largest * 2 * (image_bytes + 60) > 100_000 / 2

"""Result blocks are bounded in bytes, for every operator that joins.

A block of 32,768 pairs with rows above 64 kB has more than 2 GiB in one column. Arrow then fails with
"Take operation overflowed", in a batch and in its replay.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spillway.metrics.counts import Counts
from spillway.operators.equi.join import JoinOperator
from spillway.operators.equi.tree import TreeOperator
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Keeping, Work
from spillway.operators.predicates.binding import bound
from spillway.operators.stats import OperatorStats
from spillway.plan.shape import parse
from spillway.rows import bounds
from spillway.slot.limits import ENDLESS
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData

STREAMS = [StreamColumns(name, ("k", "w"), (0, 1), (0,)) for name in "abc"]
COLUMNS = {name: {"k": "bigint", "w": "string"} for name in "abc"}
NONE: Counts = {}


def rows(lengths: list[int]) -> RunData:
    """Rows of one key with texts of these lengths."""
    columns = [
        pa.array(np.zeros(len(lengths), np.uint32)),
        pa.array(np.zeros(len(lengths), np.int64)),
        pa.array(["x" * length for length in lengths]),
    ]
    return RunData(pa.RecordBatch.from_arrays(columns, names=["_h", "c0", "c1"]))


def segments(*streams: list[int]) -> list[list[Segment]]:
    return [[Segment(rows(lengths), 0, len(lengths))] if lengths else [] for lengths in streams]


#: A few rows are far larger than the others.
SKEWED = [5] * 30 + [900, 5, 5000] + [5] * 30


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BLOCK_BYTES", 4000)
    monkeypatch.setattr(bounds, "JOINED_BYTES", 6000)


def check(found: list[pa.RecordBatch], results: int) -> None:
    assert sum(block.num_rows for block in found) == results
    assert all(block.num_rows == 1 or block.nbytes <= 4000 for block in found)
    # Large rows end their own blocks only.
    assert max(block.num_rows for block in found) > 50


def every_length(found: list[pa.RecordBatch], name: str) -> list[int]:
    return sorted(len(row[name]["w"]) for block in found for row in block.to_pylist())


@pytest.mark.usefixtures("small")
def test_blocks_of_an_n_way_join_have_bounded_bytes() -> None:
    join = JoinOperator(STREAMS)
    old = segments([], SKEWED, [1, 2])
    deltas = [rows([3, 2000]), rows([]), rows([])]
    found = list(join.terms(old, deltas, OperatorStats(4), NONE))
    check(found, 2 * len(SKEWED) * 2)
    assert every_length(found, "b") == sorted(SKEWED * 4)


@pytest.mark.usefixtures("small")
def test_predicates_get_pairs_of_bounded_bytes() -> None:
    given = []

    def different(a, b):
        text = b.arrow("w")
        given.append((len(text), a.arrow("w").nbytes + text.nbytes))
        return np.ones(len(text), np.bool_)

    join = JoinOperator(STREAMS[:2], predicates=[bound(different, ("a", "b"), COLUMNS)])
    old = segments([], SKEWED)
    found = list(join.terms(old, [rows([3] * 20), rows([])], OperatorStats(4), NONE))
    check(found, 20 * len(SKEWED))
    assert all(count == 1 or size <= 4000 for count, size in given)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("shape", [None, "((a b) c)"])
def test_blocks_of_cleanup_have_bounded_bytes(shape: str | None) -> None:
    """Cleanup of spilled generations, and a replay, use the same terms as a batch."""
    kept: list[RunData] = []

    def keep(_: int, made: RunData) -> list[Segment]:
        kept.append(made)
        return [Segment(made, 0, made.rows)]

    base, delta = segments(SKEWED, [1], [2]), segments([], [], [4, 6])
    work = Work(OperatorStats(4), NONE, Keeping(keep, ((),), ENDLESS))
    if shape is None:
        found = list(JoinOperator(STREAMS).missing(base, delta, work))
    else:
        tree = TreeOperator(STREAMS, parse(shape))
        base.append([])
        delta.append([])
        made = segments(SKEWED)[0][0]
        columns = [*made.data.batch.columns, made.data.batch.column(1), made.data.batch.column(2)]
        names = ["_h", *(f"c{at}" for at in range(4))]
        whole = RunData(pa.RecordBatch.from_arrays(columns, names=names))
        base[3] = [Segment(whole, 0, whole.rows)]
        found = list(tree.missing(base, delta, work))
    check(found, len(SKEWED) * 2)


@pytest.mark.usefixtures("small")
def test_made_rows_of_a_tree_are_kept_in_bounded_pieces() -> None:
    kept: list[RunData] = []

    def keep(_: int, made: RunData) -> list[Segment]:
        kept.append(made)
        return [Segment(made, 0, made.rows)]

    tree = TreeOperator(STREAMS, parse("((a b) c)"))
    base, delta = [*segments(SKEWED, [], []), []], [*segments([], [1, 700], []), []]
    list(tree.missing(base, delta, Work(OperatorStats(4), NONE, Keeping(keep, ((),), ENDLESS))))
    assert sum(made.rows for made in kept) == 2 * len(SKEWED)
    assert all(made.rows == 1 or made.bytes_in(0, made.rows) <= 6000 for made in kept)


@pytest.mark.full
def test_join_of_rows_of_70_kb_gives_40000_results() -> None:
    """2.8 GB in all; without a bound in bytes, the first block has 2.3 GB and fails."""
    join = JoinOperator(STREAMS[:2])
    wide = rows([70_000] * 200)
    old = [[], [Segment(wide, 0, 200)]]
    found = 0
    for block in join.terms(old, [wide, rows([])], OperatorStats(4), NONE):
        assert block.nbytes <= bounds.BLOCK_BYTES
        found += block.num_rows
    assert found == 40_000

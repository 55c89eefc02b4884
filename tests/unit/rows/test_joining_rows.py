"""Rows are joined and cut in bounded bytes, and none is lost."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spillway
from spillway.errors import StateError
from spillway.rows import bounds
from spillway.rows.cutting import TakenRows, Widths, cut_rows, cut_taken
from spillway.rows.joining import conserve, is_wide, joined, joined_column, narrowed
from spillway.rows.size import bytes_at, bytes_between
from spillway.state.runs.merging import Segment, combined, cut_for, hashes, merged, ranges_in_order
from spillway.state.runs.run import RunData

#: Whoever concatenates on its own loses rows of columns beyond 2 GiB, or fails.
CONCATENATES = re.compile(r"to_batches\(\)\[|combine_chunks|concat_(arrays|batches|tables)")


def run_of(sizes: list[int], first: int = 0, step: int = 1) -> pa.RecordBatch:
    """Rows sorted by hash, with texts of these lengths, and nested values."""
    h = first + step * np.arange(len(sizes))
    text = [f"{at}" + "x" * size for at, size in enumerate(sizes)]
    nested = [[{"a": one, "b": [one.encode()] * 2}] for one in text]
    columns = [pa.array(h.astype(np.uint32)), pa.array(text), pa.array(nested)]
    return pa.RecordBatch.from_arrays(columns, names=["_h", "c0", "c1"])


def test_only_one_module_concatenates() -> None:
    root = Path(spillway.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if CONCATENATES.search(path.read_text())
    }
    assert found == {"rows/joining.py"}


def test_joined_rows_that_are_too_many_are_wide_and_can_be_narrowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = [run_of([10, 20]), run_of([5])]
    narrow = joined(parts)
    assert not is_wide(narrow)
    monkeypatch.setattr(bounds, "JOINED_BYTES", 50)
    wide = joined(parts)
    assert wide.schema.field("c0").type == pa.large_string()
    assert joined([wide, *parts]).num_rows == 6
    assert narrowed(wide).equals(narrow)
    assert joined_column([parts[0].column(1), wide.column(1)]).type == pa.large_string()


@given(
    st.lists(st.lists(st.sampled_from([0, 1, 30, 400]), min_size=1, max_size=9), min_size=1),
    st.integers(1, 2000),
    st.integers(0, 2),
)
def test_merge_gives_every_row_in_order_and_in_bounded_pieces(
    parts: list[list[int]], most: int, step: int
) -> None:
    runs = [run_of(sizes, first, step) for first, sizes in enumerate(parts)]
    found = list(merged(runs, most))
    rows = [row for piece in found for row in piece.to_pylist()]
    wanted = sorted((row for run in runs for row in run.to_pylist()), key=lambda row: row["_h"])
    assert rows == wanted
    for piece in found:
        assert piece.num_rows == 1 or bytes_between(piece, np.array([0, len(piece)]))[0] <= most + 8


def test_merge_in_pieces_has_32_bit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece in the middle of a part has bytes of bits that count for the rows before it."""
    text, bits = pa.array(["x" * 20] * 30), pa.array([None, True] * 15)
    parts = [
        pa.record_batch({"_h": pa.array(range(at, 120, 4), pa.uint32()), "c0": text, "c1": bits})
        for at in range(4)
    ]
    for most in range(100, 400):
        monkeypatch.setattr(bounds, "JOINED_BYTES", most)
        assert not any(map(is_wide, merged(parts)))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(1, 400))
def test_rows_of_a_key_are_combined_however_few_fit(keys: list[int], most: int) -> None:
    """Keys 2n and 2n + 1 share a hash."""
    parts = [
        pa.RecordBatch.from_arrays(
            [pa.array([key // 2], pa.uint32()), pa.array([str(key)]), pa.array([1])],
            names=["_h", "key", "count"],
        )
        for key in keys
    ]

    def combine(rows: pa.RecordBatch, order: np.ndarray) -> pa.RecordBatch:
        total: dict[tuple[int, str], int] = {}
        for row in rows.take(pa.array(order)).to_pylist():
            at = row["_h"], row["key"]
            total[at] = total.get(at, 0) + row["count"]
        columns = [[h for h, _ in total], [key for _, key in total], list(total.values())]
        arrays = [pa.array(c, kind) for c, kind in zip(columns, rows.schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "JOINED_BYTES", most)
        found = [row for piece in combined(parts, combine) for row in piece.to_pylist()]
    assert {row["key"]: row["count"] for row in found} == {
        str(key): keys.count(key) for key in keys
    }
    assert len(found) == len(set(keys))


def test_step_counts_the_bytes_of_all_pieces() -> None:
    """The first piece is narrow, the second wide: a width taken from the first is wrong for both."""
    narrow, wide = run_of([1] * 1000), run_of([1000] * 1000)
    pieces = [Segment(RunData(one), 0, one.num_rows) for one in (narrow, wide)]
    end = cut_for(pieces, 1 << 30, most_bytes=100_000)
    taken = sum(int(bytes_between(s.data.batch, np.array([0, end]))[0]) for s in pieces)
    assert 75_000 <= taken <= 125_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "STEP_BYTES", 100_000)
        found = list(ranges_in_order(pieces))
    assert sum(s.rows for step in found for s in step) == 2000
    assert all(sum(s.bytes for s in step) <= 125_000 for step in found)
    last = [max(int(hashes(s.batch())[-1]) for s in step) for step in found]
    assert last == sorted(set(last))


@given(st.lists(st.sampled_from([0, 3, 90, 2000]), min_size=1), st.integers(1, 5))
def test_block_ends_where_the_bytes_are(sizes: list[int], rows: int) -> None:
    batch = run_of(sizes)
    at = np.array([2 * i % len(sizes) for i in range(3 * len(sizes))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "BLOCK_BYTES", 1000)
        taken = TakenRows(Widths(batch.columns), at)
        found = list(cut_taken([taken], len(at), rows))
        pieces = list(cut_rows(batch, most_rows=rows))
    assert [begin for begin, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == len(at)
    exact = bytes_at(batch.columns, at)
    assert all(b - a <= rows and (b - a == 1 or exact[a:b].sum() <= 1000) for a, b in found)
    assert sum(piece.num_rows for piece in pieces) == len(sizes)
    assert all(0 < piece.num_rows <= rows for piece in pieces)


def test_columns_of_fixed_width_are_cut_by_rows_alone() -> None:
    class Unread(np.ndarray):
        def astype(self, *_: object, **__: object) -> np.ndarray:
            raise AssertionError("a row was looked at")

    rows = np.arange(65_536).view(Unread)
    widths = Widths([pa.array(np.arange(65_536))] * 20)
    assert list(cut_taken([TakenRows(widths, rows)], len(rows))) == [(0, 65_536)]


def test_step_that_loses_rows_says_so() -> None:
    with pytest.raises(StateError, match="merging layers read 28 rows but wrote 21") as raised:
        conserve("merging layers", 28, 21)
    assert "before the commit" in str(raised.value.detail)
    assert "report" in str(raised.value.hint)

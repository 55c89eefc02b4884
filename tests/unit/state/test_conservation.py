"""A step that loses rows stops the batch: each is made to lose some, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import StateError
from spillway.ids import HASH_END, SlotId, Version
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.groupby import GroupByOperator
from spillway.operators.grouping.windowed import LastRows, WindowedOperator
from spillway.operators.input import StreamColumns
from spillway.routing.routing import HashRange
from spillway.rows import bounds
from spillway.slot import admission, intake
from spillway.slot.admission import Fate, Fates
from spillway.state.layout import compaction, compactor, shelf
from spillway.state.layout.shelf import StreamLayout
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.merging import combined
from spillway.state.runs.run import RunData
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot import staging
from spillway.state.slot.state import SlotState

GROUPS = 4
KEYED = StreamColumns("a", ("k",), (0,), (0,))
COUNTED = GroupByOperator(KEYED, ["k"], [Aggregate("n", "count")])
#: A group-by without a count.
LEAST = GroupByOperator(KEYED, ["k"], [Aggregate("x", "min", 0, pa.int64())])
LAST = WindowedOperator(KEYED, [("k", 0)], [Aggregate("n", "count")], LastRows(2), per_row=False)

Change = Callable[[SlotState], object]


def rows(count: int = 60) -> RunData:
    h = np.linspace(0, HASH_END - 1, count).astype(np.uint32)
    columns = [pa.array(h), pa.array(h.astype(np.int64)), pa.array(["x" * 40] * count)]
    return RunData(pa.RecordBatch.from_arrays(columns, ["_h", "c0", "c1"]))


@pytest.fixture
def state(tmp_path: Path) -> SlotState:
    tiers = [LocalTier(kind, tmp_path / kind) for kind in ("memory", "disk")]
    return SlotState(
        empty_manifest(SlotId(0), 1),
        Store(*tiers, open_durable(str(tmp_path / "durable"), fsync=False), OpenRuns(), 0),
        [StreamLayout("a")],
        groups=GROUPS,
        version=Version(0),
        attempt="t",
    )


def but_the_last(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from list(found)[:-1]


def track(state: SlotState) -> None:
    state.begin_track(0, [0])
    state.follow(0, rows())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda state: state.add(0, rows()), id="new rows"),
        pytest.param(lambda state: state.park(0, 0, rows()), id="park"),
        pytest.param(lambda state: state.spooler.add(0, rows()), id="spool"),
        pytest.param(lambda state: state.parts.keep_on_disk(0, rows()), id="cleanup"),
        pytest.param(track, id="track"),
    ],
)
def test_rows_that_are_not_written_stop_the_batch(
    state: SlotState, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "JOINED_BYTES", 300)
    whole = shelf.cut_rows
    monkeypatch.setattr(shelf, "cut_rows", lambda *some: but_the_last(whole(*some)))
    with pytest.raises(StateError, match=r"writing new rows read 60 rows but wrote \d+"):
        change(state)


def test_staged_rows_that_are_not_written_stop_the_batch(
    state: SlotState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "JOINED_BYTES", 300)
    monkeypatch.setattr(staging, "STAGED_BYTES", 100)
    whole = shelf.merged
    monkeypatch.setattr(shelf, "merged", lambda *some: but_the_last(whole(*some)))
    with pytest.raises(StateError, match="merging rows read 60 rows"):
        state.staging.add(0, rows())


def test_staged_rows_that_nobody_takes_stop_the_batch(
    state: SlotState, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.staging.add(0, rows())
    monkeypatch.setattr(bounds, "STEP_BYTES", 500)
    whole = staging._after
    monkeypatch.setattr(staging, "_after", lambda s, cut: whole(s, cut + 1000))
    monkeypatch.setattr(staging, "_below", lambda s, cut: whole(s, cut) and None)
    with pytest.raises(StateError, match="taking staged rows read 60 rows but wrote 0"):
        list(state.staging.take())


def test_rows_outside_their_slice_stop_the_batch(state: SlotState) -> None:
    narrow = HashRange(0, HASH_END // 2)
    for range_ in (narrow, HashRange(1, HASH_END)):
        with pytest.raises(StateError, match="writing slices read 60 rows but wrote 0"):
            state._shelf.write_all(0, rows().batch, range_)


def test_merge_that_loses_rows_stops_the_batch(
    state: SlotState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "FAN", 2)
    for _ in range(2):
        state.add(0, rows())
    whole = compactor.below
    monkeypatch.setattr(compactor, "below", lambda s, cut: (s.begin, whole(s, cut)[1] - 1))
    with pytest.raises(StateError, match="merging layers read 120 rows but wrote 118"):
        state.compact(None)


def test_spill_that_loses_rows_stops_the_batch(
    state: SlotState, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.add(0, rows())
    whole = shelf.merged
    monkeypatch.setattr(shelf, "merged", lambda *some: but_the_last(whole(*some)))
    with pytest.raises(StateError, match="merging rows read 15 rows but wrote 0"):
        state.parts.spill([1])


def test_rows_without_a_fate_stop_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fates = Fates.of(GROUPS, {Fate.PARK: [1], Fate.SPOOL: [2]})
    whole = admission.rows_inside
    monkeypatch.setattr(admission, "rows_inside", lambda some, at: whole(some, at[:1]))
    with pytest.raises(StateError, match="cutting rows by fate read 60 rows but wrote 45"):
        fates.cut([rows()])


def test_rows_that_no_move_takes_stop_the_batch(state: SlotState) -> None:
    fates = Fates.of(GROUPS, {Fate.PARK: [0, 1]})
    none = np.zeros(GROUPS, np.bool_)
    parks = ((7, (HashRange(0, HASH_END // 4),)),)
    found = intake.Intake(
        state,
        COUNTED,
        None,
        admission.Admission(fates, fates, none, parks),  # type: ignore[arg-type]
    )
    with pytest.raises(StateError, match="parking rows read 30 rows but wrote 15"):
        list(found.admit([rows()]))


def stored(operator: GroupByOperator | WindowedOperator, keys: list[int], batch: int) -> RunData:
    """One row for each key, whose hash it is."""
    ordered = sorted(keys)
    columns = [pa.array(ordered, pa.uint32()), pa.array(ordered, pa.int64())]
    delta = RunData(pa.RecordBatch.from_arrays(columns, ["_h", "c0"]))
    return operator.stored([delta], batch)[0]


@pytest.mark.parametrize("operator", [COUNTED, LEAST, LAST], ids=["counts", "least", "last rows"])
@pytest.mark.parametrize("most", [1 << 20, 120], ids=["at once", "in pieces"])
def test_combining_that_loses_a_key_stops_the_batch(
    operator: GroupByOperator | WindowedOperator, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "JOINED_BYTES", most)
    parts = [stored(operator, list(range(40)), batch).batch for batch in range(2)]

    def combine(some: pa.RecordBatch, order: np.ndarray) -> pa.RecordBatch:
        found = operator.combine(some, order, None)
        return found.slice(0, max(found.num_rows - 2, 0))

    with pytest.raises(StateError, match=r"combining rows read \d+ hashes but wrote \d+"):
        list(combined(parts, combine))


def test_combining_that_loses_a_count_stops_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key has its row, but not what one of its parts counted."""
    tiers = [LocalTier(kind, tmp_path / kind) for kind in ("memory", "disk")]
    store = Store(*tiers, open_durable(str(tmp_path / "durable"), fsync=False), OpenRuns(), 0)
    layout = COUNTED.layouts[0]
    some = shelf.Shelf(
        store, [layout], slot=SlotId(0), groups=GROUPS, version=Version(0), attempt="t"
    )
    parts = [stored(COUNTED, [1, 2, 3], batch).batch for batch in range(3)]
    assert sum(map(layout.weight, some.merged(0, parts, None))) == 9
    whole = shelf.combined
    monkeypatch.setattr(shelf, "combined", lambda given, combine: whole(given[1:], combine))
    with pytest.raises(StateError, match="merging rows read 9 rows but wrote 6"):
        list(some.merged(0, parts, None))

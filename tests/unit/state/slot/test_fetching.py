"""Groups move by reference: the receiver copies their rows from the durable tier, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import StateError
from spillway.ids import HASH_END, SlotId, Version
from spillway.routing.groups import group_of
from spillway.routing.routing import group_ranges
from spillway.state.layout.moving import Departure
from spillway.state.layout.shelf import StreamLayout
from spillway.state.manifest.combining import part_manifest
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.names import excerpt_name
from spillway.state.runs.run import RunData, Slice
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot.fetching import fetch_all, fetches
from spillway.state.slot.state import SlotState

GROUPS, STREAMS = 16, 2
LAYOUTS = [StreamLayout("a"), StreamLayout("b")]
LEFT = (1, 2, 3, 7, 8, 12)
Row = tuple[int, int, str]


def rows(count: int, seed: int) -> RunData:
    h = np.sort(np.random.default_rng(seed).integers(0, HASH_END, count).astype(np.uint32))
    ids = np.arange(count) + 1000 * seed
    names = ["_h", "c0", "c1"]
    text = pa.array([f"row {i}" for i in ids])
    return RunData(pa.RecordBatch.from_arrays([pa.array(h), pa.array(ids), text], names))


def store_of(root: Path, host: str, slot: int) -> Store:
    tiers = [LocalTier(kind, root / host / kind) for kind in ("memory", "disk")]
    return Store(*tiers, open_durable(str(root / "durable")), OpenRuns(), 0, slot)


def state_of(manifest: Manifest, store: Store, version: int) -> SlotState:
    return SlotState(
        manifest, store, LAYOUTS, groups=GROUPS, version=Version(version), attempt=f"x{store.slot}"
    )


@pytest.fixture
def sender(tmp_path: Path) -> Manifest:
    """Two streams, three layers each; some groups have left."""
    made = state_of(empty_manifest(SlotId(0), STREAMS), store_of(tmp_path, "sender", 0), 0)
    for stream in range(STREAMS):
        for layer in range(3):
            made.add(stream, rows(200, 3 * stream + layer))
    made.depart(4, LEFT)
    return made.next_manifest({}, 0)


@pytest.fixture
def departure(sender: Manifest) -> Departure:
    [found] = sender.departures
    return found


@pytest.fixture
def receiver(tmp_path: Path) -> Store:
    return store_of(tmp_path, "receiver", 1)


def all_rows(stream: int) -> Iterator[Row]:
    for layer in range(3):
        batch = rows(200, 3 * stream + layer).batch
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def of_groups(found: Iterator[Row], chosen: tuple[int, ...]) -> list[Row]:
    return sorted(r for r in found if group_of(np.array([r[0]], np.uint32), GROUPS)[0] in chosen)


def held(state: SlotState, stream: int) -> list[Row]:
    found = []
    for segment in state.segments(stream):
        found += zip(*(column.to_pylist() for column in segment.batch().columns), strict=True)
    return sorted(found)


def received(sender: Manifest, departure: Departure, store: Store) -> SlotState:
    part = part_manifest(SlotId(1), departure, departure.streams, sender.groups)
    state = state_of(empty_manifest(SlotId(1), STREAMS), store, 1)
    state.install(part)
    return state


def unreadable(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.durable, "read", lambda name: pytest.fail(f"{name} was read"))


def test_receiver_has_the_moved_rows_and_reads_no_more_than_it_fetched(
    sender: Manifest, departure: Departure, receiver: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = fetch_all(fetches(departure), receiver)
    unreadable(receiver, monkeypatch)
    state = received(sender, departure, receiver)
    for stream in range(STREAMS):
        assert held(state, stream) == of_groups(all_rows(stream), LEFT)
    files = [path for path in receiver.memory.root.iterdir() if "~1" in path.name]
    assert len(files) == STREAMS * 3, "one excerpt for each run"
    moved = sum(map(sum, departure.sizes))
    assert moved <= written < 1.2 * moved, "rows that stay with the sender were copied"


def test_receiver_that_fetched_nothing_reads_the_durable_tier(
    sender: Manifest, departure: Departure, receiver: Store
) -> None:
    state = received(sender, departure, receiver)
    for stream in range(STREAMS):
        assert held(state, stream) == of_groups(all_rows(stream), LEFT)
    runs = [one.run.name for one in fetches(departure)]
    assert sorted(receiver.restored) == sorted(runs), "each run is read once"


def test_fetching_twice_copies_nothing_and_keeps_what_is_there(
    departure: Departure, receiver: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, *_] = fetches(departure)
    a, b = group_ranges([1], GROUPS), group_ranges([7, 8], GROUPS)
    assert receiver.bring(first.run, a) > 0
    assert receiver.bring(first.run, b) > 0
    unreadable(receiver, monkeypatch)
    assert receiver.bring(first.run, (*a, *b)) == 0
    for range_ in (*a, *b):
        data = receiver.open(Slice(first.run, range_), None)
        assert data.rows_in(range_)[1] > data.rows_in(range_)[0]


def test_slot_that_needs_most_of_a_run_copies_the_run(
    departure: Departure, receiver: Store
) -> None:
    [first, *_] = fetches(departure)
    whole = group_ranges(range(15), GROUPS)
    receiver.bring(first.run, whole)
    assert (receiver.memory.root / first.run.name).stat().st_size == first.run.size_bytes
    assert not (receiver.memory.root / excerpt_name(first.run.name, 1)).exists()


def test_excerpt_that_somebody_changed_is_read_again(departure: Departure, receiver: Store) -> None:
    [first, *_] = fetches(departure)
    receiver.bring(first.run, first.ranges)
    path = receiver.memory.root / excerpt_name(first.run.name, 1)
    path.write_bytes(b"?" * path.stat().st_size)
    data = receiver.open(Slice(first.run, first.ranges[0]), None)
    assert data.rows_in(first.ranges[0])[1] > 0
    assert receiver.restored.count(first.run.name) == 2


def test_damaged_durable_run_is_not_taken_for_an_excerpt(
    tmp_path: Path, departure: Departure, receiver: Store
) -> None:
    [first, *_] = fetches(departure)
    path = tmp_path / "durable/runs" / first.run.name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(StateError, match="damaged in the durable tier"):
        receiver.bring(first.run, first.ranges)


def test_run_that_nobody_names_takes_its_excerpt_along(
    departure: Departure, receiver: Store
) -> None:
    [first, *_] = fetches(departure)
    receiver.bring(first.run, first.ranges)
    receiver.open(Slice(first.run, first.ranges[0]), None)
    receiver.forget(first.run.name)
    assert first.run.name not in "".join(receiver.memory.names())


def test_files_of_excerpts_count_with_their_own_size(
    sender: Manifest, departure: Departure, receiver: Store
) -> None:
    state = received(sender, departure, receiver)
    moved = sum(map(sum, departure.sizes))
    runs = sum(one.run.size_bytes for one in fetches(departure))
    assert moved <= state.memory.file_bytes() < 0.6 * runs

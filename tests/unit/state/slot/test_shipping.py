"""Parcels: every row of a departure is in exactly one, and arrives as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillway.ids import HASH_END, SlotId, Version
from spillway.routing.groups import group_of
from spillway.routing.routing import group_ranges
from spillway.state.layout.moving import Departure
from spillway.state.layout.shelf import StreamLayout
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.run import RunData
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot import shipping
from spillway.state.slot.shipping import Parcel, laid_out, pack, parcels, unpack
from spillway.state.slot.state import SlotState

GROUPS, STREAMS = 16, 2
LEFT = (1, 2, 3, 7, 8, 12)


def rows(count: int, seed: int) -> RunData:
    h = np.sort(np.random.default_rng(seed).integers(0, HASH_END, count).astype(np.uint32))
    ids = np.arange(count) + 1000 * seed
    names = ["_h", "c0", "c1"]
    text = pa.array([f"row {i}" for i in ids])
    return RunData(pa.RecordBatch.from_arrays([pa.array(h), pa.array(ids), text], names))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    tiers = [LocalTier(kind, tmp_path / kind) for kind in ("memory", "disk")]
    return Store(*tiers, open_durable(str(tmp_path / "durable")), OpenRuns(), 0)


@pytest.fixture
def state(store: Store) -> SlotState:
    """Two streams, three layers each."""
    made = SlotState(
        empty_manifest(SlotId(0), STREAMS),
        store,
        [StreamLayout("a"), StreamLayout("b")],
        groups=GROUPS,
        version=Version(0),
        attempt="x",
    )
    for stream in range(STREAMS):
        for layer in range(3):
            made.add(stream, rows(200, 3 * stream + layer))
    return made


@pytest.fixture
def departure(state: SlotState) -> Departure:
    state.depart(4, LEFT)
    [found] = state.next_manifest({}, 0).departures
    return found


def expected(stream: int) -> set[tuple[int, int, str]]:
    found = set()
    for layer in range(3):
        batch = rows(200, 3 * stream + layer).batch
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if group_of(np.array([row[0]], np.uint32), GROUPS)[0] in LEFT:
                found.add(row)
    return found


def groups_of(parcel: Parcel) -> list[int]:
    """The groups that a parcel's slices are of."""
    found = set()
    for group in range(GROUPS):
        [range_] = group_ranges([group], GROUPS)
        pieces = (piece for layer in parcel.layers for piece in layer.slices)
        if any(piece.range.meet(range_) for piece in pieces):
            found.add(group)
    return sorted(found)


@pytest.mark.parametrize("bound", [1, 1500, 4000, 1 << 30])
def test_parcels_have_every_group_once_and_respect_the_bound(
    departure: Departure, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "PARCEL_BYTES", bound)
    found = parcels(departure, GROUPS)
    for stream in range(STREAMS):
        mine = [parcel for parcel in found if parcel.stream == stream]
        assert [group for parcel in mine for group in groups_of(parcel)] == list(LEFT)
        assert sum(parcel.bytes for parcel in mine) == sum(departure.sizes[stream])
        assert all(parcel.bytes <= bound or len(groups_of(parcel)) == 1 for parcel in mine)
        assert all(a.range.hi <= b.range.lo for a, b in pairwise(mine))
    assert bound > 1 or len(found) == STREAMS * len(LEFT)
    assert bound < 1 << 30 or len(found) == STREAMS


def test_larger_group_is_a_parcel_of_its_own(
    departure: Departure, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = tuple(tuple(10_000 if group == 7 else 100 for group in LEFT) for _ in departure.sizes)
    monkeypatch.setattr(shipping, "PARCEL_BYTES", 300)
    found = parcels(replace(departure, sizes=sizes), GROUPS)
    assert [groups_of(parcel) for parcel in found] == [[1, 2, 3], [7], [8, 12]] * STREAMS


def test_groups_without_rows_are_not_sent(state: SlotState) -> None:
    empty = tuple(() for _ in range(STREAMS))
    none = Departure(1, LEFT, empty, ((0,) * len(LEFT),) * STREAMS)
    assert parcels(none, GROUPS) == []


@pytest.mark.parametrize("parcel_bytes", [1, 2000, 1 << 30])
@pytest.mark.parametrize("piece_bytes", [1, 500, 1 << 20])
def test_rows_arrive_sorted_and_all_of_them(
    departure: Departure,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    parcel_bytes: int,
    piece_bytes: int,
) -> None:
    monkeypatch.setattr(shipping, "PARCEL_BYTES", parcel_bytes)
    monkeypatch.setattr(shipping, "PIECE_BYTES", piece_bytes)
    received = []
    for number, parcel in enumerate(parcels(departure, GROUPS)):
        pieces = list(pack(parcel, None, store))
        [run] = unpack(pieces, f"received-{number}.arrow", None, store)
        data = store.open(run, None)
        assert (np.diff(data.h.astype(np.int64)) >= 0).all()
        assert data.rows_in(parcel.range) == (0, data.rows)
        assert (run.rows, run.tier) == (data.rows, "memory")
        assert piece_bytes > 1 or len(pieces) == run.rows
        received.append((parcel, run))
    for stream, layers in enumerate(laid_out(received, STREAMS)):
        [layer] = layers
        arrived = [
            row
            for piece in layer.slices
            for row in zip(
                *(c.to_pylist() for c in store.open(piece.run, None).batch.columns), strict=True
            )
        ]
        assert len(arrived) == len(set(arrived))
        assert set(arrived) == expected(stream)
        assert [row[0] for row in arrived] == sorted(row[0] for row in arrived)


def test_stream_of_which_nothing_was_received_has_no_layer(
    departure: Departure, store: Store
) -> None:
    parcel = next(one for one in parcels(departure, GROUPS) if one.stream == 1)
    [run] = unpack(pack(parcel, None, store), "received.arrow", None, store)
    first, second = laid_out([(parcel, run)], STREAMS)
    assert first == ()
    assert [piece.run for piece in second[0].slices] == [run]


@pytest.fixture
def sized() -> Callable[..., list[Parcel]]:
    [whole] = group_ranges(range(GROUPS), GROUPS)
    return lambda *sizes: [Parcel(0, (), whole, size) for size in sizes]

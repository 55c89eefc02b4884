"""The store, the tiers and compaction, on real files and without Spark."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import StateError
from spillway.ids import HASH_END, SlotId, Version
from spillway.routing.routing import HashRange, Routing
from spillway.state.layout.compaction import FAN, FUEL, LEAST_FUEL_ROWS
from spillway.state.layout.layers import SOURCE, Layer, side_by_side
from spillway.state.layout.shelf import StreamLayout
from spillway.state.manifest.combining import combine
from spillway.state.manifest.manifest import FORMAT, empty_manifest
from spillway.state.manifest.reading import decode_manifest
from spillway.state.runs import tiers
from spillway.state.runs.durable import open_durable
from spillway.state.runs.durable.opening import open_filesystem
from spillway.state.runs.merging import WHOLE
from spillway.state.runs.run import Run, RunData, Slice
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot import memory, staging
from spillway.state.slot.state import SlotState

LAYOUT = StreamLayout("a")


def rows(count: int, seed: int, high: int = HASH_END) -> RunData:
    h = np.sort(np.random.default_rng(seed).integers(0, high, count).astype(np.uint32))
    return RunData(
        pa.RecordBatch.from_arrays([pa.array(h), pa.array(h.astype(np.int64))], ["_h", "c0"])
    )


@pytest.fixture
def store(tmp_path):
    def make(batch: int = 0, opened: OpenRuns | None = None) -> Store:
        return Store(
            LocalTier("memory", tmp_path / "memory"),
            LocalTier("disk", tmp_path / "disk"),
            open_durable(str(tmp_path / "durable"), fsync=False),
            opened if opened is not None else OpenRuns(),
            batch,
        )

    return make


def opened(manifest, store, layout=LAYOUT, batch=0):
    """The state of one stream in four groups, to be changed."""
    version, attempt = Version(batch), f"a{batch}-{manifest.slot}"
    return SlotState(manifest, store, [layout], groups=4, version=version, attempt=attempt)


def advanced(manifest, store, batch, deltas, watermark_us=None, layout=LAYOUT):
    """One batch of one stream: the next manifest, and the rows it merged."""
    state = opened(manifest, store(batch), layout, batch)
    state.expire(watermark_us)
    for delta in deltas:
        state.add(0, delta)
    state.compact(watermark_us)
    return state, state.next_manifest({}, 0), state.merged_rows


def test_layers_stay_logarithmic_and_no_batch_merges_much(store) -> None:
    manifest = empty_manifest(SlotId(0), 1)
    size, batches = 9000, 150
    for batch in range(batches):
        state, manifest, merged = advanced(manifest, store, batch, [rows(size, batch)])
        levels = 1 + max(layer.level for layer in manifest.streams[0])
        assert merged <= 1.3 * levels * max(LEAST_FUEL_ROWS, FUEL * size)
        assert state.layer_counts[0] <= 2 * FAN * levels + 1
    assert manifest.state_rows == (size * batches,)
    assert levels <= 2 + math.log(batches, FAN)


def test_compaction_keeps_every_row_and_every_layer_disjoint(store) -> None:
    manifest = empty_manifest(SlotId(0), 1)
    deltas = [rows(500, seed) for seed in range(40)]
    for batch, delta in enumerate(deltas):
        state, manifest, _ = advanced(manifest, store, batch, [delta])
        for layer in manifest.streams[0]:
            bounds = [(s.range.lo, s.range.hi) for s in layer.slices]
            assert bounds == sorted(bounds)
            assert all(a[1] <= b[0] for a, b in pairwise(bounds))
    kept = np.concatenate([s.data.h[s.begin : s.end] for s in state.segments(0)])
    assert np.array_equal(np.sort(kept), np.sort(np.concatenate([d.h for d in deltas])))


def test_one_hot_hash_is_merged_alone_and_does_not_stop_the_rest(store) -> None:
    manifest = empty_manifest(SlotId(0), 1)
    hot = np.full(6000, 7, np.uint32)
    hot_rows = RunData(
        pa.RecordBatch.from_arrays([pa.array(hot), pa.array(hot.astype("i8"))], ["_h", "c0"])
    )
    for batch in range(60):
        _, manifest, _ = advanced(manifest, store, batch, [hot_rows, rows(500, batch)])
    assert manifest.state_rows == (60 * 6500,)
    assert len(manifest.streams[0]) <= 4 * FAN


def test_bytes_of_a_group_are_the_bytes_of_its_slices(store) -> None:
    manifest = empty_manifest(SlotId(0), 1)
    for batch in range(20):
        _, manifest, _ = advanced(manifest, store, batch, [rows(100, batch)])
    assert manifest.groups.rows.sum() == 2000
    assert manifest.groups.bytes.sum() == sum(manifest.state_bytes) == 2000 * 12


def test_manifest_survives_its_encoding(store) -> None:
    _, manifest, _ = advanced(empty_manifest(SlotId(0), 1), store, 0, [rows(10, 0)])
    again = decode_manifest(manifest.encode(), "m")
    assert again.streams == manifest.streams
    assert again.groups.rows.tolist() == manifest.groups.rows.tolist()


def test_damaged_and_newer_manifests_are_refused() -> None:
    data = empty_manifest(SlotId(0), 1).encode()
    with pytest.raises(StateError, match="manifest m is damaged"):
        decode_manifest(data[:-2], "m")
    from spillway.kernels.checksum import checksum

    known, newer = (f'"format":{number}'.encode() for number in (FORMAT.number, FORMAT.number + 1))
    body = data.partition(b"\n")[2].replace(known, newer)
    with pytest.raises(StateError, match="written by a newer version"):
        decode_manifest(f"{checksum(body):016x}\n".encode() + body, "m")


def test_cutting_and_combining_moves_rows_between_slots_without_touching_files(store) -> None:
    before = []
    for slot, (lo, hi) in enumerate([(0, HASH_END // 2), (HASH_END // 2, HASH_END)]):
        delta = rows(1000, slot)
        at = delta.rows_in(HashRange(lo, hi))
        mine = RunData(delta.batch.slice(at[0], at[1] - at[0]))
        state = opened(empty_manifest(SlotId(slot), 1), store())
        state.add(0, mine)
        before.append(state.next_manifest({}, 0))
    routing = Routing.even(4, 2).resized(3)
    after = [combine(before, SlotId(s), routing, 1) for s in range(3)]
    total = 0
    for manifest in after:
        state = opened(manifest, store(), batch=1)
        total += sum(segment.rows for segment in state.segments(0))
        assert len(manifest.streams[0]) == 1
    assert total == sum(m.state_rows[0] for m in before)
    assert sum(int(m.groups.rows.sum()) for m in after) == total


def test_damaged_local_copy_is_replaced_from_the_durable_tier(store, tmp_path) -> None:
    _, manifest, _ = advanced(empty_manifest(SlotId(0), 1), store, 0, [rows(100, 0)])
    run = next(iter(manifest.runs().values()))
    local = tmp_path / "memory" / run.name
    for damage in (lambda b: b[:-5], lambda b: b[:200] + b"\xff" + b[201:], lambda _: b""):
        local.write_bytes(damage(local.read_bytes()))
        again = store()
        assert again.open(Slice(run, WHOLE), None).rows == 100
        assert again.restored == [run.name]
        fresh = store()
        fresh.open(Slice(run, WHOLE), None)
        assert fresh.restored == []


def test_rows_that_are_only_staged_are_not_durable(store, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(staging, "STAGED_BYTES", 1000)
    state = opened(empty_manifest(SlotId(0), 1), store())
    for waiting in (state.visiting, state.staging):
        for seed in range(3):
            waiting.add(0, rows(200, seed))
        assert list((tmp_path / "disk").iterdir())
        taken = [found.rows for (found,) in waiting.take() if found is not None]
        assert sum(taken) == 600
    assert open_durable(str(tmp_path / "durable")).names("runs") == []
    # What is said to have been written is what is deleted, wherever it is.
    assert len(state.written) == len(list((tmp_path / "disk").iterdir()))


def test_whole_file_is_read_for_its_checksum_once_and_again_after_a_change(
    store, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(tiers, "is_volatile", lambda _: True)
    _, manifest, _ = advanced(empty_manifest(SlotId(0), 1), store, 0, [rows(100, 0)])
    run = next(iter(manifest.runs().values()))
    local, memory = tmp_path / "memory" / run.name, store().memory
    assert memory.stamped(run.name, run.checksum)
    assert not memory.stamped(run.name, run.checksum + 1)
    local.write_bytes(local.read_bytes())
    assert not memory.stamped(run.name, run.checksum)
    assert store().open(Slice(run, WHOLE), None).rows == 100
    assert memory.stamped(run.name, run.checksum)
    assert not memory.stamped("missing", run.checksum)


def test_file_is_not_stamped_where_the_boot_is_not_known(store, monkeypatch) -> None:
    monkeypatch.setattr(tiers, "is_volatile", lambda _: True)
    monkeypatch.setattr(tiers, "_boot", lambda: None)
    _, manifest, _ = advanced(empty_manifest(SlotId(0), 1), store, 0, [rows(100, 0)])
    run = next(iter(manifest.runs().values()))
    again = store()
    assert not again.memory.stamped(run.name, run.checksum)
    assert again.open(Slice(run, WHOLE), None).rows == 100
    assert again.restored == []


def test_run_damaged_in_the_durable_tier_too_is_refused_by_name(store, tmp_path) -> None:
    _, manifest, _ = advanced(empty_manifest(SlotId(0), 1), store, 0, [rows(100, 0)])
    run = next(iter(manifest.runs().values()))
    (tmp_path / "memory" / run.name).unlink()
    durable = tmp_path / "durable" / "runs" / run.name
    durable.write_bytes(durable.read_bytes()[:50])
    with pytest.raises(StateError, match=f"run {run.name} is damaged in the durable tier"):
        store().open(Slice(run, WHOLE), None)
    durable.unlink()
    with pytest.raises(StateError, match=f"run {run.name} is missing in the durable tier"):
        store().open(Slice(run, WHOLE), None)


def test_expired_layers_leave_whole_and_mixed_ones_are_filtered(store) -> None:
    layout = StreamLayout("a", time_column=0, window_us=10)

    def timed(times: list[int], seed: int) -> RunData:
        h = np.sort(np.random.default_rng(seed).integers(0, HASH_END, len(times)).astype(np.uint32))
        times_us = pa.array(times, pa.timestamp("us"))
        return RunData(pa.RecordBatch.from_arrays([pa.array(h), times_us], ["_h", "c0"]), 0)

    manifest = empty_manifest(SlotId(0), 1)
    for batch in range(300):
        deltas = [timed([batch, batch - 3, batch - 5], batch)]
        state, manifest, _ = advanced(manifest, store, batch, deltas, batch - 5, layout)
        # Alive are the rows of the last window and lateness; what is kept beyond is bounded too.
        assert manifest.state_rows[0] <= 3 * (10 + 5 + 60)
    assert state.layer_counts[0] <= 70


def test_durable_tier_works_on_any_pyarrow_filesystem() -> None:
    tier = open_durable("mock:///check/point")
    assert tier.local_path() is None
    assert tier.read("log/1.json") is None
    tier.write("runs/r", b"abc")
    assert bytes(tier.read("runs/r")) == b"abc"
    assert tier.publish("log/1.json", b"x")
    assert not tier.publish("log/1.json", b"y")
    tier.replace("metadata.json", b"1")
    tier.replace("metadata.json", b"2")
    assert bytes(tier.read("metadata.json")) == b"2"
    assert tier.names("log") == ["1.json"]
    assert tier.names("nowhere") == []
    tier.delete(["runs/r"])
    tier.delete(["runs/r"])
    assert tier.names("runs") == []


def test_hadoop_names_of_a_place_are_understood(tmp_path) -> None:
    assert open_filesystem(f"file:{tmp_path}")[1] == str(tmp_path)
    with pytest.raises(StateError, match="cannot be opened"):
        open_filesystem("gopher://host/path")


def test_a_spill_moves_rows_and_leaves_the_others_where_they_are(store) -> None:
    manifest = empty_manifest(SlotId(0), 1)
    for batch in range(6):
        _, manifest, _ = advanced(manifest, store, batch, [rows(400, batch)])
    state = opened(manifest, store(6), batch=6)
    before = state.parts.sizes()
    files = {p.run.name for layer in manifest.streams[0] for p in layer.slices}
    state.parts.spill([1, 3])
    after = state.parts.sizes()
    assert after.rows[0].tolist() == [before.rows[0][0], 0, before.rows[0][2], 0]
    assert after.disk_rows.tolist() == [0, before.rows[0][1], 0, before.rows[0][3]]
    assert after.generations.tolist() == [0, 1, 0, 1]
    made = state.next_manifest({}, 0)
    assert {p.run.name for layer in made.streams[0] for p in layer.slices} == files
    assert {run.tier for run in made.runs().values()} == {"memory", "disk"}
    assert decode_manifest(made.encode(), "m").generations == made.generations


def test_settling_makes_the_parts_of_a_group_one(store) -> None:
    manifest = empty_manifest(SlotId(0), 1)
    for batch in range(3):
        state = opened(manifest, store(batch), batch=batch)
        state.add(0, rows(400, batch))
        state.parts.spill([0, 1, 2])
        manifest = state.next_manifest({}, 0)
    assert manifest.groups.pending.tolist() == [True, True, True, False]
    state = opened(manifest, store(3), batch=3)
    state.parts.settle([0, 2], in_memory=False)
    state.parts.settle([1], in_memory=True)
    settled = state.next_manifest({}, 0).groups
    assert settled.generations.tolist() == [1, 0, 1, 0]
    assert settled.rows[0].tolist()[1] == manifest.groups.disk_rows[1]
    assert not settled.pending.any()
    total = settled.rows.sum() + settled.disk_rows.sum()
    assert total == 1200


@pytest.mark.parametrize("visited", [False, True])
def test_parts_that_visitors_look_into_miss_nothing(store, visited) -> None:
    layout, manifest = StreamLayout("a", visited=visited), empty_manifest(SlotId(0), 1)
    for batch in range(2):
        state = opened(manifest, store(batch), layout, batch)
        state.parts.spill([1, 2])
        state.parts.seal()
        state.add(0, rows(400, batch))
        manifest = state.next_manifest({}, 0)
        state.parts.note_pending()
        missing = {1, 2} if batch and not visited else set()
        assert state.parts.pending == state.parts.missing_in(manifest.groups) == missing
    assert opened(manifest, store(2), layout, 2).parts.pending == missing
    other = opened(empty_manifest(SlotId(1), 1), store(2), layout, 2)
    other.install(manifest)
    assert other.parts.pending == missing


def test_files_do_not_outgrow_the_rows_that_are_left_in_them(store, monkeypatch) -> None:
    monkeypatch.setattr(memory, "LEAST_WASTE_BYTES", 3000)
    manifest = empty_manifest(SlotId(0), 1)
    _, manifest, _ = advanced(manifest, store, 0, [rows(20_000, 0)])
    state = opened(manifest, store(1), batch=1)
    state.parts.spill([0, 1, 2])
    whole = sum(run.size_bytes for run in manifest.runs().values())
    state.parts.trim(whole)
    assert state.next_manifest({}, 0).streams[0][0].slices[0].run.size_bytes == whole
    state.parts.trim(whole // 2)
    left = state.next_manifest({}, 0)
    assert left.streams[0][0].slices[0].run.size_bytes < whole // 3
    assert left.groups.rows[0].tolist() == [0, 0, 0, manifest.groups.rows[0][3]]


def test_stacks_side_by_side_have_no_more_layers_than_the_taller_one() -> None:
    def layer(level: int, name: str, lo: int, hi: int) -> Layer:
        return Layer(level, (Slice(Run(name, 1, 1, 0, None, None), HashRange(lo, hi)),))

    here = [layer(1, "a1", 0, 100), layer(0, "a0", 0, 100)]
    there = [layer(1, "b1", 20, 30), layer(0, "old", 20, 30), layer(0, "new", 20, 30)]
    found = side_by_side(here, there)
    assert [one.level for one in found] == [1, 0, 0]
    named = [[(s.run.name, s.range.lo, s.range.hi) for s in one.slices] for one in found]
    assert named == [
        [("a1", 0, 100), ("b1", 20, 30)],
        [("old", 20, 30)],
        [("a0", 0, 100), ("new", 20, 30)],
    ]


def test_a_layer_that_is_being_merged_is_left_alone() -> None:
    slices = (Slice(Run("a", 1, 1, 0, None, None), HashRange(0, 100)),)
    here, there = Layer(0, slices, SOURCE), Layer(0, (Slice(slices[0].run, HashRange(5, 9)),))
    assert side_by_side([here], [there]) == (here, there)

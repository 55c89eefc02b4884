"""`spillway inspect`: what it tells of a checkpoint, whole or damaged, and of what is none."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.log import Log
from spillway.cli.main import app
from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import new_note
from spillway.coordinator.coordinator import Coordinator, Took
from spillway.coordinator.decisions.adaptation import Rules, begin, rescale
from spillway.coordinator.terms import Terms
from spillway.errors import QueryError, StateError
from spillway.ids import SlotId
from spillway.inspect.inspection import inspect_checkpoint
from spillway.metrics.events import ForceSpilled, GroupsReceived, MoveAsked, Scaled, Spilled
from spillway.metrics.record import SlotRecord
from spillway.operators.equi.join import JoinOperator
from spillway.operators.input import StreamColumns
from spillway.plan.dedup import DedupPlan
from spillway.plan.join import JoinPlan, StreamPlan, WindowPlan
from spillway.policies.cluster.decision import Move
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.local.controller import LocalController
from spillway.protocols.messages import Received, ReceivePartitions
from spillway.protocols.move import Phase
from spillway.routing.groups import group_of
from spillway.routing.routing import Routing
from spillway.slot.job import SlotJob
from spillway.slot.run import Attempt, run_slot
from spillway.state.manifest.combining import part_manifest
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot.shipping import laid_out, pack, parcels, unpack

GROUPS, SLOTS, BATCHES, KEYS = 8, 2, 3, 40
SECOND_US = 1_000_000
PLAN = JoinPlan(
    tuple(
        StreamPlan(
            name,
            (("k", "bigint"), ("t", "timestamp")),
            ("k",),
            WindowPlan("t", 60 * SECOND_US, 5 * SECOND_US),
        )
        for name in ("left", "right")
    ),
    ("bigint",),
)
COLUMNS = tuple(
    StreamColumns(name, ("k", "t"), (0, 1), (0,), 1, 60 * SECOND_US) for name in ("left", "right")
)


def rows_of(batch: int) -> pa.RecordBatch:
    """Each stream has each key once, in every batch."""
    keys = np.tile(np.arange(KEYS), 2)
    hashes = (keys * 2_654_435_761 % 2**32).astype(np.uint32)
    times = np.full(2 * KEYS, (batch + 1) * SECOND_US)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.repeat([0, 1], KEYS), pa.int8()),
            pa.array(hashes.view(np.int32)),
            pa.array(keys, pa.int64()),
            pa.array(times, pa.timestamp("us")),
        ],
        names=["_stream", "_h", "lane0", "lane1"],
    )


def store_of(root: Path, checkpoint: Checkpoint, batch: int) -> Store:
    tiers = [LocalTier(kind, root / kind) for kind in ("memory", "disk")]
    return Store(*tiers, checkpoint.durable, OpenRuns(), batch)


def coordinator_at(state: Committed) -> Coordinator:
    """A coordinator that begins nothing by itself."""
    return Coordinator(Terms((5 * SECOND_US,) * 2), state, Rules(Strategy("none")))


def run_batch(root: Path, checkpoint: Checkpoint, state: Committed, attempts: Iterator[int]) -> Any:
    coordinator = coordinator_at(state)
    plan, _ = coordinator.plan_batch(state.batch + 1)
    rows = rows_of(plan.batch)
    hashes = rows.column(1).to_numpy().view(np.uint32)
    groups = group_of(hashes, GROUPS)
    slot_of = np.array(plan.routing.table)[groups]
    copied = np.array([plan.copies.get(group, -1) for group in range(GROUPS)])[groups]
    records: dict[int, SlotRecord] = {}
    for slot in range(plan.routing.slots):
        name = plan.manifests[slot]
        manifest = checkpoint.manifest(name) if name else empty_manifest(SlotId(slot), 2)
        store = store_of(root, checkpoint, plan.batch)
        job = SlotJob(
            batch=plan.batch,
            slot=SlotId(slot),
            groups=GROUPS,
            streams=COLUMNS,
            watermark_us=plan.watermark_us,
            piece_bytes=1 << 20,
            attempt=str(next(attempts)),
            worker="test",
            orders=plan.orders.get(slot, ()),
            owned=plan.routing.groups_of(SlotId(slot)),
        )
        mine = [rows.filter(pa.array((slot_of == slot) | (copied == slot)))]
        taken: list[SlotRecord] = []
        operator = JoinOperator(COLUMNS, 1000)
        attempt = Attempt(job, manifest, operator, LocalController(), store, taken.append)
        for _ in run_slot(mine, attempt):
            pass
        records[slot] = taken[0]
    after, _ = coordinator.commit(plan, records, Took(0.0))
    checkpoint.log.append(after.state)
    return after.state


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A checkpointLocation with three committed batches of two slots."""
    place = tmp_path / "ck"
    checkpoint = Checkpoint(str(place / "spillway"))
    checkpoint.open(PLAN.fingerprint(), GROUPS, "0.0.test")
    state, _ = checkpoint.recover(2, Routing.even(GROUPS, SLOTS))
    attempts = itertools.count()
    for _ in range(BATCHES):
        state = run_batch(tmp_path, checkpoint, state, attempts)
    return place


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line; the exit code and what it printed."""

    def command(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app(["inspect", *map(str, arguments)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return command


@pytest.fixture
def moving(location: Path, tmp_path: Path) -> Path:
    """The same, with a move from slot 0 to slot 1 for which rows of two batches wait."""
    checkpoint, state = opened(location)
    state = begin(state, [Move(0, 1, 500, "M_least/M_max = 0.40 < 0.80")])
    attempts = itertools.count(1000)
    for _ in range(3):
        state = run_batch(tmp_path, checkpoint, state, attempts)
    assert [move.phase for move in state.moves] == [Phase.SENDING]
    return location


def opened(location: Path) -> tuple[Checkpoint, Committed]:
    checkpoint = Checkpoint(str(location / "spillway"))
    state = checkpoint.log.latest()
    assert state is not None
    return checkpoint, state


def logged(location: Path, **changes: object) -> None:
    """One more commit, of which only that is different."""
    checkpoint, state = opened(location)
    checkpoint.log.append(replace(state, round=state.round + 1, **changes))


def receive(location: Path, root: Path) -> str:
    """The groups that have departed are received, and a batch is begun that knows of it."""
    checkpoint, state = opened(location)
    name = state.manifests[0]
    assert name is not None
    sender, store = checkpoint.manifest(name), store_of(root, checkpoint, state.batch)
    [departure] = sender.departures
    arrived = [
        (parcel, unpack(pack(parcel, 1, store), f"received-{parcel.stream}.arrow", 1, store))
        for parcel in parcels(departure, GROUPS)
    ]
    part = part_manifest(SlotId(1), departure, laid_out(arrived, 2), sender.groups)
    checkpoint.durable.write("manifests/part.json", part.encode())
    said = [ReceivePartitions(0), Received(0, "manifests/part.json", 1)]
    heard, _ = coordinator_at(state).hear([(message, 0.0) for message in said])
    checkpoint.log.begin(Mark(state.batch + 1), new_note(heard.state, {}))
    return "manifests/part.json"


def named_runs(location: Path) -> list[Path]:
    checkpoint = Checkpoint(str(location / "spillway"))
    state = checkpoint.log.latest()
    assert state is not None
    names = {run for name in state.manifests if name for run in checkpoint.manifest(name).runs()}
    return [location / "spillway" / "runs" / name for name in sorted(names)]


def test_document_has_query_routing_totals_and_state_of_every_slot(location, run) -> None:
    code, out, _ = run(location, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["version"] == "0.0.test"
    assert [stream["name"] for stream in found["streams"]] == ["left", "right"]
    assert found["streams"][0]["keys"] == ["k"]
    assert found["streams"][0]["columns"] == {"k": "bigint", "t": "timestamp"}
    window = {"time": "t", "seconds": 60, "lateness_seconds": 5, "tumbling": False}
    assert found["streams"][0]["window"] == window
    assert found["committed"]["batches"] == BATCHES
    assert found["committed"]["routing"] == {"version": 0, "slots": SLOTS, "groups": GROUPS}
    assert found["committed"]["watermark"] == "1969-12-31T23:59:58.000Z"
    assert found["committed"]["rows_in"] == {"left": BATCHES * KEYS, "right": BATCHES * KEYS}
    assert found["committed"]["rows_late"] == {"left": 0, "right": 0}
    # Every key meets itself in each pair of batches.
    assert found["committed"]["rows_out"] == KEYS * BATCHES**2
    assert [slot["groups"] for slot in found["slots"]] == [GROUPS // SLOTS] * SLOTS
    for stream in ("left", "right"):
        states = [slot["streams"][stream] for slot in found["slots"]]
        assert sum(state["rows"] for state in states) == BATCHES * KEYS
        assert all(state["bytes"] > 0 and state["layers"] > 0 for state in states)
        assert all(state["runs"] >= 1 for state in states)
    assert (found["ok"], found["problems"], found["verified"]) == (True, [], False)


def test_busiest_groups_come_first(location) -> None:
    for slot in inspect_checkpoint(str(location)).slots:
        outputs = [group.outputs for group in slot.top_groups]
        assert outputs == sorted(outputs, reverse=True)
        assert outputs[-1] > 0
        assert all(group.last_insert == BATCHES - 1 for group in slot.top_groups)


def test_the_directory_of_state_itself_is_taken_too(location) -> None:
    inner = inspect_checkpoint(str(location / "spillway"))
    assert inner.location == inspect_checkpoint(str(location)).location


def test_text_names_streams_slots_and_says_it_is_whole(location, run) -> None:
    code, out, _ = run(location)
    assert code == 0
    assert "on k bigint, within 60 s on t, lateness 5 s" in out
    assert "2 slots, 8 groups, version 0" in out
    assert "complete: the manifests and the sizes of all runs are correct" in out


def test_window_of_stretches_is_told_from_one_between_rows(tmp_path, run) -> None:
    stream = replace(PLAN.streams[0], window=WindowPlan("t", 60 * SECOND_US, 0, tumbling=True))
    once = DedupPlan(stream, ("bigint",))
    Checkpoint(str(tmp_path / "ck" / "spillway")).open(once.fingerprint(), GROUPS, "0.0.test")
    assert "on k bigint, every 60 s on t, lateness 0 s" in run(tmp_path / "ck")[1]
    [found] = json.loads(run(tmp_path / "ck", "--json")[1])["streams"]
    assert found["window"]["tumbling"] is True


def test_checkpoint_of_a_running_query_is_read_without_its_lock(location) -> None:
    holder = Checkpoint(str(location / "spillway"))
    holder.acquire()
    try:
        assert inspect_checkpoint(str(location)).problems == []
    finally:
        holder.release()


def test_checkpoint_before_its_first_batch_is_whole(tmp_path, run) -> None:
    Checkpoint(str(tmp_path / "spillway")).open(PLAN.fingerprint(), GROUPS, "0.0.test")
    code, out, _ = run(tmp_path, "--json")
    assert code == 0
    assert json.loads(out)["committed"] is None
    assert "no batch yet" in run(tmp_path)[1]


def test_missing_and_truncated_runs_are_problems(location, run) -> None:
    gone, short = named_runs(location)[:2]
    full = short.stat().st_size
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-8])
    code, out, _ = run(location, "--json")
    assert code == 1
    found = json.loads(out)
    assert found["ok"] is False
    assert sorted(found["problems"]) == sorted(
        [f"run {gone.name} is missing", f"run {short.name} has {full - 8} bytes instead of {full}"]
    )


def test_changed_content_is_found_by_verify_alone(location, run) -> None:
    victim = named_runs(location)[0]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    assert run(location)[0] == 0
    code, out, _ = run(location, "--verify")
    assert code == 1
    assert f"problem: run {victim.name} is damaged" in out


@pytest.mark.parametrize(("harm", "said"), [("missing", "is missing"), ("damaged", "is damaged")])
def test_harmed_manifest_is_named_and_the_other_slots_are_shown(location, harm, said) -> None:
    name = inspect_checkpoint(str(location)).slots[1].manifest
    assert name is not None
    path = location / "spillway" / name
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-3])
    found = inspect_checkpoint(str(location))
    assert list(found.problems) == [f"manifest {name} {said} (slot 1)"]
    assert list(found.slots[0].streams) == ["left", "right"]
    assert found.slots[1].streams == {}


def test_damaged_log_record_is_a_problem(location, run) -> None:
    (location / "spillway" / "log" / f"{BATCHES - 1:09d}.json").write_text("nonsense")
    code, out, _ = run(location)
    assert code == 1
    assert f"problem: log record log/{BATCHES - 1:09d}.json is damaged" in out


def test_files_deleted_by_a_newer_batch_are_no_problem(location, monkeypatch) -> None:
    older = Checkpoint(str(location / "spillway")).log.read(Mark(0))
    for name in older.manifests:
        assert name is not None
        (location / "spillway" / name).unlink()
    real, looks = Log.latest, itertools.count()
    monkeypatch.setattr(Log, "latest", lambda log: real(log) if next(looks) else older)
    found = inspect_checkpoint(str(location))
    assert found.problems == []
    assert found.committed is not None
    assert found.committed.batch == BATCHES - 1


def test_leftovers_of_attempts_are_counted_and_no_problem(location) -> None:
    before = inspect_checkpoint(str(location)).files
    (location / "spillway" / "runs" / "left-behind.arrow").write_bytes(b"x")
    after = inspect_checkpoint(str(location))
    assert after.files.unnamed == before.unnamed + 1
    assert after.files.named == before.named == len(named_runs(location))
    assert after.problems == []


def test_path_that_is_no_checkpoint_is_refused(tmp_path, run) -> None:
    with pytest.raises(QueryError) as refused:
        inspect_checkpoint(str(tmp_path))
    assert str(refused.value) == (
        f"{tmp_path} is not a Spillway checkpoint\n"
        "  detail: neither it nor a directory 'spillway' in it has a metadata.json\n"
        "  hint: pass the checkpointLocation of the query, or the directory in "
        ".adapt(durable=...) if the query uses it"
    )
    code, out, err = run(tmp_path / "nowhere", "--json")
    assert (code, err) == (2, "")
    assert "is not a Spillway checkpoint" in json.loads(out)["error"]["message"]


def test_damaged_metadata_is_refused(location) -> None:
    (location / "spillway" / "metadata.json").write_text("0000\n{}")
    with pytest.raises(StateError, match=r"the metadata of the checkpoint at .* is damaged"):
        inspect_checkpoint(str(location))


def test_moves_under_way_are_shown_with_what_has_departed_and_what_waits(moving, run) -> None:
    code, out, _ = run(moving, "--json")
    found = json.loads(out)
    [move] = found["committed"]["moves"]
    assert code == 0
    assert (move["move"], move["from_slot"], move["to_slot"]) == (0, 0, 1)
    assert (move["phase"], move["failures"], move["wanted_bytes"]) == ("sending", 0, 500)
    assert move["reason"] == "M_least/M_max = 0.40 < 0.80"
    assert len(move["groups"]) >= 1
    sender, receiver = found["slots"]
    # Every key was in each of the batches, twice: the choice was made after the first four.
    hashes = (np.arange(KEYS) * 2_654_435_761 % 2**32).astype(np.uint32)
    keys = int(np.isin(group_of(hashes, GROUPS), move["groups"]).sum())
    [departed], [parked] = sender["departed"], receiver["parked"]
    assert departed["rows"] == 2 * keys * (BATCHES + 1)
    assert departed["bytes"] == move["bytes"] > 0
    assert parked["rows"] == 2 * keys * 2
    assert 0 < parked["bytes"] < departed["bytes"]
    assert (departed["move"], departed["disk_rows"], departed["disk_bytes"]) == (0, 0, 0)
    assert (sender["parked"], receiver["departed"]) == ([], [])
    text = run(moving)[1]
    assert "move 0 from slot 0 to slot 1: sending " in text
    assert f"slot 0: departed {departed['rows']:,} rows, " in text
    assert f"slot 1: parked {parked['rows']:,} rows, " in text


def test_parallel_track_is_shown_with_its_new_rows(location, tmp_path, run) -> None:
    checkpoint, state = opened(location)
    before = state.rows_in
    state = begin(state, [Move(0, 1, 500, "a test", protocol="ptlb")])
    attempts = itertools.count(1000)
    for _ in range(3):
        state = run_batch(tmp_path, checkpoint, state, attempts)
    found = json.loads(run(location, "--json")[1])
    [move] = found["committed"]["moves"]
    assert (move["protocol"], move["phase"]) == ("ptlb", "duplicating")
    sender, receiver = found["slots"]
    [tracked] = sender["tracked"]
    # The rows of two batches, which both slots have; they were counted once.
    hashes = (np.arange(KEYS) * 2_654_435_761 % 2**32).astype(np.uint32)
    keys = int(np.isin(group_of(hashes, GROUPS), move["groups"]).sum())
    assert (tracked["move"], tracked["rows"]) == (0, 2 * keys * 2)
    assert tracked["bytes"] > 0
    assert receiver["tracked"] == []
    per_batch = [rows // BATCHES for rows in before]
    assert list(state.rows_in) == [rows * (BATCHES + 3) for rows in per_batch]
    text = run(location)[1]
    assert "parallel track 0 from slot 0 to slot 1: duplicating " in text
    assert f"slot 0: new in a parallel track {tracked['rows']:,} rows, " in text
    assert found["ok"]


def test_move_that_has_not_chosen_shows_what_is_wanted(location, run) -> None:
    _, state = opened(location)
    moves = begin(state, [Move(0, 1, 500, "a test")]).moves
    logged(location, moves=moves)
    assert "move 0 from slot 0 to slot 1: computing about 500 bytes (a test)" in run(location)[1]
    logged(location, moves=(replace(moves[0], everything=True),))
    assert "move 0 from slot 0 to slot 1: computing everything (a test)" in run(location)[1]


def test_scaling_under_way_is_shown(location, run) -> None:
    assert json.loads(run(location, "--json")[1])["committed"]["scaling"] is None
    checkpoint, state = opened(location)
    more = rescale(state, 4)
    checkpoint.log.append(replace(more, round=1))
    found = json.loads(run(location, "--json")[1])
    filling = {"from_slots": 4, "to_slots": 4, "filling": [2, 3], "draining": []}
    filling |= {"adjustment": "aggressive", "reason": ""}
    assert (found["committed"]["scaling"], found["ok"]) == (filling, True)
    assert "to 4 slots; being filled: 2, 3" in run(location)[1]
    checkpoint.log.append(replace(rescale(more, 1), round=2))
    assert "to 1 slots; retiring: 1, 2, 3" in run(location)[1]
    checkpoint.log.append(replace(rescale(more, 1, passive=True, reason="idle"), round=3))
    found = json.loads(run(location, "--json")[1])["committed"]["scaling"]
    assert (found["adjustment"], found["reason"]) == ("passive", "idle")
    assert "to 1 slots, passive; retiring: 1, 2, 3; idle" in run(location)[1]


def test_events_say_what_was_done_where(location, run) -> None:
    events = (
        Spilled(3, 1, (4, 5), 2000, 0.25, "a limit"),
        ForceSpilled(3, 0, (1,), 1000, 0.5, "a ratio"),
        MoveAsked(3, 0, (), 500, 0.0, "uneven", 7, 1),
        GroupsReceived(4, 0, (1, 2), 1500, 1.5, "uneven", 7, 1),
        Scaled(5, 3, (), 0, 0.0, "3 slots now share the groups"),
    )
    logged(location, events=events)
    lines = [line for line in run(location)[1].splitlines() if line.startswith("batch ")]
    assert lines == [
        "batch 3, slot 1: spilled 2 groups, 2.0 kB, 0.250 s (a limit)",
        "batch 3, slot 0: force-spilled 1 groups, 1.0 kB, 0.500 s (a ratio)",
        "batch 3, move 7 from slot 0 to slot 1: move-asked 500 bytes, 0.000 s (uneven)",
        "batch 4, move 7 from slot 0 to slot 1: groups-received 2 groups, 1.5 kB, 1.500 s (uneven)",
        "batch 5: scaled to 3 slots",
    ]
    assert [e["event"] for e in json.loads(run(location, "--json")[1])["events"]] == [
        event.kind for event in events
    ]


def test_runs_that_only_a_note_names_are_no_leftovers(moving, tmp_path) -> None:
    before = inspect_checkpoint(str(moving)).files
    receive(moving, tmp_path)
    after = inspect_checkpoint(str(moving), verify=True)
    assert after.problems == []
    assert after.files.unnamed == before.unnamed
    assert after.files.named == before.named + 2


def test_what_a_note_names_and_is_not_there_is_a_problem(moving, tmp_path) -> None:
    part = receive(moving, tmp_path)
    (moving / "spillway" / "runs" / "received-0.arrow").unlink()
    assert inspect_checkpoint(str(moving)).problems == ["run received-0.arrow is missing"]
    (moving / "spillway" / part).unlink()
    assert inspect_checkpoint(str(moving)).problems == [f"manifest {part} is missing"]


def test_stages_that_follow_are_shown_too(location, tmp_path, run) -> None:
    code, out, _ = run(location, "--json")
    assert (code, "then" in json.loads(out)) == (0, False)
    second = location / "spillway-2"
    shutil.copytree(location / "spillway", second)
    code, out, _ = run(location, "--json")
    [then] = json.loads(out)["then"]
    assert (code, then["location"]) == (0, str(second))
    assert then["operator"] == "n-way join"
    code, out, _ = run(location)
    assert out.count("complete: the manifests") == 2
    # A damaged run of a later stage is a problem of the query.
    next((second / "runs").iterdir()).write_bytes(b"")
    assert run(location)[0] == 1
    assert run(second)[0] == 1
    assert run(location / "spillway")[0] == 1

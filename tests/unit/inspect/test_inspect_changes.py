"""`spillway inspect` on a query that changes: moves, tracks, scaling, events, notes."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
from checkpoints import BATCHES, GROUPS, KEYS, logged, opened, receive, run_batch

from spillway.coordinator.decisions.adaptation import begin, rescale
from spillway.inspect.inspection import inspect_checkpoint
from spillway.metrics.events import ForceSpilled, GroupsReceived, MoveAsked, Scaled, Spilled
from spillway.policies.cluster.decision import Move
from spillway.routing.groups import group_of


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


def test_part_that_only_a_note_names_is_not_a_leftover(moving, tmp_path) -> None:
    before = inspect_checkpoint(str(moving)).files
    receive(moving, tmp_path)
    after = inspect_checkpoint(str(moving), verify=True)
    assert after.problems == []
    assert after.files == before, "groups move by reference: no run is new"


def test_what_a_note_names_and_is_not_there_is_a_problem(moving, tmp_path) -> None:
    part = receive(moving, tmp_path)
    (moving / "spillway" / part).unlink()
    assert inspect_checkpoint(str(moving)).problems == [f"manifest {part} is missing"]

"""`spillway inspect` on a checkpoint at rest: its contents, its damage, and what is not a checkpoint."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from checkpoints import BATCHES, GROUPS, KEYS, PLAN, SECOND_US, SLOTS, named_runs

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.log import Log
from spillway.errors import QueryError, StateError
from spillway.inspect import stages
from spillway.inspect.inspection import Inspection, inspect_checkpoint
from spillway.kernels.checksum import sealed, unsealed
from spillway.plan.dedup import DedupPlan
from spillway.plan.join import WindowPlan


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
    assert found["committed"]["rows_null"] == {"left": 0, "right": 0}
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


def test_tumbling_window_is_told_from_one_between_rows(tmp_path, run) -> None:
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
    (location / "spillway" / "log" / f"{BATCHES:09d}.json").write_text("nonsense")
    code, out, _ = run(location)
    assert code == 1
    assert f"problem: log record log/{BATCHES:09d}.json is damaged" in out


def test_files_deleted_by_a_newer_batch_are_no_problem(location, monkeypatch) -> None:
    older = Checkpoint(str(location / "spillway")).log.commits()[0]
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


@pytest.fixture
def chained(location: Path) -> Path:
    """The same with a second stage, which has the state of the first."""
    metadata = location / "spillway" / "metadata.json"
    found = json.loads(unsealed(metadata.read_bytes()) or b"")
    shutil.copytree(location / "spillway", location / "spillway-2")
    metadata.write_bytes(sealed(json.dumps(found | {"then": [found["query"]]}).encode()))
    return location


def test_stages_that_follow_are_shown_too(location, run) -> None:
    code, out, _ = run(location, "--json")
    assert (code, "then" in json.loads(out)) == (0, False)


def test_damage_of_a_later_stage_is_a_problem_of_the_query(chained, run) -> None:
    second = chained / "spillway-2"
    code, out, _ = run(chained, "--json")
    [then] = json.loads(out)["then"]
    assert (code, then["location"]) == (0, str(second))
    assert then["operator"] == "n-way join"
    code, out, _ = run(chained)
    assert out.count("complete: the manifests") == 2
    next((second / "runs").iterdir()).write_bytes(b"")
    assert run(chained)[0] == 1
    assert run(second)[0] == 1
    assert run(chained / "spillway")[0] == 1


def test_later_stage_that_is_behind_is_a_problem(chained, run) -> None:
    log = chained / "spillway-2" / "log"
    max(log.glob("*.json")).unlink()
    code, out, _ = run(chained, "--json")
    [then] = json.loads(out)["then"]
    said = "it is behind: it has taken 2 steps, the stage before it 3"
    assert code == 1
    assert f"it does not fit the stage before it: {said}" in then["problems"]


def test_later_stage_that_is_missing_is_a_problem(chained, run) -> None:
    shutil.rmtree(chained / "spillway-2")
    code, out, _ = run(chained)
    assert code == 1
    assert "problem: stage 2 (n-way join) is missing" in out
    assert "complete:" not in out


def test_stages_that_commit_between_two_looks_are_no_problem(chained, monkeypatch) -> None:
    look = stages.inspect_checkpoint

    def meanwhile(path: str, *, verify: bool) -> Inspection:
        found = look(path, verify=verify)
        for name in ("spillway-2", "spillway") if found.location.endswith("spillway") else ():
            log = Checkpoint(str(chained / name)).log
            log.take_over()
            for batch in (BATCHES, BATCHES + 1):
                log.append(replace(found.committed, batch=batch))
        return found

    monkeypatch.setattr(stages, "inspect_checkpoint", meanwhile)
    assert [one.problems for one in stages.inspect_stages(str(chained))] == [[], []]

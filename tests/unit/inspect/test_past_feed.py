"""The dashboard of a checkpoint shows what its log keeps, and follows the commits that come."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from checkpoints import BATCHES, GROUPS, KEYS, SLOTS, logged, opened, run_batch

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.cli.main import app
from spillway.dashboard.feed import past as past_module
from spillway.dashboard.feed.past import Past, about_of
from spillway.inspect.stages import inspect_stages
from spillway.metrics.events import Spilled
from spillway.state.manifest.reading import read_held


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks as often as it is asked."""
    monkeypatch.setattr(past_module, "PAUSE_S", 0.0)
    monkeypatch.setattr(past_module, "SHARE", 1e9)


def past_of(location: Path) -> Past:
    found = inspect_stages(str(location))
    return Past(about_of(found), [stage.location for stage in found])


def test_rows_of_every_batch_are_those_of_the_log(location: Path) -> None:
    news = past_of(location).look(watched=False)
    assert news is not None
    assert news.whole
    assert [one.batch for one in news.points] == list(range(BATCHES))
    assert [one.rows_in for one in news.points] == [(KEYS, KEYS)] * BATCHES
    committed = Checkpoint(str(location / "spillway")).log.latest()
    assert committed is not None
    assert sum(one.rows_out for one in news.points) == committed.rows_out > 0
    assert news.points[-1].watermark_s == committed.watermark_us / 1e6
    assert news.status == "ended"


def test_groups_and_slots_are_those_of_the_manifests(location: Path) -> None:
    news = past_of(location).look(watched=False)
    assert news is not None
    [slots], [heat] = news.slots, news.heats
    assert len(slots.memory_bytes) == SLOTS
    assert sum(slots.rows) == 2 * KEYS * BATCHES
    assert len(heat.slot) == GROUPS
    assert sum(heat.memory_bytes) == sum(slots.memory_bytes)


def test_sizes_alone_say_what_the_whole_manifest_says(location: Path) -> None:
    checkpoint = Checkpoint(str(location / "spillway"))
    committed = checkpoint.log.latest()
    assert committed is not None
    for name in filter(None, committed.manifests):
        whole, held = checkpoint.manifest(name), read_held(checkpoint.durable, name)
        assert (held.state_rows, held.state_bytes) == (whole.state_rows, whole.state_bytes)
        assert held.groups.size.tolist() == whole.groups.size.tolist()
        assert held.groups.outputs.tolist() == whole.groups.outputs.tolist()


def test_commits_that_come_are_told_once_and_a_takeover_is_a_mark(
    location: Path, tmp_path: Path
) -> None:
    past = past_of(location)
    past.look(watched=True)
    assert past.look(watched=True) is None
    checkpoint, state = opened(location)
    run_batch(tmp_path, checkpoint, state, itertools.count(100))
    news = past.look(watched=True)
    assert news is not None
    assert not news.whole
    assert [one.batch for one in news.points] == [BATCHES]
    assert news.points[0].rows_in == (KEYS, KEYS)
    [start] = news.happenings
    assert start.kind == "started"
    assert start.reason.startswith(f"epoch 2: continues after batch {BATCHES - 1}")
    assert news.status == "running"


def test_nothing_is_read_while_nobody_looks(location: Path, tmp_path: Path) -> None:
    past = past_of(location)
    past.look(watched=False)
    checkpoint, state = opened(location)
    run_batch(tmp_path, checkpoint, state, itertools.count(100))
    assert past.look(watched=False) is None
    assert past.look(watched=True) is not None


def test_events_and_moves_have_their_reasons(moving: Path) -> None:
    news = past_of(moving).look(watched=False)
    assert news is not None
    steps = [one for one in news.happenings if one.move is not None]
    assert steps[0].message == "PartitionsToMove"
    assert {one.reason for one in news.slots[0].moves} == {"M_least/M_max = 0.40 < 0.80"}
    assert news.slots[0].moves[0].phase == "sending"


def test_damaged_record_hides_only_itself(location: Path) -> None:
    logged(location, events=(Spilled(BATCHES, 1, (4, 5), 2000, 0.25, "a limit"),))
    first = sorted((location / "spillway" / "log").glob("*.json"))[1]
    first.write_bytes(b"damaged")
    news = past_of(location).look(watched=False)
    assert news is not None
    assert [one.kind for one in news.happenings if one.kind == "spilled"] == ["spilled"]


def test_missing_manifest_leaves_an_empty_slot(location: Path) -> None:
    committed = Checkpoint(str(location / "spillway")).log.latest()
    assert committed is not None
    assert committed.manifests[0] is not None
    past = past_of(location)
    (location / "spillway" / committed.manifests[0]).unlink()
    news = past.look(watched=False)
    assert news is not None
    assert news.slots[0].memory_bytes[0] == 0 < news.slots[0].memory_bytes[1]


def dashboard(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        app(["dashboard", *map(str, arguments)])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_command_prints_what_the_page_would_show(location: Path, capsys) -> None:
    code, out, err = dashboard(capsys, location, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["about"]["clock"] == "query"
    assert len(found["points"]) == BATCHES


def test_command_serves_until_it_is_interrupted(location: Path, capsys, monkeypatch) -> None:
    asked = []

    def until_interrupted() -> None:
        import urllib.request

        [address] = [word for word in capsys.readouterr().out.split() if word.startswith("http")]
        # The page is there before what it shows has been read.
        for _ in range(1000):
            asked.append(json.load(urllib.request.urlopen(f"{address}snapshot")))
            if "about" in asked[-1]:
                break
            time.sleep(0.02)

    monkeypatch.setattr("spillway.cli.waiting.until_interrupted", until_interrupted)
    code, _, _ = dashboard(capsys, location)
    assert code == 0
    assert asked[-1]["about"]["source"] == "checkpoint"


def test_command_names_what_is_not_a_checkpoint(tmp_path: Path, capsys) -> None:
    code, _, err = dashboard(capsys, tmp_path)
    assert code == 2
    assert f"{tmp_path} is not a Spillway checkpoint" in err.replace("\n", "")

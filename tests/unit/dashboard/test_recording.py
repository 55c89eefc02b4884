"""A recorded page is one file that plays a run and lets nothing else run."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from pathlib import Path

import msgspec
import pytest
from feed_samples import ABOUT, news

from spillway.dashboard import page
from spillway.dashboard.feed.history import History
from spillway.dashboard.feed.news import News
from spillway.dashboard.page.assets import SCRIPTS, STYLES
from spillway.dashboard.page.recording import recorded_page
from spillway.errors import SettingsError
from spillway_lab.simulator.cluster.live import record_run
from spillway_lab.simulator.cluster.scenario import Disturbance, Machine, Scenario, Workload
from spillway_lab.simulator.cluster.showing import show

ROOT = Path(__file__).parents[3]

SMALL = Scenario(
    "small",
    seconds=6,
    slots=4,
    groups=64,
    tick_s=0.05,
    batch_s=0.25,
    sample_s=0.5,
    noise=False,
    machine=Machine(memory_bytes=1 << 20),
    workload=Workload(rows_per_s=40_000, warm=False),
    disturbances=(Disturbance((2,), memory_bytes=900_000, since_s=2),),
    adapt={"strategy": "lazy-disk", "relocation_interval": "1 second"},
)


def messages(text: str) -> list[News]:
    [packed] = re.findall(r'id="recording">([^<]*)<', text)
    return msgspec.json.decode(gzip.decompress(base64.b64decode(packed)), type=list[News])


def test_recorded_messages_are_those_of_the_feed_and_all_have_a_time() -> None:
    given = [News(about=ABOUT, whole=True, now_s=1.0), news(2), News(status="ended")]
    found = messages(recorded_page(given))
    assert [one.now_s for one in found] == [1.0, 2.0, 2.0]
    assert found[0].about == ABOUT
    assert found[2].status == "ended"


def test_policy_allows_the_scripts_of_the_file_and_no_others() -> None:
    text = recorded_page([News(about=ABOUT, whole=True, now_s=0.0)])
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    for kind in ("script", "style"):
        texts = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.S)
        assert texts
        for one in texts:
            digest = base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r'(?:src|href)="(?!#)', text)


def test_simulation_says_in_the_feed_what_its_journal_says() -> None:
    told: list[News] = []
    result = show(SMALL, told.append)
    history = History()
    for one in told:
        history = history.after(one)
    assert [(one.at_s, one.kind, one.reason) for one in history.happenings] == [
        (at, event.kind, event.reason) for at, event in result.journal
    ]
    assert {"spilled", "groups-reactivated"} <= {one.kind for one in history.happenings}
    assert [one.at_s for one in history.points] == list(result.series["second"])
    assert [one.memory_bytes for one in history.points] == list(result.series["memory_bytes"])
    [slots], [heat] = history.slots.values(), history.heats.values()
    assert sum(slots.memory_bytes) == result.series["memory_bytes"][-1]
    assert len(heat.slot) == 64
    assert history.status == "ended"


def test_recording_is_one_small_file(tmp_path) -> None:
    path = tmp_path / "run.html"
    record_run(SMALL, path)
    assert path.stat().st_size < 300_000
    assert messages(path.read_text())[-1].status == "ended"


def test_recording_that_cannot_be_written_names_the_file(tmp_path) -> None:
    with pytest.raises(SettingsError) as raised:
        record_run(SMALL.changed(seconds=1), tmp_path / "missing" / "run.html")
    assert raised.value.message == f"cannot write the recording to {tmp_path}/missing/run.html"
    assert raised.value.hint == "choose another --record"


def test_wheel_has_every_file_of_the_page() -> None:
    files = Path(page.__file__).parent / "files"
    [pattern] = re.findall(
        r'spillway = \["py\.typed", "([^"]*)"\]', (ROOT / "pyproject.toml").read_text()
    )
    packed = {one.name for one in (ROOT / "src" / "spillway").glob(pattern)}
    assert packed == {one.name for one in files.iterdir()}
    assert {*SCRIPTS, *STYLES, "index.html", "uplot.LICENSE.txt"} <= packed
    # uPlot's licence asks that its text comes with it.
    assert "Permission is hereby granted" in (files / "uplot.LICENSE.txt").read_text()


@pytest.mark.parametrize("name", ["adapting", "plans", "ring"])
def test_recorded_run_of_the_documentation_is_small_and_loads_nothing(name: str) -> None:
    path = ROOT / "docs" / "recordings" / f"{name}.html"
    text = path.read_text()
    assert path.stat().st_size < 300_000
    assert not re.search(r'(?:src|href)="(?!#)', text)
    assert f"recordings/{name}.html" in (ROOT / "docs" / "guide" / "dashboard.md").read_text()
    assert messages(text)[-1].status == "ended"

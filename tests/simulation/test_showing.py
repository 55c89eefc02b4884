"""Simulations speak the feed of the dashboard; their numbers are those of the simulation."""

from __future__ import annotations

import json
import urllib.request

import pytest
from typer.testing import CliRunner

from spillway.cli.main import app
from spillway.dashboard.feed.history import History
from spillway.dashboard.feed.news import News
from spillway_lab.simulator.cluster import live
from spillway_lab.simulator.cluster.scenario import Scenario
from spillway_lab.simulator.cluster.simulation import Result
from spillway_lab.simulator.join.scenario import JoinScenario
from spillway_lab.simulator.join.showing import show_join
from spillway_lab.simulator.join.simulation import simulate_join
from spillway_lab.simulator.recordings import RUNS, write
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.showing import show_ring
from spillway_lab.simulator.ring.simulation import simulate_ring


def added(told: list[News]) -> History:
    history = History()
    for one in told:
        history = history.after(one)
    return history


def test_join_tells_its_journal_and_its_shapes() -> None:
    scenario = JoinScenario(
        seconds=40.0,
        window_s=10.0,
        tick_s=0.5,
        rates=((0.0, (100.0, 100.0, 100.0)), (10.0, (100.0, 5.0, 5.0))),
        optimise=True,
        work_per_s=1e5,
    )
    told: list[News] = []
    show_join(scenario, told.append)
    found, result = added(told), simulate_join(scenario)
    assert [(one.at_s, one.kind) for one in found.happenings] == [
        (at, event.kind) for at, event in result.journal
    ]
    assert "reshaped" in {one.kind for one in found.happenings}
    assert sum(one.rows_out for one in found.points) == pytest.approx(
        result.totals["results"], abs=40
    )
    [slots] = found.slots.values()
    assert set(slots.shapes) != {"((A B) C)"}


def test_ring_tells_where_its_slices_are() -> None:
    scenario = RingScenario(
        seconds=60.0, slots=4, rate=20.0, rate_after=60.0, change_s=20.0, groups=64,
        adjustment="aggressive", most=12, sample_s=2.0, interleave=64,
    )  # fmt: skip
    told: list[News] = []
    show_ring(scenario, told.append)
    found, result = added(told), simulate_ring(scenario)
    assert [one.seconds for one in found.points] == list(result.series["response_s"])
    counts = [len(one.slots[0].memory_bytes) for one in told if one.slots]
    assert counts[0] == 4 < counts[-1]
    assert "scaled" in {one.kind for one in found.happenings}
    [heat] = found.heats.values()
    [slots] = found.slots.values()
    assert sum(heat.memory_bytes) == sum(slots.memory_bytes) > 0


def test_command_serves_a_run_and_its_end(monkeypatch) -> None:
    seen: list[dict[str, object]] = []
    serve = live.serve_run

    def served(scenario: Scenario, port: int, speed: float, tell) -> Result:
        address: list[str] = []

        def wait() -> None:
            seen.append(json.load(urllib.request.urlopen(f"{address[0]}snapshot")))

        result = serve(scenario, port, speed, address.append, wait)
        tell(address[0])
        return result

    monkeypatch.setattr(live, "serve_run", served)
    words = ["simulate", "baseline", "--seconds", "2", "--slots", "4", "--groups", "64"]
    done = CliRunner().invoke(app, [*words, "--dashboard", "--speed", "1000"])
    assert done.exit_code == 0
    assert "dashboard: http://127.0.0.1:" in done.output
    assert seen[0]["status"] == "ended"
    assert len(seen[0]["points"]) == 2  # type: ignore[arg-type]


def test_command_records_a_run(tmp_path) -> None:
    words = ["simulate", "baseline", "--seconds", "2", "--slots", "4", "--groups", "64"]
    done = CliRunner().invoke(app, [*words, "--record", str(tmp_path / "run.html"), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["violations"] == []
    assert (tmp_path / "run.html").read_text().startswith("<!doctype html>")


@pytest.mark.full
def test_recordings_of_the_documentation_are_small_and_end(tmp_path) -> None:
    written = write(tmp_path)
    assert [one.stem for one in written] == list(RUNS)
    assert all(one.stat().st_size < 300_000 for one in written)

"""A simulated run as a page: served live, or in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spillway.cli.waiting import until_interrupted
from spillway.dashboard.feed.feed import Feed
from spillway.dashboard.feed.news import News
from spillway.dashboard.page.recording import recorded_page
from spillway.dashboard.server.serving import Dashboard
from spillway.errors import SettingsError
from spillway_lab.simulator.cluster.scenario import Scenario
from spillway_lab.simulator.cluster.showing import show
from spillway_lab.simulator.cluster.simulation import Result


def serve_run(
    scenario: Scenario,
    port: int,
    speed: float,
    tell: Callable[[str], None],
    wait: Callable[[], None] = until_interrupted,
) -> Result:
    """Serves the page while the simulation runs, and afterwards until `wait` returns."""
    feed = Feed()
    with Dashboard(feed, port=port) as opened:
        tell(opened.url)
        result = show(scenario, feed.publish, speed=speed)
        wait()
    return result


def record_run(scenario: Scenario, path: Path, *, samples_per_heat: int = 2) -> Result:
    """Writes a file that plays the run."""
    messages: list[News] = []
    result = show(scenario, messages.append, samples_per_heat=samples_per_heat)
    try:
        path.write_text(recorded_page(messages))
    except OSError as problem:
        raise SettingsError(
            f"cannot write the recording to {path}",
            detail=str(problem),
            hint="choose another --record",
        ) from problem
    return result

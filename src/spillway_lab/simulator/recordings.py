"""The recorded runs of the documentation, one for each paper's mechanism.

python -m spillway_lab.simulator.recordings FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from spillway.dashboard.feed.news import News
from spillway.dashboard.page.recording import recorded_page
from spillway_lab.simulator.cluster.presets import adapting
from spillway_lab.simulator.cluster.scenario import MB, Disturbance, Machine, Workload
from spillway_lab.simulator.cluster.showing import show
from spillway_lab.simulator.join.scenario import JoinScenario
from spillway_lab.simulator.join.showing import show_join
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.showing import show_ring

Publish = Callable[[News], None]


def _adapting(publish: Publish) -> None:
    """DCAPE and FLUX: groups spill and move. Fewer slots than the preset, so that the file is small."""
    scenario = adapting().changed(
        seconds=60.0,
        slots=8,
        groups=256,
        machine=Machine(memory_bytes=18 * MB),
        workload=Workload(
            "hot",
            keys=4096,
            hot_rows=0.5,
            hot_keys=0.15,
            turn_s=20,
            rows_per_s=80_000,
            warm=False,
            history_rows=8000,
        ),
        disturbances=(Disturbance((5,), memory_bytes=6 * MB, since_s=15, until_s=40),),
    )
    show(scenario, publish, samples_per_heat=3)


def _plans(publish: Publish) -> None:
    """PLANS: slots change their join trees, and groups move by parallel tracks."""
    scenario = JoinScenario(
        "plans",
        180.0,
        rates=(
            (0.0, (100.0, 100.0, 100.0)),
            (40.0, (100.0, 5.0, 5.0)),
            (110.0, (5.0, 5.0, 100.0)),
        ),
        window_s=20.0,
        track_windows=1,
        matching=0.07,
        work_per_s=150.0,
        tick_s=0.5,
        optimise=True,
        adapt={"strategy": "relocate-only", "moves": "ptlb", "relocation_interval": "15 seconds"},
    )
    show_join(scenario, publish, samples_per_heat=3)


def _ring(publish: Publish) -> None:
    """PSP: the ring grows when rows come faster."""
    scenario = RingScenario(
        "ring", 120.0, slots=4, rate=20.0, rate_after=45.0, change_s=50.0, groups=64,
        adjustment="aggressive", most=12, sample_s=2.0, row_bytes=3000, interleave=64,
    )  # fmt: skip
    show_ring(scenario, publish)


RUNS: Mapping[str, Callable[[Publish], None]] = {
    "adapting": _adapting,
    "plans": _plans,
    "ring": _ring,
}


def write(folder: Path) -> list[Path]:
    """Writes the page of every run; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, run in RUNS.items():
        messages: list[News] = []
        run(messages.append)
        target = folder / f"{name}.html"
        target.write_text(recorded_page(messages))
        written.append(target)
    return written


if __name__ == "__main__":
    write(Path(sys.argv[1]))

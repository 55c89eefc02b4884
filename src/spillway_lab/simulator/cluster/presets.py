"""Named scenarios."""

from __future__ import annotations

from collections.abc import Callable

from spillway.errors import SettingsError
from spillway_lab.simulator.cluster.scenario import (
    MB,
    Disturbance,
    Exchange,
    Machine,
    Scenario,
    Workload,
)

#: Processor share of FLUX's process, which computes for 100 µs and sleeps for 50.
EXTERNAL = 0.57


def baseline() -> Scenario:
    """FLUX section 3: 32 nodes without disturbance."""
    return Scenario("baseline")


def rotating() -> Scenario:
    """FLUX section 4: a load that visits each node in turn, half a second each."""
    return Scenario("rotating", seconds=16, disturbances=(Disturbance(cpu=EXTERNAL, turn_s=0.5),))


def blocked() -> Scenario:
    """The same without a skew buffer: the slowest node blocks all others."""
    return rotating().changed(name="blocked", exchange=Exchange("exchange"))


def pressure() -> Scenario:
    """A slot with too little memory, whose state moves to others and spills."""
    return Scenario(
        "pressure",
        seconds=60,
        slots=8,
        groups=8 * 64,
        batch_s=0.1,
        disturbances=(Disturbance((0,), memory_bytes=900 * MB, since_s=5),),
        workload=Workload(history_rows=78_643 // 2),
        adapt={"strategy": "lazy-disk", "relocation_interval": "5 seconds"},
    )


def adapting() -> Scenario:
    """32 nodes with hot groups that change, a slow slot, and a slot that loses memory."""
    return Scenario(
        "adapting",
        seconds=90,
        batch_s=0.25,
        tick_s=0.05,
        sample_s=0.5,
        machine=Machine(memory_bytes=30 * MB),
        workload=Workload(
            "hot",
            hot_rows=0.5,
            hot_keys=0.15,
            turn_s=30,
            rows_per_s=350_000,
            warm=False,
            history_rows=6000,
        ),
        disturbances=(
            Disturbance((3,), cpu=0.4, since_s=8, until_s=40),
            Disturbance((20,), memory_bytes=10 * MB, since_s=20, until_s=50),
        ),
        adapt={"strategy": "active-disk", "relocation_interval": "4 seconds"},
    )


def large() -> Scenario:
    """1,000 slots and 100,000 groups for ten minutes, hot groups changing every two."""
    return Scenario(
        "large",
        seconds=600,
        slots=1000,
        groups=100_000,
        workload=Workload("hot", keys=400_000, turn_s=120, rows_per_s=12e6, warm=False),
        adapt={"strategy": "lazy-disk", "relocation_interval": "10 seconds"},
        tick_s=0.1,
        batch_s=1.0,
        sample_s=5.0,
    )


PRESETS: dict[str, Callable[[], Scenario]] = {
    made.__name__: made for made in (baseline, rotating, blocked, pressure, adapting, large)
}


def preset(name: str) -> Scenario:
    """The scenario with this name.

    Example:
        >>> preset("rotating").seconds
        16
    """
    if name not in PRESETS:
        raise SettingsError(
            f"there is no scenario {name!r}",
            hint=f"the scenarios are {', '.join(PRESETS)}; or give a JSON file",
        )
    return PRESETS[name]()

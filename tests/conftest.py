"""What all tests share: a test's marker is the folder it is in."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tier import FULL, SOAK

TESTS = Path(__file__).parent

# A run of the tests is the same every time; `make soak` looks for what no run has seen yet. How long
# an example takes says something about the machine alone.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNTIMED, derandomize=True)
settings.register_profile("soak", UNTIMED, print_blob=True)
settings.load_profile("soak" if SOAK else "same")


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether to try more than the full tier does, however long it takes."""
    return SOAK


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether to try every case."""
    return FULL


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests/unit as unit, tests/spark as spark, ...; leave out what only the full tier runs."""
    for item in items:
        if TESTS in item.path.parents and item.path.parent != TESTS:
            item.add_marker(item.path.relative_to(TESTS).parts[0])
    left = [item for item in items if not FULL and item.get_closest_marker("full")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the tests that a missing server or package has skipped; `-ra` lists the reasons."""
    skipped = terminalreporter.stats.get("skipped", [])
    missing = [one for one in skipped if "connectors" in getattr(one, "keywords", ())]
    if missing:
        terminalreporter.write_line(f"{len(missing)} tests of connectors were skipped, see above")

"""What all tests share: a test's marker is the folder it is in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent

#: `make soak` sets it: what takes long is tried in all its cases then, and property tests draw others.
SOAK = os.environ.get("SOAK") == "1"

# A run of the tests is the same every time; `make soak` looks for what no run has seen yet. How long
# an example takes says something about the machine alone.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNTIMED, derandomize=True)
settings.register_profile("soak", UNTIMED, print_blob=True)
settings.load_profile("soak" if SOAK else "same")


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether everything is to be tried, however long it takes."""
    return SOAK


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests/unit as unit, tests/spark as spark, ...; a folder without a marker is refused."""
    for item in items:
        if TESTS in item.path.parents and item.path.parent != TESTS:
            item.add_marker(item.path.relative_to(TESTS).parts[0])

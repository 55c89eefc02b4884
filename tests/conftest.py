"""What all tests share: a test's marker is the folder it is in."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests/unit as unit, tests/spark as spark, ...; a folder without a marker is refused."""
    for item in items:
        if TESTS in item.path.parents and item.path.parent != TESTS:
            item.add_marker(item.path.relative_to(TESTS).parts[0])

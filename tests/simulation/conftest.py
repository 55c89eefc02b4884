from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spillway_lab.simulator.cluster.scenario import Scenario


@pytest.fixture(scope="session")
def small() -> Callable[..., Scenario]:
    """A scenario of four slots and 64 groups, with some fields changed."""

    def made(**changes: Any) -> Scenario:
        return Scenario(**{"slots": 4, "groups": 64, "seconds": 2.0, **changes})

    return made

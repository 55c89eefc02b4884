"""A query without a memory limit takes one from what is free, says so, and notes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

from spillway.coordinator.effects import WriteNote

ENDLESS = {"processingTime": "100 milliseconds"}


@pytest.fixture
def scenario(spark: SparkSession, tmp_path: Path) -> Scenario:
    found = Scenario(spark, tmp_path, a="k bigint", b="k bigint")
    found.add(a=[(1,)], b=[(1,)])
    return found


def described(scenario: Scenario, **adapt: Any) -> tuple[str, tuple[int | None, ...]]:
    """The text of explain, and the limits in the note of the next batch."""
    joined = scenario.join().on("k")
    query = scenario.start(joined, trigger=ENDLESS, **adapt)
    try:
        query.processAllAvailable()
        coordinator = query._loop.stage.coordinator
        plan, effects = coordinator.plan_batch(coordinator.state.batch + 1)
        [written] = [one.note for one in effects if isinstance(one, WriteNote)]
        assert written.memory_bytes == plan.memory_bytes
        return query.describe(), written.memory_bytes
    finally:
        query.stop()


def test_default_limit_is_in_explain_and_in_the_note(scenario: Scenario) -> None:
    text, limits = described(scenario)
    [limit] = set(limits)
    assert limit is not None
    assert limit >= 32 << 20
    assert re.search(rf"memory \S+ \({limit} bytes a slot\)", text)
    assert re.search(r"the limit is half of what the .* leaves \(\d+ MiB free at the start\)", text)


@pytest.mark.parametrize("adapt", [{"memory": "unlimited"}, {"strategy": "none"}])
def test_unlimited_memory_has_no_limit(scenario: Scenario, adapt: dict[str, Any]) -> None:
    text, limits = described(scenario, **adapt)
    assert set(limits) == {None}
    assert "(no limit)" in text
    assert "the limit is" not in text

"""Real tables of Delta Lake and Iceberg: appends, merges, other writers, late drivers, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from artifacts import jars, other_spark
from places import PLACES
from processes import Child, wait_until

pytestmark = pytest.mark.full


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_table_has_each_batch_once_whatever_happens_around_it(tmp_path: Path, kind: str) -> None:
    """`lakehouse_child.py` has the checks: they need a session with the package."""
    place = PLACES[kind]
    given = {"root": str(tmp_path), "place": kind, "jars": ",".join(jars(place.needs))}
    environment = {"PYTHONPATH": other_spark(place.spark)} if place.spark else {}
    script = str(Path(__file__).with_name("lakehouse_child.py"))
    child = Child(script, [json.dumps(given)], tmp_path / "scratch", environment)
    try:
        assert wait_until((tmp_path / "done").exists, 900, step=0.1, child=child), child.told()
    finally:
        child.close()

"""A real Kafka broker: topics in, a topic out, and each result once for a reader that drops repeats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from artifacts import KAFKA, jars
from broker import Broker
from processes import Child, wait_until

pytestmark = pytest.mark.full

SECONDS = 240


def run(broker: Broker, root: Path, number: int, **told: Any) -> Child:
    """A driver of `kafka_child.py`."""
    given = {"root": str(root), "number": number, "broker": broker.address, **told}
    given["jars"] = ",".join(jars(KAFKA))
    script = str(Path(__file__).with_name("kafka_child.py"))
    return Child(script, [json.dumps(given)], root / "scratch")


@pytest.mark.timeout(1500)
def test_joined_topic_is_exact_after_kills_of_driver_and_broker(
    broker: Broker, tmp_path: Path
) -> None:
    """Three topics in, joined topic out; the driver dies after a write, the broker in the middle."""
    lives = [{"dies": 1}, {"dies": 0}, {}]
    for number, told in enumerate(lives):
        child = run(broker, tmp_path, number, **told)
        try:
            ended = tmp_path / f"{'dead' if 'dies' in told else 'done'}-{number}"
            if number == len(lives) - 1:
                began = tmp_path / f"began-{number}"
                assert wait_until(began.exists, SECONDS, child=child), child.told()
                broker.kill()
                broker.start()
            assert wait_until(ended.exists, SECONDS, child=child), child.told()
        finally:
            child.close()
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["missing"] == report["extra"] == 0
    assert report["expected"] > 100
    assert report["messages"] > report["expected"], "no message was repeated: the kills missed"
    assert report["streamed"] == report["expected"], "the streaming reader differs"
    assert report["numbers"] == list(range(len(report["numbers"]))), "a number is missing"

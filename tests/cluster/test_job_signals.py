"""`spillway run` as a process of its own: Ctrl-C reaches all that it started, as in a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LONGEST_S = 240


@pytest.mark.full
def test_ctrl_c_stops_a_job_after_its_batch(tmp_path: Path) -> None:
    document = {
        "name": "offers",
        "sources": {
            f"bank{number}": {
                "format": "json",
                "path": str(EXAMPLES / "bank" / f"bank{number}"),
                "schema": "brokerName string, price decimal(10,2), offerCurrency string, offer int, "
                "timestamp timestamp",
            }
            for number in (1, 2, 3)
        },
        "query": {"file": str(EXAMPLES / "bank.sql")},
        "sink": {"format": "parquet", "path": str(tmp_path / "out")},
        "checkpoint": str(tmp_path / "ck"),
        "adapt": {"slots": 2, "groups": 8},
        "trigger": {"processing_time": "200 milliseconds"},
        "session": {"master": "local[2]", "conf": {"spark.sql.session.timeZone": "UTC"}},
    }
    job = tmp_path / "job.json"
    job.write_text(json.dumps(document))
    command = [sys.executable, "-m", "spillway.cli.main", "run", str(job), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        until = time.monotonic() + LONGEST_S
        while process.poll() is None and not list((tmp_path / "out").glob("b*.parquet")):
            assert time.monotonic() < until
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, err
    ended = json.loads(out)
    assert (ended["ended"], ended["rows_in"]) == ("stopped", dict.fromkeys(document["sources"], 40))

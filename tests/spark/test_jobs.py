"""Jobs run, stop and continue; what is wrong with one is told before it starts."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import spillway as sw
from spillway.cli.main import app
from spillway.errors import PlanError, SettingsError
from spillway.testing import FileStream

SCHEMA = "id bigint, amount double, ts timestamp"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
QUERY = """SELECT o.id, p.amount FROM orders o JOIN payments p ON o.id = p.id
           AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 MINUTE"""


@pytest.fixture
def inputs(spark: SparkSession, tmp_path: Path) -> dict[str, FileStream]:
    found = {name: FileStream(spark, tmp_path / name, SCHEMA) for name in ("orders", "paid")}
    for at, stream in enumerate(found.values()):
        stream.add([(n, n / 2, START + timedelta(seconds=n + 5 * at)) for n in range(10)])
    return found


def job_file(folder: Path, **changes: Any) -> Path:
    document = {
        "name": "matched",
        "sources": {
            name: {"format": "parquet", "path": f"${{JOB_DIR}}/{name}",
                   "options": {"maxFilesPerTrigger": 1}}
            for name in ("orders", "paid")
        },
        "streams": {
            "payments": {
                "from": "paid", "where": "amount > 1", "select": ["id", "amount", "ts"],
                "watermark": {"time": "ts", "lateness": "1 hour"},
            },
            "booked": {"from": "orders", "watermark": {"time": "ts", "lateness": "1 hour"}},
        },
        "query": {"sql": QUERY.replace("orders", "booked")},
        "sink": {"format": "parquet", "path": str(folder / "out")},
        "checkpoint": str(folder / "ck"),
        "adapt": {"slots": 2, "groups": 8},
        "trigger": {"available_now": True},
    }  # fmt: skip
    path = folder / "job.json"
    path.write_text(json.dumps({**document, **changes}))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def expected(inputs: dict[str, FileStream]) -> Counter[Any]:
    inputs["orders"].batch().createOrReplaceTempView("orders")
    paid = inputs["paid"].batch().where("amount > 1")
    paid.createOrReplaceTempView("payments")
    return Counter(tuple(row) for row in paid.sparkSession.sql(QUERY).collect())


def written(spark: SparkSession, folder: Path) -> Counter[Any]:
    return Counter(tuple(row) for row in spark.read.parquet(str(folder / "out")).collect())


def test_job_writes_what_spark_gives_in_batch_and_continues(spark, inputs, tmp_path) -> None:
    path = job_file(tmp_path)
    done = run(path, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["ended"], document["rows_in"]) == ("finished", {"o": 10, "p": 7})
    assert written(spark, tmp_path) == expected(inputs)
    for stream in inputs.values():
        stream.add([(n, n / 2, START + timedelta(seconds=n + 20)) for n in range(8, 14)])
    query = sw.start_job(path, spark)
    assert query.awaitTermination(300)
    assert written(spark, tmp_path) == expected(inputs)
    assert sum(written(spark, tmp_path).values()) > document["rows_out"]


def test_sigterm_stops_a_job_between_batches(spark, inputs, tmp_path) -> None:
    path = job_file(tmp_path, trigger={"processing_time": "100 milliseconds"})

    def stop() -> None:
        for _ in range(600):
            if list((tmp_path / "out").glob("*.parquet")):
                break
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    done = run(path)
    thread.join()
    assert done.exit_code == 0, done.output
    assert "matched stopped: 17 rows in" in " ".join(done.output.split())
    assert written(spark, tmp_path) == expected(inputs)
    assert not spark.streams.active


@pytest.mark.full
def test_failure_of_a_running_query_exits_1(spark, inputs, tmp_path) -> None:
    failing = "SELECT o.id, 1 / (o.id - 5) AS x FROM orders o JOIN paid p ON o.id = p.id"
    done = run(job_file(tmp_path, streams={}, query={"sql": failing}), "--json")
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    assert document["ended"] == "failed"
    assert "zero" in document["error"]["message"].lower()


@pytest.mark.full
def test_query_may_be_python(spark, inputs, tmp_path) -> None:
    (tmp_path / "cheap_job.py").write_text(
        "import spillway as sw\n"
        "def cheapest(spark, orders, paid):\n"
        "    joined = sw.join(orders=orders, paid=paid).on('id')\n"
        "    return joined.group_by('orders.id').agg(price=sw.min('paid.amount'))\n"
    )
    path = job_file(tmp_path, streams={}, query={"python": "cheap_job:cheapest"})
    assert run(path, "--explain").exit_code == 0
    done = run(path, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows_out"] == 10
    assert spark.read.parquet(str(tmp_path / "out")).columns == ["id", "price"]


def test_dry_run_and_explain_start_nothing(spark, inputs, tmp_path) -> None:
    path = job_file(tmp_path)
    dry = run(path, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "results (id bigint, amount double)" in dry.output
    assert "matched is ready to run" in dry.output
    plan = json.loads(run(path, "--explain", "--json").stdout)["plan"]
    assert "  key 1: o.id = p.id" in plan
    assert "    window 60.000001 s on ts, lateness 3600 s" in plan
    assert not (tmp_path / "ck").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"query": {"sql": "SELECT o.z FROM orders o JOIN paid USING (id)"}},
            ["o has no column z", "^^^"],
        ),
        ({"query": {"file": "none.sql"}}, ["query.file", "none.sql cannot be read"]),
        ({"query": {"python": "no_module:f"}}, ["query.python no_module:f cannot be imported"]),
        ({"query": {"sql": "EXPLAIN SELECT 1 FROM orders"}}, ["line 1"]),
        (
            {"sources": {"orders": {"format": "csv", "path": "/tmp"}}},
            ["sources.orders has no schema"],
        ),
        ({"sources": {"orders": {"format": "nope"}}}, ["sources.orders cannot be read"]),
        (
            {"streams": {"payments": {"from": "paid", "where": "amont > 1"}}},
            ["streams.payments.where cannot be resolved", "id, amount, ts"],
        ),
        (
            {"streams": {"payments": {"from": "paid", "watermark": {"time": "when"}}}},
            ["streams.payments.watermark cannot be resolved"],
        ),
    ],
)
def test_what_is_wrong_is_told_before_the_start(inputs, tmp_path, changes, told) -> None:
    if "sources" in changes:
        changes = {"streams": {}, **changes}
    done = run(job_file(tmp_path, **changes))
    assert done.exit_code == 2, done.output
    assert all(one in done.stderr for one in told), done.stderr


@pytest.mark.full
def test_sql_file_with_options_runs(spark, inputs, tmp_path) -> None:
    place = tmp_path / "count.sql"
    place.write_text("SELECT id % 3 AS kind, count(*) AS n FROM orders GROUP BY id % 3")
    done = run(
        place, "--stream", f"orders=parquet:{tmp_path / 'orders'}", "--trigger", "available-now",
        "--sink", f"json:{tmp_path / 'counts'}", "--checkpoint", tmp_path / "ck", "--adapt", "slots=1",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = {tuple(row) for row in spark.read.json(str(tmp_path / "counts")).collect()}
    assert found == {(0, 4), (1, 3), (2, 3)}


def test_errors_of_start_job_are_those_of_the_api(spark, inputs, tmp_path) -> None:
    with pytest.raises(SettingsError, match="is not a field"):
        sw.start_job(job_file(tmp_path, chekpoint="x"), spark)
    with pytest.raises(PlanError, match="there is no stream other"):
        sw.start_job(job_file(tmp_path, query={"sql": "SELECT count(*) FROM other"}), spark)

"""The code of docs/guide/sql.md and docs/guide/jobs.md runs, and prints what the pages say."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sql_oracle import START, timedelta

import spillway as sw
from spillway.jobs.reading import read_job
from spillway.jobs.spec import Job
from spillway.testing import FileStream

ROOT = Path(__file__).parents[2]
LONGEST_S = 300
STREAMS = {
    "orders": "order_id bigint, customer string, total double, ts timestamp",
    "payments": "order_id bigint, amount double, ts timestamp",
    "shipments": "order_id bigint, carrier string, ts timestamp",
}


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / "guide" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


@pytest.fixture
def names(spark: SparkSession, tmp_path: Path) -> Iterator[dict[str, object]]:
    frames = {}
    for name, schema in STREAMS.items():
        stream = FileStream(spark, tmp_path / name, schema)
        rows = [
            (n, "someone", 10.0, START + timedelta(seconds=n)) if name == "orders"
            else (n, "train", START + timedelta(seconds=60 + n)) if name == "shipments"
            else (n, 9.0 + n % 2, START + timedelta(seconds=30 + n))
            for n in range(8)
        ]  # fmt: skip
        stream.add(rows)
        frames[name] = stream.stream()
        frames[name].createOrReplaceTempView(name)
    yield {"spark": spark, "sw": sw, **frames}
    for query in spark.streams.active:
        query.stop()


def test_queries_of_the_page_run_and_print_what_it_says(spark, names, tmp_path) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for code in blocks("sql.md", "python"):
            here = code.replace('"ck"', repr(str(tmp_path / "ck")))
            exec(here.replace('"out"', repr(str(tmp_path / "out"))), names)
    assert printed.getvalue() == "".join(blocks("sql.md", "text"))
    query = names["query"]
    assert isinstance(query, sw.Query)
    query.processAllAvailable()
    query.stop()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 4


def test_sql_of_the_page_is_planned(spark, names) -> None:
    found = blocks("sql.md", "sql")
    assert found
    for text in found:
        told = sw.sql(spark, f"EXPLAIN {text}")
        assert "unbounded" not in told


def test_job_of_the_page_is_valid(tmp_path) -> None:
    for number, text in enumerate(blocks("jobs.md", "yaml")):
        place = tmp_path / f"{number}.yaml"
        place.write_text(text)
        found = read_job(place, {"BROKERS": "one:9092", "KAFKA_LOGIN": "user and password"})
        assert found.sources["payments"].path == str(tmp_path / "in" / "payments")
        assert found.trigger.arguments == {"processingTime": "1 second"}


def test_page_names_every_field_of_a_job() -> None:
    page = (ROOT / "docs" / "guide" / "jobs.md").read_text()
    for name in Job.model_fields:
        assert name == "folder" or f"| `{name}" in page, name


@pytest.mark.full
def test_code_about_jobs_runs(spark, names, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    function, started = blocks("jobs.md", "python")
    exec(function, names)
    cheapest = names["cheapest"]
    assert callable(cheapest)
    made = cheapest(spark, names["orders"], names["payments"])
    assert made.schema.names == ["customer", "price"]
    exec(started, names)
    query = names["query"]
    assert isinstance(query, sw.Query)
    assert query.awaitTermination(LONGEST_S)
    assert query.exception() is None

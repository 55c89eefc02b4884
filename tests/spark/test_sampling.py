"""The first rows of streams are looked at, and left to the query that comes after."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

from spillway.spark.api.start import sampling
from spillway.spark.api.start.sampling import first_rows

BEGIN = dt.datetime(2024, 3, 10, 6, 50)
SCHEMA = "id int, ts timestamp"


def scenario_of(spark: SparkSession, root: Path) -> Scenario:
    """Stream a has rows from its second file on, and stream b has none."""
    scenario = Scenario(spark, root, a=SCHEMA, b=SCHEMA)
    scenario.add(a=[(0, None)])
    scenario.add(a=[(n, BEGIN + dt.timedelta(seconds=n)) for n in range(400)])
    scenario.add(a=[(1, BEGIN)])
    return scenario


def test_batch_with_the_first_rows_is_not_committed(
    elsewhere: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    frames = scenario_of(elsewhere, tmp_path).join().frames
    monkeypatch.setattr(sampling, "remove", lambda *_: None)
    found = first_rows(frames, {"a": "ts", "b": "ts"}, str(tmp_path), finite=True)
    assert not [one for one in caplog.records if one.exc_info]
    assert list(found) == ["a"]
    assert (found["a"].rows, found["a"].span_us) == (400, 399_000_000)
    assert found["a"].sample.num_rows == sampling.SAMPLE_ROWS
    assert str(found["a"].sample.schema.field("ts").type) == "timestamp[us, tz=UTC]"
    [place] = tmp_path.glob("sampling-*")
    assert (place / "0" / "offsets" / "1").exists()
    assert (place / "0" / "commits" / "0").exists()
    assert not (place / "0" / "commits" / "1").exists()


def test_rows_that_do_not_come_are_not_waited_for_long(spark: SparkSession, tmp_path: Path) -> None:
    frames = scenario_of(spark, tmp_path).join().frames
    times = {"a": "ts", "b": "ts"}
    found = first_rows(frames, times, str(tmp_path), finite=False, patience_s=0.5)
    assert "b" not in found
    assert not list(tmp_path.glob("sampling-*"))


def test_failure_of_a_stream_is_told(spark: SparkSession, tmp_path: Path) -> None:
    frame = scenario_of(spark, tmp_path).streams["a"].stream()
    broken = frame.selectExpr("id", "if(id = 7, raise_error('seven'), ts) as ts")
    with pytest.raises(Exception, match="seven"):
        first_rows({"a": broken}, {"a": "ts"}, str(tmp_path), finite=False)
    assert not list(tmp_path.glob("sampling-*"))

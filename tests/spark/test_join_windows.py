"""Windows, the watermark and late rows."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

from spillway.testing import assert_same_rows


@dataclass(frozen=True)
class Timing:
    """How the streams of a windowed test run: minutes of window and lateness, per stream."""

    windows: tuple[int, ...]
    lateness: tuple[int, ...]
    kind: str = "timestamp"
    zone: str = "UTC"

    def names(self) -> list[str]:
        return [f"s{number}" for number in range(len(self.windows))]


TIMINGS = {
    "equal windows over a change of the clock": Timing((10, 10), (2, 2), zone="America/New_York"),
    "unequal windows": Timing((4, 12, 7), (0, 3, 1), kind="timestamp_ntz"),
}
#: Two batches before the clocks of New York jump from 2 to 3.
BEGIN = dt.datetime(2024, 3, 10, 6, 50)


def timed_batches(timing: Timing, batches: int) -> Iterator[dict[str, list[tuple[Any, ...]]]]:
    """Time goes on by five minutes a batch; one row in five is up to half an hour behind."""
    random_ = random.Random(len(timing.windows))
    for batch in range(batches):
        yield {
            name: []
            if batch == 3 and name == "s0"
            else [(random_.randrange(6), _moment(random_, batch), n) for n in range(40)]
            for name in timing.names()
        }


def _moment(random_: random.Random, batch: int) -> dt.datetime | None:
    if random_.random() < 0.03:
        return None
    behind = random_.uniform(0, 1800) if random_.random() < 0.2 else random_.uniform(0, 300)
    return BEGIN + dt.timedelta(minutes=5 * batch, microseconds=round(1e6 * (300 - behind)))


def without_late(
    timing: Timing, batches: list[dict[str, list[tuple[Any, ...]]]]
) -> tuple[list[dict[str, list[tuple[Any, ...]]]], list[dict[str, int]], list[dt.datetime | None]]:
    """A model of the watermark that shares nothing with the package: rows kept, late, marks."""
    newest: dict[str, dt.datetime] = {}
    mark: dt.datetime | None = None
    kept, late, marks = [], [], []
    for batch in batches:
        timely = {
            name: [row for row in rows if row[1] is not None and (mark is None or row[1] >= mark)]
            for name, rows in batch.items()
        }
        timed = {name: [row for row in rows if row[1] is not None] for name, rows in batch.items()}
        kept.append(timely)
        late.append({name: len(timed[name]) - len(timely[name]) for name in batch})
        for name, rows in timed.items():
            newest |= {name: max([row[1] for row in rows] + [newest.get(name, dt.datetime.min)])}
        if len([name for name in newest if newest[name] > dt.datetime.min]) == len(batch):
            bounds = [
                newest[name] - dt.timedelta(minutes=minutes)
                for name, minutes in zip(timing.names(), timing.lateness, strict=True)
            ]
            mark = max([min(bounds)] + ([] if mark is None else [mark]))
        marks.append(mark)
    return kept, late, marks


@pytest.mark.parametrize("case", TIMINGS)
def test_late_rows_are_dropped_and_counted_and_the_rest_is_exact(
    spark: SparkSession, elsewhere: SparkSession, tmp_path: Path, case: str
) -> None:
    timing = TIMINGS[case]
    session = spark if timing.zone == "UTC" else elsewhere
    schemas = dict.fromkeys(timing.names(), f"k int, ts {timing.kind}, v int")
    scenario = Scenario(session, tmp_path / "all", **schemas)
    timely = Scenario(session, tmp_path / "timely", **schemas)
    batches = list(timed_batches(timing, 11))
    kept, late, marks = without_late(timing, batches)
    for everything, in_time in zip(batches, kept, strict=True):
        scenario.add(**everything)
        timely.add(**in_time)
    minutes = dict(zip(timing.names(), timing.windows, strict=True))
    lateness = dict(zip(timing.names(), timing.lateness, strict=True))
    joined = (
        scenario.join()
        .on("k")
        .within(
            {name: f"{length} minutes" for name, length in minutes.items()},
            time="ts",
            lateness={name: f"{length} minutes" for name, length in lateness.items()},
        )
    )
    progress = scenario.run(joined).recentProgress

    assert_same_rows(scenario.output(joined), timely.expected(joined))
    assert scenario.output(joined).count() > 300
    assert [entry["rowsLate"] for entry in progress] == late
    assert sum(sum(counts.values()) for counts in late) > 20
    told = [
        None if mark is None else f"{mark.isoformat(timespec='milliseconds')}Z" for mark in marks
    ]
    assert [entry["watermark"] for entry in progress] == told
    # Rows leave with the layer they are in, which spans a part of the window at most.
    assert progress[-1]["stateRows"] < 0.5 * sum(len(r) for batch in kept for r in batch.values())


def test_restart_keeps_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a="k int, ts timestamp", b="k int, ts timestamp")
    on_time = [(1, BEGIN + dt.timedelta(minutes=30))]
    scenario.add(a=on_time, b=on_time)

    def joined() -> Any:
        return scenario.join().on("k").within("1 hour", time="ts", lateness="10 minutes")

    scenario.run(joined())
    scenario.add(a=[(1, BEGIN), (1, BEGIN + dt.timedelta(minutes=20))])
    progress = scenario.run(joined()).recentProgress
    assert [entry["rowsLate"] for entry in progress] == [{"a": 1, "b": 0}]
    assert scenario.output(joined()).count() == 2

"""The page of a real query: its numbers are those of the query's own progress.

One Spark session, one query that spills, moves, changes its slot count, pauses and restarts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dashboard_pages import drawn, until
from pyspark.sql import SparkSession

import spillway as sw
from spillway.metrics.events import GroupsReactivated, MoveAsked, Scaled, Spilled
from spillway.testing import FileStream

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = sw.local_session(
        "dashboard",
        "local[2]",
        {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))},
    )
    yield session
    session.stop()


class Stream:
    """Rows of two streams, most of few keys; one file of each is a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._rng = np.random.default_rng(3)
        self.number = 0
        schema = "k bigint, ts timestamp"
        self.streams = {n: FileStream(spark, folder / n, schema) for n in ("north", "south")}

    def add(self, batches: int = 1, rows: int = 300) -> None:
        for _ in range(batches):
            for stream in self.streams.values():
                keys = np.where(
                    self._rng.random(rows) < 0.7,
                    self._rng.integers(0, 6, rows),
                    self._rng.integers(0, 90, rows),
                ).tolist()
                stamp = datetime(2024, 1, 1) + timedelta(minutes=self.number)
                stream.add([(k, stamp) for k in keys])
            self.number += 1

    def keep_ahead(self, query: sw.Query) -> None:
        """Adds a batch if the query is about to run out of them."""
        last = query.lastProgress
        if last is None or last["batchId"] >= self.number - 2:
            self.add()


def start(stream: Stream, place: Path, memory: object) -> sw.Query:
    joined = sw.join(**{name: one.stream(1) for name, one in stream.streams.items()})
    writer = joined.on("k").within("5 minutes", time="ts").writeStream.format("noop")
    return (
        writer.option("checkpointLocation", str(place))
        .adapt(slots=2, groups=16, shares=(3, 1), memory=memory, strategy="lazy-disk")
        .adapt(relocation_threshold=0.95, relocation_batches=1)
        .trigger(processingTime="0 seconds")
        .start()
    )


def wait(true: Callable[[], bool], what: str, feed: Callable[[], None] = lambda: None) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < ends, what
        feed()
        time.sleep(0.2)


def same(page: Any, query: sw.Query) -> None:
    """Holds every number of the page against the progress."""
    entries = [one for one in query.recentProgress if not one["cleanupRound"]]
    until(
        page,
        f"spillway.page.model.points.some((one) => one.batch === {entries[-1]['batchId']})",
        seconds=60,
    )
    found = page.evaluate("spillway.page.model.points.filter((one) => !one.round)")
    shown = {one["batch"]: one for one in found}
    for entry in entries:
        one = shown[entry["batchId"]]
        assert one["rows_in"] == list(entry["rowsIn"].values())
        assert one["rows_late"] == list(entry["rowsLate"].values())
        assert one["rows_out"] == entry["rowsOut"]
        assert one["memory_bytes"] == entry["memoryBytes"]
        assert one["disk_bytes"] == entry["diskBytes"]
        assert one["seconds"] == pytest.approx(entry["batchMs"] / 1e3)
        assert sum(one["phases_s"]) == pytest.approx(entry["batchMs"] / 1e3, abs=0.001)
    last = query.recentProgress[-1]
    until(page, f"spillway.page.model.slots.get(0).batch === {last['batchId']}", seconds=60)
    slots = page.evaluate("spillway.page.model.slots.get(0)")
    assert slots["memory_bytes"] == [sum(one["stateBytes"].values()) for one in last["slots"]]
    assert slots["rows_in"] == [one["rowsIn"] for one in last["slots"]]


def lines(page: Any, text: str) -> int:
    found: int = page.evaluate(
        "(text) => [...document.querySelectorAll('#timeline .event')]"
        ".filter((one) => one.innerText.includes(text)).length",
        text,
    )
    return found


LINES = "[...document.querySelectorAll('#timeline .event')]"


def shows(page: Any, text: str) -> None:
    until(page, f"{LINES}.some((one) => one.innerText.includes({text!r}))", seconds=60)


def answers(page: Any, start: str, seconds: float = 60) -> None:
    until(
        page,
        f"document.querySelector('#answer').textContent.startsWith({start!r})",
        seconds=seconds,
    )


def has(page: Any, status: str) -> None:
    until(page, f"document.querySelector('#status').dataset.status === {status!r}", seconds=60)


def spill_and_move(page: Any, query: sw.Query, stream: Stream) -> None:
    """They are on the page at most two batches after they happened."""
    wanted = {Spilled, MoveAsked, GroupsReactivated}
    wait(
        lambda: wanted <= set(map(type, query.events)),
        "a spill and a move",
        lambda: stream.keep_ahead(query),
    )
    seen = len(query.recentProgress)
    stream.add(2)
    wait(lambda: len(query.recentProgress) >= min(100, seen + 2), "two more batches")
    shows(page, "Spill · slot")
    shows(page, "→")
    assert lines(page, "M_least/M_max") >= 1
    # The map has every group in the slot of the routing.
    stream.add()
    query.processAllAvailable()
    state = query._loop.state
    until(page, f"spillway.page.model.heats.get(0).batch >= {state.batch - 1}", seconds=60)
    groups = page.evaluate("spillway.page.model.heats.get(0).slot.length")
    assert groups == len(state.routing.table)


def commands(page: Any, query: sw.Query, stream: Stream) -> None:
    page.fill("#field-Slots", "3")
    page.click("text=Change slot count")
    answers(page, "the query changes to 3 slots")
    wait(lambda: Scaled in map(type, query.events), "three slots", lambda: stream.keep_ahead(query))
    until(page, "spillway.page.model.slots.get(0).memory_bytes.length === 3", seconds=60)
    shows(page, "3 slots now share the groups")
    page.click("text=Pause adaptation")
    answers(page, "adaptation pauses")
    query.processAllAvailable()
    same(page, query)
    page.click("text=Cleanup now")
    answers(page, "cleanup: ", seconds=120)


def restart(page: Any, stream: Stream, place: Path, port: int) -> None:
    """The page stays open, connects again and marks the gap."""
    kept = page.evaluate("spillway.page.model.points.length")
    stream.add(2)
    again = start(stream, place, memory=9000)
    try:
        with again.dashboard(port=port):
            has(page, "running")
            until(page, f"spillway.page.model.points.length > {kept}", seconds=PATIENCE_S)
            assert page.evaluate("spillway.page.model.gaps.length") == 1
            assert lines(page, "the start continues with batch") == 1
            again.processAllAvailable()
            last = again.recentProgress[-1]["batchId"]
            until(page, f"spillway.page.model.points.at(-1).batch === {last}", seconds=60)
    finally:
        again.stop()


def test_page_shows_what_the_query_does(spark, open_page, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path / "in")
    stream.add(3)
    query = start(stream, tmp_path / "ck", memory=9000)
    try:
        board = query.dashboard(controls=True)
        assert query.dashboard() is board
        assert query.dashboard_url == board.url
        page = open_page(board.control_url)
        wait(lambda: len(query.recentProgress) >= 3, "three batches")
        drawn(page)
        same(page, query)
        spill_and_move(page, query, stream)
        commands(page, query, stream)
    finally:
        query.stop()
    has(page, "ended")
    board.close()
    assert query.dashboard_url is None
    has(page, "lost")
    restart(page, stream, tmp_path / "ck", board.port)
    open_page.problems.clear()  # The browser reports the connections that it lost.

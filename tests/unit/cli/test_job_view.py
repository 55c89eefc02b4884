"""What `spillway run` shows of a job, and what signals do. No Spark runs."""

from __future__ import annotations

import io
import os
import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from spillway.cli.output import error_parts
from spillway.cli.watching import display
from spillway.spark.api.query import Query
from spillway.spark.jobs.following import (
    FAILED,
    INTERRUPTED,
    STOPPED,
    Asked,
    Seen,
    follow,
    stoppable,
)


def entry(batch: int, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch, "rowsIn": {"a": 1000, "b": 5}, "rowsLate": {"a": 2, "b": 0},
        "rowsNull": {"a": 0, "b": 1}, "rowsOut": 7, "stateRows": 10, "stateBytes": 2000,
        "batchMs": 250.0, "watermark": None, **more,
    }  # fmt: skip


@pytest.mark.parametrize("terminal", [True, False])
def test_address_of_the_dashboard_is_shown(terminal: bool) -> None:
    out = io.StringIO()
    seen = Seen("job", 0.0)
    with display(Console(file=out, force_terminal=terminal, width=100)) as show:
        show(seen)
        seen.dashboard = "http://127.0.0.1:4040/"
        show(seen)
        show(seen)
    assert "http://127.0.0.1:4040/" in out.getvalue()
    if not terminal:
        assert out.getvalue().count("4040") == 1


class Running:
    """A query that ends after so many looks."""

    def __init__(self, looks: int = 3, problem: Exception | None = None) -> None:
        self.looks, self.problem, self.stopped = looks, problem, False
        self.recentProgress: list[dict[str, Any]] = []

    @property
    def isActive(self) -> bool:
        self.looks -= 1
        self.recentProgress.append(entry(len(self.recentProgress)))
        return self.looks >= 0 and not self.stopped

    def stop(self) -> None:
        self.stopped = True

    def exception(self) -> Exception | None:
        return self.problem


def followed(query: Running, **how: Any) -> Seen:
    seen = Seen("job", 0.0)
    asked = how.pop("asked", SimpleNamespace(wait=lambda _: False))
    follow(cast("Query", query), seen, asked, lambda _: None, how.get("seconds"))
    return seen


def test_totals_count_every_batch_once() -> None:
    seen = followed(Running(looks=3))
    assert (seen.ended, seen.batches, seen.rows_in) == ("finished", 4, {"a": 4000, "b": 20})
    document = seen.document()
    assert (document["rows_late"], document["rows_out"]) == ({"a": 8, "b": 0}, 28)


def test_results_and_state_are_those_of_all_stages() -> None:
    seen = Seen("job", 0.0)
    query = SimpleNamespace(
        recentProgress=[entry(0, then=[{"rowsOut": 3, "stateRows": 4, "stateBytes": 50}])]
    )
    seen.take(cast("Query", query))
    assert (seen.rows_out, seen.state_rows, seen.state_bytes) == (3, 14, 2050)


def test_asked_query_stops_and_failure_is_kept() -> None:
    query = Running(looks=99)
    assert followed(query, asked=SimpleNamespace(wait=lambda _: True)).ended == STOPPED
    assert query.stopped
    assert followed(Running(looks=99), seconds=0).ended == STOPPED
    assert followed(Running(problem=ValueError("no"))).ended == FAILED


def test_first_signal_asks_and_second_ends() -> None:
    with stoppable() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked.wait(5)
    once = Asked()
    once()
    with pytest.raises(SystemExit) as caught:
        once()
    assert caught.value.code == INTERRUPTED


@pytest.mark.parametrize("terminal", [True, False])
def test_view_has_streams_and_losses(terminal: bool) -> None:
    out = io.StringIO()
    seen = Seen("job", 0.0, phase="running")
    with display(Console(file=out, force_terminal=terminal, width=120)) as show:
        show(seen)
        seen.take(cast("Query", SimpleNamespace(recentProgress=[entry(0)])))
        show(seen)
    told = out.getvalue()
    assert "batch 0, rows in 1,005, late 2, rows out 7, state 10 rows, 2.0 kB" in told
    if terminal:
        assert "NULL key or time" in told


def test_failure_of_spark_shows_its_cause_in_one_line() -> None:
    problem = RuntimeError("a long stack\n\tat org.apache...")
    problem.__cause__ = ZeroDivisionError("division by zero\nmore")
    assert error_parts(problem)["message"] == "ZeroDivisionError: division by zero"

"""What the watcher of a query does with failures, and that it gives everything back after each."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException

from spillway.errors import StateError
from spillway.spark.api import watching
from spillway.spark.api.watching import Watcher


class Streaming:
    """A Spark query that waits, and then ends or raises."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers = list(answers)
        self.stopped = False

    def awaitTermination(self, timeout: float) -> bool:
        answer = True if self.stopped else self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop(self) -> None:
        self.stopped = True


class Loop:
    """A loop of one stage that notes what is asked of it; what is named fails."""

    stuck, idle_s, stopping = True, 60.0, False

    def __init__(self, **failing: Exception) -> None:
        self.done: list[str] = []
        self._failing = failing
        adapt = SimpleNamespace(cleanup="manual")
        spec = SimpleNamespace(query_id="q", adapt=adapt)
        self.stage = SimpleNamespace(spec=spec)
        self.stages = [self.stage]
        self.advance = self._step("advance")
        self.finish_moves = self._step("finish_moves")
        self.finish_waiting = self._step("finish_waiting")
        self.finish_deciding = self._step("finish_deciding")
        self.close = self._step("close")
        self.end = self._step("end")

    def _step(self, name: str) -> Callable[..., None]:
        def step(*_: Any, **__: Any) -> None:
            self.done.append(name)
            if name in self._failing:
                raise self._failing[name]

        return step


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watcher]:
    """Follows a query to its end."""
    monkeypatch.setattr(
        Watcher, "_remove_local", lambda self, stage: self._loop.done.append("remove")
    )

    def follow(streaming: Streaming, loop: Loop, *, finite: bool = False) -> Watcher:
        watcher = Watcher(None, streaming, loop, loop.end, finite=finite)  # type: ignore[arg-type]  # stand-ins
        watcher.join(10)
        assert not watcher.alive
        return watcher

    return follow


TIDY = ["close", "remove", "end"]


def test_query_that_ends_gives_everything_back(watched) -> None:
    loop = Loop()
    assert watched(Streaming(True), loop).failure is None
    assert loop.done == TIDY


def test_finite_input_is_finished_first(watched) -> None:
    loop = Loop()
    assert watched(Streaming(True), loop, finite=True).failure is None
    assert loop.done == ["finish_moves", "finish_waiting", "finish_deciding", *TIDY]


def test_failure_after_the_last_batch_is_kept_by_its_name(watched) -> None:
    problem = RuntimeError(f"in a task: {StateError('run 7 is damaged').to_wire()}")
    loop = Loop(finish_moves=problem)
    failure = watched(Streaming(True), loop, finite=True).failure
    assert (type(failure), str(failure)) == (StateError, "run 7 is damaged")
    assert loop.done == ["finish_moves", *TIDY]


def test_failure_of_a_round_stops_the_query_and_is_kept(watched) -> None:
    problem = OSError("disk full")
    streaming, loop = Streaming(False), Loop(advance=problem)
    assert watched(streaming, loop).failure is problem
    assert (streaming.stopped, loop.done) == (True, ["advance", *TIDY])


def test_failed_batch_is_left_to_spark(watched) -> None:
    loop = Loop()
    assert watched(Streaming(StreamingQueryException("batch 3")), loop, finite=True).failure is None
    assert loop.done == TIDY


@pytest.mark.parametrize("gone", [Py4JNetworkError("no answer"), ConnectionRefusedError()])
def test_spark_that_is_gone_is_a_line_in_the_log(watched, caplog, gone: Exception) -> None:
    loop = Loop()
    with caplog.at_level("INFO", watching.__name__):
        assert watched(Streaming(gone), loop).failure is None
    assert [one.message for one in caplog.records] == ["Spark ended before the query did"]
    assert loop.done == TIDY


def test_anything_else_is_a_failure_of_the_query(watched) -> None:
    problem = AttributeError("a defect")
    loop = Loop()
    assert watched(Streaming(problem), loop).failure is problem
    assert loop.done == TIDY


@pytest.mark.parametrize("step", ["close", "end"])
def test_step_of_tidying_that_fails_is_kept_and_the_others_run(watched, step: str) -> None:
    problem = OSError("no")
    loop = Loop(**{step: problem})
    assert watched(Streaming(True), loop).failure is problem
    assert loop.done == TIDY


def test_first_failure_is_the_one_that_is_kept(watched, caplog) -> None:
    first, second = OSError("first"), OSError("second")
    loop = Loop(finish_moves=first, close=second)
    assert watched(Streaming(True), loop, finite=True).failure is first
    assert "another failure" in caplog.text

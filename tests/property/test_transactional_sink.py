"""The commit protocol of sinks: any crashes, late drivers and restarts leave every batch once.

The target is a model with transactions: staged rows, committed rows and the number. The machine plays
Spark: it repeats a batch until it is committed, and says of a batch that had begun that it is a replay.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import StateError
from spillway.spark.sinks.spec import SinkBatch
from spillway.spark.sinks.transactions.target import TransactionalSink
from tier import examples


class Died(BaseException):
    """The driver is dead."""


class Place:
    """Rows and a number, changed together; staged rows are apart."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.number: int | None = None
        self.staged: dict[int, Any] = {}
        self.attempts = 0


class Target:
    """One driver's way to the place; it dies at one of its calls."""

    def __init__(self, place: Place, dies: int | None) -> None:
        self.place, self.dies, self.calls = place, dies, 0

    def _step(self) -> None:
        if self.calls == self.dies:
            raise Died
        self.calls += 1

    def open(self, schema: Any) -> None:
        pass

    def last(self) -> int | None:
        self._step()
        return self.place.number

    def prepare(self, rows: Any, number: int) -> int:
        self._step()
        self.place.attempts += 1
        self.place.staged[self.place.attempts] = rows
        self._step()
        return self.place.attempts

    def commit(self, prepared: int, number: int) -> None:
        self._step()
        if self.place.number is None or self.place.number < number:
            assert prepared in self.place.staged, "a sweep has removed rows that a commit needs"
            self.place.rows += self.place.staged.pop(prepared)
            self.place.number = number
        self._step()

    def discard(self, prepared: int) -> None:
        self.place.staged.pop(prepared, None)

    def sweep(self) -> None:
        self.place.staged.clear()


def rows_of(number: int) -> Any:
    return [(number, at) for at in range(number % 3)]


@settings(max_examples=examples(400))
@given(
    # For each life: the call at which it dies, and whether a driver of before commits late.
    lives=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=8),
    batches=st.integers(1, 6),
)
def test_every_batch_is_there_once(lives: list[tuple[int, bool]], batches: int) -> None:
    place = Place()
    committed, begun = -1, -1
    late: list[tuple[Target, int, int]] = []
    for dies, wakes in [*lives, (None, False)]:  # type: ignore[list-item]
        target = Target(place, dies)
        sink = TransactionalSink(target, "the place")
        try:
            while committed < batches - 1:
                number = committed + 1
                replay, begun = number <= begun, number
                sink.write(SinkBatch(rows_of(number), number, replay))  # type: ignore[arg-type]
                target._step()
                committed = number
        except Died:
            # A driver that only sleeps has staged its batch, and commits it after its successor.
            sleeper = Target(place, None)
            late.append((sleeper, sleeper.prepare(rows_of(begun), begun), begun))
        if wakes and late:
            other, prepared, number = late.pop()
            if prepared in place.staged:
                other.commit(prepared, number)
    assert place.rows == [row for number in range(batches) for row in rows_of(number)]
    assert place.number == batches - 1


@given(last=st.integers(0, 5), number=st.integers(0, 5), replay=st.booleans())
def test_place_ahead_of_its_checkpoint_stops_the_query(
    last: int, number: int, replay: bool
) -> None:
    place = Place()
    place.number = last
    sink = TransactionalSink(Target(place, None), "the place")
    ahead = number < last or (number == last and not replay)
    batch = SinkBatch(["row"], number, replay)  # type: ignore[arg-type]
    if ahead:
        with pytest.raises(StateError, match=f"the batches up to {last}"):
            sink.write(batch)
        assert place.rows == []
    else:
        sink.write(batch)
        assert place.rows == (["row"] if number > last else [])

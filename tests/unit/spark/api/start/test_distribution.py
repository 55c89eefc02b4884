"""What `distribute="auto"` comes to, from first rows or from a checkpoint."""

from __future__ import annotations

import itertools
import time
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from spillway.operators.input import StreamColumns
from spillway.operators.predicates.binding import bound
from spillway.operators.theta.sliced import SlicedJoin
from spillway.routing.slices import slicing_for
from spillway.settings import Adapt
from spillway.spark.api.start.distribution import choose, kept
from spillway.spark.api.start.sampling import FirstRows

WINDOW_US = 10_000_000
AUTO = Adapt(distribute="auto")


def join(names: str, pair_s: float = 0.0) -> SlicedJoin:
    """A join on x, over streams in a row."""
    streams = [StreamColumns(name, ("x", "ts"), (0, 1), (), 1, WINDOW_US) for name in names]
    columns = {name: {"x": "double", "ts": "timestamp"} for name in names}

    def test(left: Any, right: Any) -> Any:
        if pair_s:
            CLOCK.now += pair_s * len(left)
        return left.x < right.x

    pairs = itertools.pairwise(names)
    predicates = [bound(test, pair, columns, at) for at, pair in enumerate(pairs)]
    windows = [WINDOW_US] * len(names)
    types = [[pa.int64(), pa.timestamp("us", "UTC")]] * len(names)
    return SlicedJoin(streams, types, predicates, slicing_for(windows, [0] * len(names), 16))


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", CLOCK.perf_counter)


def first(rows: int) -> FirstRows:
    """So many rows in ten seconds."""
    times = pa.array(range(10), pa.timestamp("us", "UTC"))
    return FirstRows(rows, WINDOW_US, pa.record_batch({"x": range(10), "ts": times}))


def test_little_work_of_three_streams_is_done_in_one_exchange() -> None:
    choice = choose(join("abc"), {"a": first(5), "b": first(9), "c": first(5)}, AUTO, 4)
    assert (choice.adapt.distribute, choice.adapt.master) == ("atr", "b")
    assert choice.reason.startswith("atr: psp 300 ms, atr 150 ms")
    assert choice.reason.endswith("rows, with segments of b")


def test_master_that_was_asked_for_is_the_one_to_be_cut() -> None:
    rows = {"a": first(5), "b": first(9), "c": first(5)}
    choice = choose(join("abc"), rows, AUTO.changed(master="c"), 4)
    assert (choice.adapt.distribute, choice.adapt.master) == ("atr", "c")


def test_two_streams_need_no_copies() -> None:
    choice = choose(join("ab"), {"a": first(5), "b": first(9)}, AUTO, 4)
    assert choice.adapt.distribute == "psp"


def test_work_that_is_too_much_for_one_slot_is_shared() -> None:
    # Each of 300 rows a second is compared with 1000, and what it found there, 450, with 1000 more.
    rows = dict.fromkeys("abc", first(1001))
    choice = choose(join("abc", pair_s=1.5e-8), rows, AUTO, 4)
    assert choice.adapt.distribute == "psp"
    assert "segments of" not in choice.reason


def test_stream_without_rows_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="stream b had no row for 30 s") as caught:
        choice = choose(join("ab"), {"a": first(5)}, AUTO, 4)
    assert choice.adapt.distribute == "psp"
    assert choice.reason == "psp: stream b had no row for 30 s, so it could not be measured"
    assert "the checkpoint keeps it" in str(caught[0].message)


@pytest.mark.parametrize(
    ("query", "settings"),
    [
        ({"copies": 1}, {"distribute": "psp"}),
        ({"copies": 3}, {"distribute": "ctr", "copies": 3}),
        (
            {"segment": [3_000_000, "b"]},
            {"distribute": "atr", "segment": timedelta(seconds=3), "master": "b"},
        ),
        # Of other queries, which the checkpoint will refuse.
        ({"segment": [3_000_000, "z"]}, {"distribute": "psp"}),
        ({"segment": None}, {"distribute": "psp"}),
        ({}, {"distribute": "psp"}),
    ],
)
def test_checkpoint_says_what_its_first_start_chose(
    query: dict[str, Any], settings: dict[str, Any]
) -> None:
    found = kept(AUTO, query, ["a", "b"])
    assert found.adapt == AUTO.changed(**settings)
    assert found.reason == f"{settings['distribute']}: the checkpoint's first start chose it"

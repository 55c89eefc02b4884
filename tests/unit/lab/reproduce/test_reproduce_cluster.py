"""The verdicts on several slots follow from the data, and are told in its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from spillway.errors import QueryError
from spillway.policies.cluster.strategy import Strategy
from spillway.settings import Adapt
from spillway.spark.api.query import Query
from spillway_lab.reproduce import runs as reproduce_runs
from spillway_lab.reproduce.dcape.relocation import LAZY, WITH, WITHOUT
from spillway_lab.reproduce.dcape.strategy import ACTIVE
from spillway_lab.reproduce.page import rendered
from spillway_lab.reproduce.results import Results
from spillway_lab.reproduce.runs import Run
from spillway_lab.reproduce.spec import FIGURES
from spillway_lab.reproduce.terms import ALL_MEMORY, Feed, Variant, tau
from spillway_lab.reproduce.verdicts import document
from spillway_lab.workloads.dcape import Dcape

TOTAL = 1000
LIMIT = 250
THETAS = (50, 60, 70, 80, 90)


def made(*output: int, moves: int = 0, **more: Any) -> Run:
    """A run of as many batches as outputs are given, with cleanup for the rest of the rows."""
    size = (100,) * len(output)
    run = Run(output, size, size, 0, TOTAL - output[-1], 0.5, (size, size), (0,) * moves)
    return replace(run, **{"processing_s": 10.0, **more})


def found(figure: str, runs: dict[str, Run], **more: Any) -> dict[str, Any]:
    limit = None if FIGURES[figure].memory_part is None else LIMIT
    result = document(FIGURES[figure], Results(runs, TOTAL, limit, **more))
    assert FIGURES[figure].claim in rendered([result])
    return result


def held(figure: str, runs: dict[str, Run], **more: Any) -> bool:
    return bool(found(figure, runs, **more)["holds"])


def thresholds(outputs: tuple[int, ...], moves: tuple[int, ...]) -> dict[str, Run]:
    lines = zip(THETAS, outputs, moves, strict=True)
    return {ALL_MEMORY: made(TOTAL)} | {
        f"theta {theta}%": made(output, moves=count, processing_s=12.0)
        for theta, output, count in lines
    }


def test_figure_9_asks_for_the_output_of_all_memory_and_more_relocations_at_the_top() -> None:
    same, rising = (TOTAL,) * 5, (2, 5, 4, 9, 20)
    assert held("dcape-9", thresholds(same, rising))
    assert held("dcape-9", thresholds((950, *same[1:]), rising))
    assert not held("dcape-9", thresholds((*same[:3], 949, TOTAL), rising))
    assert not held("dcape-9", thresholds(same, (3, 5, 4, 9, 3)))
    page = rendered([found("dcape-9", thresholds(same, rising))])
    assert "2 (theta 50%), 5 (theta 60%)" in page
    assert "1.20 to 1.20 x the processing time of All-Mem" in page
    assert "| theta 90% | 1,000 | 0 | 0 | 20 | 0 | 12 |" in page


@pytest.mark.parametrize(
    ("moves", "last", "holds"),
    [
        ((31, 27, 24), TOTAL, True),
        ((31, 31, 24), TOTAL, True),
        ((31, 31, 31), TOTAL, False),
        ((31, 32, 24), TOTAL, False),
        ((31, 27, 24), 949, False),
    ],
    ids=["falling", "level once", "level", "rising once", "less output"],
)
def test_figure_15_asks_for_fewer_relocations_with_a_longer_interval(
    moves: tuple[int, ...], last: int, holds: bool
) -> None:
    runs = {
        f"every {seconds} s": made(output, moves=count)
        for seconds, output, count in zip((15, 30, 45), (TOTAL, TOTAL, last), moves, strict=True)
    }
    assert held("dcape-tr-15", runs) is holds


def balanced(with_: tuple[int, ...], without: tuple[int, ...], since: int | None = 0) -> Any:
    """Two runs whose second slot has so much where the first has 100."""
    full = (100,) * len(with_)
    ended = () if since is None else (since,)
    outputs = (0,) * (len(with_) - 1) + (TOTAL,)
    return {
        WITHOUT: made(*outputs, slots=(full, without)),
        WITH: made(*outputs, slots=(full, with_), relocated=ended),
    }


def test_figure_10_looks_at_the_time_after_the_first_relocation() -> None:
    uneven = (10, 60, 60)
    assert held("dcape-10", balanced((10, 80, 80), uneven))
    assert not held("dcape-10", balanced((10, 79, 80), (10, 50, 50)))
    assert not held("dcape-10", balanced((10, 85, 85), (10, 80, 80)))
    assert not held("dcape-10", balanced((90, 90, 90), uneven, since=None))
    assert not held("dcape-10", balanced((10, 80, 80), uneven, since=2))
    result = found("dcape-10", balanced((10, 80, 90), uneven))
    assert result["measured"]["balance"] == {WITHOUT: 0.6, WITH: 0.85}
    assert list(result["series"]["slots"]) == [
        *(f"{WITHOUT}-M1", f"{WITHOUT}-M2", f"{WITH}-M1", f"{WITH}-M2")
    ]
    assert "0.60 on average and 0.60 at worst (no-relocation); 0.85 on average" in rendered(
        [result]
    )


@pytest.mark.parametrize(
    ("output", "spills", "holds"),
    [(900, 0, True), (900, 2, True), (900, 3, False), (800, 0, False)],
    ids=["no spill", "fewer", "as many", "as much output"],
)
def test_figure_11_asks_for_more_output_and_fewer_spills(
    output: int, spills: int, holds: bool
) -> None:
    runs = {WITH: made(output, spills=spills, moves=4), WITHOUT: made(800, spills=3)}
    assert held("dcape-11", runs) is holds


def cleaning(lazy_s: float, lazy: int = 900) -> dict[str, Run]:
    return {
        LAZY: made(lazy, slot_cleanup_s=(lazy_s, 0.1), slot_cleaned=(20, 80)),
        WITHOUT: made(800, slot_cleanup_s=(3.0, 0.0), slot_cleaned=(200, 0)),
    }


def test_figure_12_compares_the_slots_with_most_cleanup() -> None:
    assert held("dcape-12", cleaning(1.0))
    assert not held("dcape-12", cleaning(1.01))
    assert not held("dcape-12", cleaning(1.0, lazy=800))
    result = found("dcape-12", cleaning(0.5))
    assert result["measured"]["cleanup_s_ratio"] == 6.0
    assert result["measured"]["cleanup_ratio"] == 2.5
    assert "lazy-disk 0.50, no-relocation 3.00, 6.0 x shorter" in rendered([result])
    page = rendered([found("dcape-12", cleaning(1.0), by_part={0.25: cleaning(2.0)})])
    assert "| limit | output | seconds of cleanup | rows of cleanup | the claim |" in page
    assert "| 0.2 | 1.12 x | 3.0 x shorter | 2.5 x fewer | above |" in page
    assert "| 0.25 | 1.12 x | 1.5 x shorter | 2.5 x fewer | does not hold |" in page
    none = cleaning(0.0)
    none[LAZY] = replace(none[LAZY], slot_cleanup_s=(0.0, 0.0))
    assert held("dcape-12", none)


def contest(active: tuple[int, ...], lazy: tuple[int, ...], *forced: int) -> dict[str, Run]:
    return {
        LAZY: made(*lazy),
        ACTIVE: made(*active, forced=forced),
        "global-disk": made(*lazy),
    }


@pytest.mark.parametrize(
    ("active", "forced", "holds"),
    [
        ((10, 15, 50), (1,), True),
        ((10, 20, 50), (1,), True),
        ((10, 21, 50), (1,), False),
        ((5, 21, 50), (1,), False),
        ((10, 15, 40), (1,), False),
        ((10, 15, 50), (), False),
    ],
    ids=["dips", "as much", "never below", "below before", "no more at the end", "none forced"],
)
def test_figure_13_asks_for_a_dip_after_the_first_forced_spill_and_for_more_at_the_end(
    active: tuple[int, ...], forced: tuple[int, ...], holds: bool
) -> None:
    assert held("dcape-13", contest(active, (10, 20, 40), *forced)) is holds


def test_figure_13_tells_the_dip() -> None:
    page = rendered([found("dcape-13", contest((10, 15, 50), (10, 20, 40), 1))])
    assert "1.250 x the output of lazy-disk at the end" in page
    assert "0.750 x at worst, less in 1 of 2 batches" in page
    page = rendered([found("dcape-13", contest((10, 25, 50), (10, 20, 40), 1))])
    assert "never below it" in page


def test_figure_14_is_compared_with_figure_13() -> None:
    before = Results(contest((10, 15, 50), (10, 20, 40), 1), TOTAL, LIMIT)

    def holds(active: int, lazy: int, other: Results = before) -> bool:
        runs = {LAZY: made(lazy), ACTIVE: made(active, forced=(0,))}
        return held("dcape-14", runs, compared_with=other)

    assert holds(130, 100)
    assert not holds(125, 100)
    worse = Results(contest((10, 15, 20), (10, 20, 40), 1), TOTAL, LIMIT)
    assert not holds(99, 100, worse)
    assert not holds(130, 100, replace(before, rows_expected=TOTAL + 1))


def test_figure_6_of_the_report_bounds_difference_and_processing_time() -> None:
    def machines(*times: float, third: int = 500) -> dict[str, Run]:
        runs = {f"M{n}": made(500, TOTAL, processing_s=s) for n, s in enumerate(times, 1)}
        return {**runs, "M3": made(third, TOTAL, processing_s=times[2])}

    assert held("dcape-tr-6", machines(10, 11, 12, 13, 20))
    assert not held("dcape-tr-6", machines(10, 11, 12, 13, 20.1))
    assert held("dcape-tr-6", machines(10, 11, 12, 13, 14, third=495))
    assert not held("dcape-tr-6", machines(10, 11, 12, 13, 14, third=494))


def full(*minutes: int | None, last: int = TOTAL) -> dict[str, Run]:
    """Runs of four batches, in which a slot is full in the given minute and from then on."""
    runs = {}
    for number, minute in enumerate(minutes, 1):
        size = tuple(LIMIT + (minute is not None and at >= minute) for at in range(1, 5))
        output = last if number == 5 else TOTAL
        runs[f"M{number}"] = made(0, 0, 0, output, slots=(size, (0,) * 4))
    return runs


@pytest.mark.parametrize(
    ("minutes", "holds"),
    [
        ((2, 3, None, None, None), True),
        ((2, None, None, None, None), True),
        ((2, 3, 3, None, None), True),
        ((2, 2, None, None, None), False),
        ((2, 4, 3, None, None), False),
        ((2, 3, 4, 4, None), False),
        ((None, None, None, None, None), False),
    ],
)
def test_figure_7_of_the_report_asks_when_the_fullest_slot_is_full(
    minutes: tuple[int | None, ...], holds: bool
) -> None:
    assert held("dcape-tr-7", full(*minutes)) is holds


def test_figure_7_of_the_report_tells_minutes_and_the_limit() -> None:
    result = found("dcape-tr-7", full(2, None, None, None, None))
    assert result["measured"]["full_after_minutes"]["M1"] == 2
    assert "M1 in minute 2, M2 never" in rendered([result])
    assert not held("dcape-tr-7", full(2, 3, None, None, None, last=999))


def test_lines_with_the_same_settings_share_a_run() -> None:
    top = FIGURES["dcape-9"].variants[-1]
    [without, moving] = FIGURES["dcape-10"].variants
    assert FIGURES["dcape-9"].feed == FIGURES["dcape-10"].feed
    assert (top.name, top.settings) == ("theta 90%", moving.settings)
    assert without.settings == FIGURES["dcape-9"].variants[0].settings
    assert Variant("a", {"slots": 2}).settings != Variant("a", {"slots": 2}, limited=True).settings


def test_time_is_counted_in_batches() -> None:
    feed = Feed(Dcape(rows=500), minutes=2, per_minute=4)
    assert [feed.minute(batch) for batch in range(4)] == [0.25, 0.5, 0.75, 1]
    assert isinstance(feed.minute(3), int)
    assert [tau(seconds, per_minute=20) for seconds in (15, 30, 45)] == [5, 10, 15]
    for name in ("dcape-9", "dcape-tr-15"):
        skewed = FIGURES[name].feed
        assert skewed.workload.skew_batches == 2 * skewed.first


def test_memory_is_limited_exactly_where_slots_may_spill() -> None:
    for figure in FIGURES.values():
        for variant in figure.variants:
            adapt = Adapt().changed(**variant.adapt, memory=LIMIT if variant.limited else None)
            assert variant.limited == Strategy(adapt.strategy_name).spills
            assert not variant.limited or figure.memory_part is not None


class Ending:
    """A query that ends after some batches and a round, and keeps only its last entries."""

    def __init__(self, batches: int, kept: int) -> None:
        self._entries = [{"batchId": at, "cleanupRound": 0} for at in range(batches)]
        self._entries.append({"batchId": batches - 1, "cleanupRound": 1})
        self._kept = kept
        self._done = 0

    def awaitTermination(self, timeout: float) -> bool:
        self._done = min(self._done + self._kept - 1, len(self._entries))
        return self._done == len(self._entries)

    @property
    def recentProgress(self) -> list[dict[str, int]]:
        return self._entries[max(0, self._done - self._kept) : self._done]


def test_entries_that_a_query_no_longer_keeps_are_told_too() -> None:
    told = reproduce_runs._told(cast("Query", Ending(20, 4)))
    assert [entry["batchId"] for entry in told] == [*range(20), 19]
    assert [entry["cleanupRound"] for entry in told] == [0] * 20 + [1]


def test_run_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce_runs, "_PATIENCE_S", -1)
    with pytest.raises(QueryError, match="did not end"):
        reproduce_runs._told(cast("Query", Ending(20, 4)))

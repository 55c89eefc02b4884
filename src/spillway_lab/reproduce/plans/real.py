"""PLANS' four settings on Spark, with both protocols: no adaptation, either one, and both (5.2).

The clock offers three streams (spillway_lab/reproduce/paced.py), two of which become slow
(spillway_lab/workloads/ebb.py), to two slots, one of which has most of the groups. That slot is the
bottleneck, like the paper's first machine: with the first shape it needs more than a second for a
second of the streams. The figure shows, at each second of the clock, the results so far, and the
tuples in the system: rows of all states, combinations included, and rows that wait in the source.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from pyspark.sql import SparkSession

from spillway.metrics.events import (
    GroupsDeleted,
    GroupsReactivated,
    MoveAsked,
    MoveEvent,
    Reshaped,
)
from spillway.spark.api.join import join
from spillway.spark.api.session import local_session
from spillway_lab.quiet import java_errors_to
from spillway_lab.reproduce.flux.terms import RealFigure
from spillway_lab.reproduce.paced import Offer, Paced, joined, rows_of, so_far, watch
from spillway_lab.reproduce.plans.optimisation import LM, MSLB, NONE, PTLB, lines
from spillway_lab.workloads.ebb import NAMES, Ebb

NAME = "plans-real"
TITLE = "PLANS 5.2 on Spark: local optimisation, load balancing, and both, with two slots"
FIRST_PLAN = "((a b) c)"
#: Seconds of the streams: until b and c become slow, the window, and all of them. The measurement
#: lasts as long as rows are offered.
CHANGE_S, WINDOW_S, SECONDS = 4, 30, 54
#: Seconds of a batch, and between two comparisons of the slots.
STEP_S, COMPARED_S = 1.0, 3
SLOTS: dict[str, Any] = {"slots": 2, "groups": 100, "shares": (3, 1), "block_rows": 64}
#: Target: seconds that the slot with most groups works for a second of the streams, with the first shape
#: after the change; and the rate and seconds of the trial run that measures it.
LOAD, TRIAL_RATE, TRIAL_S = 2.0, 8_000.0, 4
#: Rows of b that a row of a finds at the change; and the factor of matching pairs among the others.
PARTNERS, MORE_PAIRS = 12.0, 1.25
#: What counts as more results than None.
MORE = 1.05

_FIXED: dict[str, Any] = {"shape": FIRST_PLAN}
_CHOSEN: dict[str, Any] = {"kind": "tree"}


def _balanced(moves: str) -> dict[str, Any]:
    every = f"{COMPARED_S} seconds"
    return {"strategy": "relocate-only", "moves": moves, "relocation_interval": every}


#: Each setting: its shape, and what it adapts.
LINES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    NONE: (_FIXED, {}),
    LM: (_CHOSEN, {}),
    **{lines(moves)[2]: (_FIXED, _balanced(moves)) for moves in (MSLB, PTLB)},
    **{lines(moves)[3]: (_CHOSEN, _balanced(moves)) for moves in (MSLB, PTLB)},
}

CLAIM = (
    "On average over the time in which rows are offered, local optimisation and load balancing alone "
    f"have each given more results than None (at least {MORE:g} x), and both together the most. After "
    "the change of rates there are fewest tuples in the system with both, on average. So it is with "
    "MSLB and with PTLB."
)
PAPER = (
    "each alone about 100 % more than None, both about 330 % more; the settings with local optimisation "
    "have much lower build-up of tuples than the others"
)
SETUP = (
    f"Two slots on two cores; the first starts with three quarters of the {SLOTS['groups']} groups. "
    f"Streams a, b and c have one rate; from second {CHANGE_S} on b and c have a twentieth of it (the "
    f"paper: 100 and 5 rows a second, from second 30 on). The window is {WINDOW_S} s, so rows from "
    f"before the change make work until second {WINDOW_S}. Once LM has changed the shape the slots "
    "catch up, so results are compared on average over the time, not when the last row is offered. The "
    f"paper gives no selectivities. Here a row of a finds {PARTNERS:g} of b at the change; of a and c, "
    f"and of b and c, {MORE_PAIRS:g} times as many pairs match; all in other keys, so that few "
    "combinations of three do. With that ((a b) c) is the cheapest shape while the rates are alike, and "
    "LM, which starts with it, has no reason to leave it; (a (b c)) is cheapest when they are not. A "
    "trial run gives the rate: with the first shape, after the change, the slot with most groups must "
    f"work {LOAD:g} s for a second of the streams. For such a load to come from states of some 100 MB, "
    f"combinations are made {SLOTS['block_rows'] // 2} at a time (`block_rows`), which takes about as "
    "long as one by one in an engine with tuples; by default a slot makes millions in a second. A batch "
    "has a second of the streams, which is offered when that second is over. The query compares slots "
    f"every {COMPARED_S} s by the memory of their states, as in the paper (`relocate-only`). After the "
    "last row, every run continues to the end of the input, and its results are compared with a batch "
    "query."
)


@dataclass(frozen=True)
class Adapted:
    """A move, or a change of shape."""

    #: Seconds of the clock: when a move was ordered and when it ended, None if it did not.
    second: float
    until: float | None
    told: str


@dataclass(frozen=True)
class Run:
    """One setting."""

    line: str
    #: Results so far, and tuples in the system, at each full second of the clock.
    results: tuple[int, ...]
    tuples: tuple[int, ...]
    #: Seconds that each slot worked for a second of the streams, and those of a batch, while rows from
    #: before the change were in the window.
    slot_s: tuple[float, ...]
    batch_s: float
    moves: tuple[Adapted, ...]
    reshapes: tuple[Adapted, ...]
    exact: bool


def document(say: Callable[[str], None]) -> dict[str, Any]:
    """Runs it all."""
    with tempfile.TemporaryDirectory(prefix="spillway-reproduce-") as name:
        folder = Path(name)
        say("starting Spark")
        with java_errors_to(folder / "spark.log"):
            spark = local_session("spillway-reproduce", "local[2]")
        try:
            say(f"{NAME}: warming up")
            _warm_up(spark, folder)
            rate = _rate(spark, folder)
            say(f"{NAME}: {rate:,.0f} rows a second")
            offer = Offer(_ebb(rate, SECONDS), STEP_S, folder / "input")
            say(f"{NAME}: the batch query")
            expected = rows_of(joined(offer, spark, WINDOW_S))
            runs: list[Run] = []
            for line in LINES:
                say(f"{NAME}: {line}")
                plan, adapt = LINES[line]
                paced = _run(spark, offer, folder / f"{len(runs)}", plan, adapt)
                runs.append(described(line, paced, offer, exact=paced.rows == expected))
        finally:
            spark.stop()
    return judged(runs, rate, expected.count)


def _warm_up(spark: SparkSession, folder: Path) -> None:
    """Starts the processes and loads the kernels that all settings need."""
    offer = Offer(_ebb(TRIAL_RATE / 4, 2 * CHANGE_S), STEP_S, folder / "warm-input", at_once=True)
    adapt = _balanced(MSLB) | {"relocation_interval": "1 second"}
    _run(spark, offer, folder / "warm", _CHOSEN, adapt)


def _ebb(rate: float, seconds: float) -> Ebb:
    return Ebb(rate, float(seconds), float(CHANGE_S), partners=PARTNERS, more=MORE_PAIRS)


def _rate(spark: SparkSession, folder: Path) -> float:
    """Rows a second that give the slot with most groups its load, to two digits."""
    ebb = _ebb(TRIAL_RATE, CHANGE_S + TRIAL_S)
    offer = Offer(ebb, STEP_S, folder / "trial-input", at_once=True)
    plan, adapt = LINES[NONE]
    [most, *_] = _worked(_run(spark, offer, folder / "trial", plan, adapt), CHANGE_S + TRIAL_S)
    return float(f"{TRIAL_RATE * LOAD / most:.1e}")


def _worked(paced: Paced, until_s: int) -> tuple[float, ...]:
    """Seconds that each slot worked for a second of the streams, after the change."""
    some = [one for one in paced.batches if CHANGE_S <= one.batch * STEP_S < until_s]
    return tuple(median(slot) / STEP_S for slot in zip(*(one.slot_s for one in some), strict=True))


def _run(
    spark: SparkSession,
    offer: Offer,
    place: Path,
    plan: Mapping[str, Any],
    adapt: Mapping[str, Any],
) -> Paced:
    streams = offer.stream(spark, place / "input")
    query = (
        join(**streams).on("k").within(f"{WINDOW_S} seconds", time="ts").plan(**plan)
        .select(*(f"{name}.id AS {name}" for name in NAMES))
        .writeStream.format("parquet")
        .option("path", str(place / "rows"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .adapt(**SLOTS, **adapt)
        .start()
    )  # fmt: skip
    try:
        batches = watch(query, offer, place / "input")
        events = query.events
    finally:
        query.stop()
    rows = spark.read.schema(", ".join(f"{name} bigint" for name in NAMES))
    return Paced(tuple(batches), tuple(events), rows_of(rows.parquet(str(place / "rows"))))


def described(line: str, paced: Paced, offer: Offer, *, exact: bool) -> Run:
    """A setting by the seconds of the clock."""
    results, tuples = [], []
    for second in range(1, SECONDS + 1):
        done = so_far(paced.batches, second)
        waiting = offer.offered(second) - sum(one.rows_in for one in done)
        results.append(sum(one.rows_out for one in done))
        tuples.append(waiting + (done[-1].state_rows if done else 0))
    busy = [one for one in paced.batches if CHANGE_S <= one.batch * STEP_S < WINDOW_S]
    return Run(
        line,
        tuple(results),
        tuple(tuples),
        _worked(paced, WINDOW_S),
        median(one.seconds for one in busy),
        _moves(paced),
        tuple(
            Adapted(paced.second_of(event), None, f"slot {event.slot} to {event.shape}")
            for event in paced.events
            if isinstance(event, Reshaped)
        ),
        exact,
    )


def _moves(paced: Paced) -> tuple[Adapted, ...]:
    """The moves in which groups were chosen, each with its groups."""
    steps: dict[int, list[MoveEvent]] = {}
    for event in paced.events:
        if isinstance(event, MoveEvent):
            steps.setdefault(event.move, []).append(event)
    return tuple(
        Adapted(
            paced.second_of(some[0]),
            next(
                (
                    paced.second_of(e)
                    for e in some
                    if isinstance(e, GroupsReactivated | GroupsDeleted)
                ),
                None,
            ),
            f"{len(some[-1].groups)} groups from slot {some[-1].slot} to slot {some[-1].receiver}",
        )
        for some in steps.values()
        if isinstance(some[0], MoveAsked) and some[-1].groups
    )


def judged(runs: Sequence[Run], rate: float, expected: int) -> dict[str, Any]:
    """The document of the figure, only from the measurements."""
    made = {run.line: run.results[-1] for run in runs}
    ever = {run.line: mean(run.results) for run in runs}
    held = {run.line: mean(run.tuples[CHANGE_S:]) for run in runs}
    checks = {"lm_gives_more": ever[LM] >= MORE * ever[NONE]}
    for moves in (MSLB, PTLB):
        four = lines(moves)
        alone, both = four[2], four[3]
        checks |= {
            f"{moves}_gives_more": ever[alone] >= MORE * ever[NONE],
            f"lm_and_{moves}_give_most": ever[both] > max(ever[line] for line in four[:3]),
            f"lm_and_{moves}_have_fewest": held[both] < min(held[line] for line in four[:3]),
        }
    checks["exact"] = all(run.exact for run in runs)
    measured = {
        "rate": rate,
        "vs_none": _over(made, made[NONE]),
        "vs_none_on_average": _over(ever, ever[NONE]),
        "part_of_all": _over(made, expected),
        "expected_rows": expected,
        "mean_tuples": {line: round(some) for line, some in held.items()},
        "most_tuples": {run.line: max(run.tuples) for run in runs},
        "slot_s_for_a_second": {run.line: [round(s, 3) for s in run.slot_s] for run in runs},
        "batch_s": {run.line: round(run.batch_s, 3) for run in runs},
        "moves": {run.line: [vars(one) for one in run.moves] for run in runs},
        "reshapes": {run.line: [vars(one) for one in run.reshapes] for run in runs},
        "tuples": {run.line: list(run.tuples) for run in runs},
        "checks": checks,
        "exact": checks["exact"],
    }
    return {
        "figure": NAME,
        "claim": CLAIM,
        "paper": PAPER,
        "series": {
            run.line: {"x": list(range(1, len(run.results) + 1)), "y": list(run.results)}
            for run in runs
        },
        "measured": measured,
        "holds": all(checks.values()),
    }


def _over(some: Mapping[str, float], base: float) -> dict[str, float]:
    return {line: round(value / max(base, 1e-9), 3) for line, value in some.items()}


def words(measured: Mapping[str, Any]) -> str:
    """What was measured, in a line."""
    mine, other = measured["slot_s_for_a_second"][NONE]
    told = (
        "results over those of None, when the last row is offered and on average until then: "
        f"{_ratios(measured)}. None has {measured['part_of_all'][NONE]:.0%} of all results when the "
        f"last row is offered. Each stream has {measured['rate']:,.0f} rows a second. With the first "
        f"plan the slot with most groups works {mine:.2f} s for a second of the streams, the other "
        f"{other:.2f}. Tuples in the system after the change, on average: "
        f"{_each(measured['mean_tuples'])}. At most: {_each(measured['most_tuples'])}. "
        f"{_adapted(measured)}"
    )
    failed = [name for name, held in measured["checks"].items() if not held]
    return told + (f". Not so: {', '.join(failed)}" if failed else "")


def _ratios(measured: Mapping[str, Any]) -> str:
    ever = measured["vs_none_on_average"]
    return ", ".join(
        f"{line} {ratio:.2f} and {ever[line]:.2f} x"
        for line, ratio in measured["vs_none"].items()
        if line != NONE
    )


def _each(tuples: Mapping[str, int]) -> str:
    return ", ".join(f"{line} {some:,}" for line, some in tuples.items())


def _adapted(measured: Mapping[str, Any]) -> str:
    """When settings changed something."""
    parts = []
    for line in LINES:
        found = [
            f"{one['told']} in second {one['second']:.0f}" for one in measured["reshapes"][line]
        ]
        found += [
            f"{one['told']} in seconds {one['second']:.0f} to "
            + ("the end" if one["until"] is None else f"{one['until']:.0f}")
            for one in measured["moves"][line]
        ]
        parts += [f"{line}: {', '.join(found)}"] if found else []
    return ". ".join(parts)


PLANS_REAL = {
    NAME: RealFigure(
        NAME, TITLE, CLAIM, PAPER, "second", "results so far", document, words, SETUP, "results"
    )
}

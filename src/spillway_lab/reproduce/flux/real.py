"""FLUX on a real Spark: one of three executors is disturbed, for a long and for a short time.

Back to back, a batch takes as long as its slowest slot; with load balancing, groups leave the
disturbed slot until all take equally long. The measurements give what the processors allow: a batch
in which every slot has the rows that match its speed while disturbed.

The balanced run has a counterpart in the simulator (spillway_lab/simulator/cluster/counterpart.py),
whose slots have the measured speeds batch by batch, under the same policy; the verdict includes how
far throughput and moves agree.

In a paced stream, whose batches take a fraction of the trigger interval, a short disturbance makes
batches overrun; with a skew buffer the disturbed slot takes what it can, and the rest later.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from spillway_lab.reproduce.disturbed import (
    BUSY,
    GROUPS,
    ROWS,
    SHARES,
    Disturbed,
    Measured,
    Recorded,
    cluster,
)
from spillway_lab.reproduce.flux.terms import RealFigure
from spillway_lab.simulator.cluster.calibration import Calibration, calibrate
from spillway_lab.simulator.cluster.counterpart import WITHIN, Batch, RealRun, Slowed, compared
from spillway_lab.simulator.cluster.counterpart import Measured as Described

NAME = "flux-real"
TITLE = (
    "FLUX 5.4 and 4.2 on Spark: three executors, one of which shares its core with another process"
)
STATIC, BALANCED = "static", "load balancing"
UNBUFFERED, BUFFERED = "paced", "paced, skew buffer"
#: Fraction of what the processors allow that load balancing must restore.
RESTORED = 0.85
#: Batches to warm up, before, during and after a disturbance; of those during it, the ones at the end
#: count where groups move, once that has had its effect.
WARM, QUIET, LONG, SETTLING, LAST = 20, 14, 14, 60, 15
SHORT, AFTER = 8, 36
#: Batch times differ by a fifth, so statistics cover several batches, and slots that differ by that much
#: stay as they are.
FLUX: dict[str, Any] = {
    "strategy": "flux-load",
    "delta_min": "6 seconds",
    "imbalance_threshold": 1.3,
}
#: Of a paced stream: the trigger interval over the time of an undisturbed batch; the time that a slot
#: may work, over its undisturbed time; and the size of the buffer.
SLACK, TARGET, BUFFER = 1.35, 1.3, "64MB"

CLAIM = (
    f"With load balancing throughput comes to at least {RESTORED:g} of what the remaining processor "
    "time allows; and a skew buffer alone absorbs a short disturbance: fewer batches of a paced stream "
    "take longer than the time between two triggers than without it, and nothing waits in the end. The "
    f"simulated counterpart of the balanced run agrees with it within {WITHIN:.0%}, in throughput and "
    "in moves."
)
PAPER = (
    "load balancing restores what the processors allow, within seconds; the skew buffer hides "
    "disturbances as short as it is large"
)
SETUP = (
    "Three executors of a local cluster, pinned to two cores: two share one, the third has one of its "
    f"own and half of the groups. The disturbance is {BUSY} processes that never sleep, pinned to the "
    f"core of the third. {ROWS:,} rows a batch; a statistic over the last 8 rows of each key for every "
    "row, by a Python function that takes most of the time."
)


def document(say: Callable[[str], None]) -> dict[str, Any]:
    """Runs it all."""
    with tempfile.TemporaryDirectory(prefix="spillway-reproduce-") as folder:
        say("starting Spark with three executors")
        with cluster(Path(folder)) as spark:
            runs = _runs(spark, Path(folder), say)
        say("simulating the balanced run")
        known = calibrate(tell=lambda _: None)
    return judged(runs, known)


def _runs(spark: SparkSession, folder: Path, say: Callable[[str], None]) -> dict[str, Recorded]:
    runs: dict[str, Recorded] = {}
    say(f"{NAME}: warming up")
    with Disturbed(spark, folder / "warm", "0 seconds", {"strategy": "none"}) as run:
        run.pin()
        run.until(WARM)
    lines: dict[str, dict[str, Any]] = {STATIC: {"strategy": "none"}, BALANCED: FLUX}
    for line, adapt in lines.items():
        say(f"{NAME}: {line}")
        with Disturbed(spark, folder / line, "0 seconds", adapt) as run:
            run.pin()
            run.until(QUIET)
            with run.disturbance():
                run.until(run.last + (LONG if line == STATIC else SETTLING))
            runs[line] = run.end()
    quiet = _quiet(runs[STATIC])
    trigger_s = round(SLACK * median(one.seconds for one in quiet), 1)
    target_s = TARGET * median(max(one.slot_s) for one in quiet)
    buffered = {"skew_buffer": BUFFER, "batch_target": f"{target_s:.3f} seconds"}
    for line, adapt in {UNBUFFERED: {}, BUFFERED: buffered}.items():
        say(f"{NAME}: {line}, a batch every {trigger_s:g} s")
        with Disturbed(spark, folder / line, f"{trigger_s} seconds", adapt) as run:
            run.pin()
            run.until(QUIET)
            with run.disturbance():
                run.until(run.last + SHORT)
            run.until(run.last + AFTER)
            runs[line] = run.end()
            runs[line].trigger_s = trigger_s
    return runs


def judged(runs: Mapping[str, Recorded], known: Calibration) -> dict[str, Any]:
    """The document of the figure, only from the measurements."""
    static, balanced = runs[STATIC], runs[BALANCED]
    quiet, disturbed = _quiet(static), _disturbed(static)
    allowed = allowed_rows_per_s(quiet, disturbed)
    settled = _rows_per_s(_disturbed(balanced)[-LAST:])
    overrun = {line: _overrun(runs[line]) for line in (UNBUFFERED, BUFFERED)}
    waiting = sum(runs[BUFFERED].batches[-1].waiting)
    exact = all(run.exact for run in runs.values())
    twin = compared(counterpart(balanced), known)
    measured = {
        "quiet_rows_per_s": round(_rows_per_s(quiet)),
        "static_rows_per_s": round(_rows_per_s(disturbed)),
        "balanced_rows_per_s": round(settled),
        "allowed_rows_per_s": round(allowed),
        "balanced_vs_allowed": round(settled / allowed, 3),
        "moves": len(balanced.moved),
        "moved_in": balanced.moved,
        "trigger_s": runs[BUFFERED].trigger_s,
        "disturbed_batches": SHORT,
        "overrun": overrun,
        "most_waiting_rows": max((sum(one.waiting) for one in runs[BUFFERED].batches), default=0),
        "waiting_in_the_end": waiting,
        "counterpart": twin.to_json(),
        "exact": exact,
    }
    absorbed = overrun[BUFFERED] < overrun[UNBUFFERED] and waiting == 0
    return {
        "figure": NAME,
        "claim": CLAIM,
        "paper": PAPER,
        "series": {
            line: {
                "x": [one.batch for one in run.batches[1:]],
                "y": [round(one.rows / one.seconds) for one in run.batches[1:]],
            }
            for line, run in runs.items()
        },
        "measured": measured,
        "holds": bool(settled >= RESTORED * allowed and absorbed and twin.agrees and exact),
    }


def words(measured: Mapping[str, Any]) -> str:
    """What was measured, in a line."""
    overrun, twin = measured["overrun"], measured["counterpart"]
    return (
        f"{measured['quiet_rows_per_s']:,} rows a second undisturbed and "
        f"{measured['static_rows_per_s']:,} disturbed, of {measured['allowed_rows_per_s']:,} that the "
        f"processors allow. With load balancing {measured['balanced_rows_per_s']:,} after "
        f"{measured['moves']} moves, {measured['balanced_vs_allowed']:.2f} of it. Paced, with a trigger "
        f"every {measured['trigger_s']:g} s, {overrun[UNBUFFERED]} batches overran around a disturbance "
        f"of {measured['disturbed_batches']} batches. With a skew buffer {overrun[BUFFERED]} did, and "
        f"at most {measured['most_waiting_rows']:,} rows waited in it. The simulated counterpart has "
        f"{twin['throughput_ratio']:.2f} of the throughput, and {twin['simulated_moves']} moves "
        f"where the run had {twin['real_moves']}"
    )


def counterpart(run: Recorded) -> Described:
    """The run after its first batches: at any time its slots have the speed measured then."""
    shown = run.part(_quiet(run)[0].batch, run.batches[-1].batch)
    slots, moved = range(len(SHARES)), Counter(run.moved)
    least = min(_row_s([one], slot) for one in shown for slot in slots if one.slot_rows[slot])
    slowed, at_s = [], 0.0
    for one in shown:
        until_s = at_s + one.seconds
        # A slot without rows has no measured speed.
        for slot in (slot for slot in slots if one.slot_rows[slot]):
            slowed.append(Slowed(slot, _row_s([one], slot) / least, at_s, until_s))
        at_s = until_s
    return Described(
        RealRun(
            len(SHARES),
            GROUPS,
            ROWS,
            row_s=least,
            fixed_s=median(one.seconds - max(one.slot_s) for one in shown),
            adapt={**FLUX, "shares": SHARES},
            slowed=tuple(slowed),
        ),
        tuple(
            Batch(one.seconds, one.rows, one.slot_s, one.slot_rows, moved[one.batch])
            for one in shown
        ),
    )


def _row_s(batches: Sequence[Measured], slot: int) -> float:
    """Seconds of a row in a slot."""
    rows = sum(one.slot_rows[slot] for one in batches)
    return sum(one.slot_s[slot] for one in batches) / max(rows, 1)


def allowed_rows_per_s(quiet: Sequence[Measured], disturbed: Sequence[Measured]) -> float:
    """Rows a second if every slot had the rows that match its speed while disturbed.

    The time of a batch beyond its slots is that of an undisturbed batch.
    """
    beyond_s = median(one.seconds - max(one.slot_s) for one in quiet)
    speed = sum(1 / _row_s(disturbed, slot) for slot in range(len(disturbed[0].slot_s)))
    return ROWS / (beyond_s + ROWS / speed)


def _quiet(run: Recorded) -> list[Measured]:
    """The later half of the batches before the disturbance."""
    first = next(one.batch for one in run.batches if one.disturbed)
    return run.part(first // 2, first - 1)


def _disturbed(run: Recorded) -> list[Measured]:
    """The batches that were disturbed from their beginnings."""
    return [one for one in run.batches if one.disturbed][1:]


def _rows_per_s(batches: Sequence[Measured]) -> float:
    return median(one.rows / one.seconds for one in batches)


def _overrun(run: Recorded) -> int:
    """Batches from the disturbance on that took longer than the trigger interval."""
    first = next(one.batch for one in run.batches if one.disturbed)
    return sum(one.seconds > run.trigger_s for one in run.batches if one.batch >= first)


FLUX_REAL = {
    NAME: RealFigure(NAME, TITLE, CLAIM, PAPER, "batch", "rows a second", document, words, SETUP)
}

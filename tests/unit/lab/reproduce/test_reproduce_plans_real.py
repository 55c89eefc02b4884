"""What is said of PLANS on Spark follows from what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spillway.metrics.events import (
    DuplicationAsked,
    GroupsChosen,
    GroupsDeleted,
    GroupsReactivated,
    MoveAsked,
    Reshaped,
)
from spillway_lab.reproduce.paced import Batch, Offer, Paced, Rows, so_far
from spillway_lab.reproduce.plans.optimisation import LM, NONE
from spillway_lab.reproduce.plans.real import (
    CHANGE_S,
    LINES,
    SECONDS,
    STEP_S,
    Adapted,
    Run,
    described,
    judged,
    words,
)
from spillway_lab.workloads.ebb import Ebb

#: Results a second, and tuples, of each setting.
MADE = {
    NONE: (100, 900),
    LM: (150, 500),
    "MSLB only": (140, 800),
    "PTLB only": (120, 850),
    "LM + MSLB": (200, 300),
    "LM + PTLB": (180, 400),
}
ALL = 200 * SECONDS


def runs() -> list[Run]:
    return [
        Run(
            line,
            tuple(rate * second for second in range(1, SECONDS + 1)),
            (tuples,) * SECONDS,
            (2.0, 0.7),
            1.4,
            (Adapted(13.2, 20.4, "25 groups from slot 0 to slot 1"),) if "LB" in line else (),
            (Adapted(11.0, None, "slot 0 to (a (b c))"),) if "LM" in line else (),
            True,
        )
        for line, (rate, tuples) in MADE.items()
    ]


def test_settings_are_those_of_the_paper_with_both_protocols() -> None:
    assert list(LINES) == list(MADE)
    assert [plan for plan, _ in LINES.values()] == [
        {"shape": "((a b) c)"} if "LM" not in line else {"kind": "tree"} for line in LINES
    ]


def test_claim_holds_where_all_its_parts_do() -> None:
    found = judged(runs(), 9_000.0, ALL)
    assert found["holds"]
    assert found["series"][LM]["x"][:2] == [1, 2]
    assert found["series"][LM]["y"][:2] == [150, 300]
    assert found["measured"]["vs_none"]["LM + MSLB"] == 2.0
    assert found["measured"]["part_of_all"][NONE] == 0.5
    told = words(found["measured"])
    assert "Each stream has 9,000 rows a second. With the first plan the slot" in told
    assert "works 2.00 s for a second of the streams, the other 0.70. Tuples in the system" in told
    assert "None has 50% of all results" in told
    assert "LM only 1.50 and 1.50 x, MSLB only 1.40 and 1.40 x" in told
    assert "LM + PTLB: slot 0 to (a (b c)) in second 11, 25 groups from slot 0 to slot 1 in" in told
    assert "Not so" not in told


@pytest.mark.parametrize(
    ("line", "change", "failed"),
    [
        (LM, {"results": (104,) * SECONDS}, ["lm_gives_more"]),
        ("MSLB only", {"results": (104,) * SECONDS}, ["mslb_gives_more"]),
        ("PTLB only", {"results": (104,) * SECONDS}, ["ptlb_gives_more"]),
        ("LM + MSLB", {"results": (150,) * SECONDS}, ["lm_and_mslb_give_most"]),
        ("LM + PTLB", {"results": (150,) * SECONDS}, ["lm_and_ptlb_give_most"]),
        ("LM + MSLB", {"tuples": (500,) * SECONDS}, ["lm_and_mslb_have_fewest"]),
        ("LM + PTLB", {"tuples": (500,) * SECONDS}, ["lm_and_ptlb_have_fewest"]),
        ("MSLB only", {"exact": False}, ["exact"]),
    ],
)
def test_each_part_of_the_claim_can_fail(line, change, failed) -> None:
    level = {name: (rate,) * SECONDS for name, (rate, _) in MADE.items()}
    changed = [
        replace(run, **{"results": level[run.line]} | (change if run.line == line else {}))
        for run in runs()
    ]
    found = judged(changed, 9_000.0, ALL)
    assert not found["holds"]
    assert [name for name, held in found["measured"]["checks"].items() if not held] == failed
    assert f"Not so: {failed[0]}" in words(found["measured"])


def test_tuples_before_the_change_do_not_count() -> None:
    busy = tuple(10**9 if second < CHANGE_S else 300 for second in range(SECONDS))
    changed = [replace(run, tuples=busy) if run.line == "LM + MSLB" else run for run in runs()]
    assert judged(changed, 9_000.0, ALL)["holds"]


def batch(number: int, second: float, rows_in: int, rows_out: int, state: int) -> Batch:
    return Batch(second, 1.5, number, rows_in, rows_out, state, (1.0, 0.25))


def test_setting_is_told_by_the_seconds_of_the_clock(tmp_path: Path) -> None:
    offer = Offer(Ebb(rate=50.0, seconds=float(SECONDS), partners=1.0), STEP_S, tmp_path / "input")
    change = round(CHANGE_S / STEP_S)
    batches = (
        batch(0, 2.5, 40, 7, 50),
        batch(change, 4.5, 60, 5, 120),
        batch(change + 1, 5.5, 20, 3, 90),
    )
    move = {"groups": (), "bytes": 0, "seconds": 0.0, "reason": "", "move": 0, "receiver": 1}
    chosen = move | {"groups": (4, 5)}
    events = (
        MoveAsked(0, 0, **move),
        GroupsChosen(change, 0, **chosen),
        Reshaped(change, 1, (), 0, 0.0, "", "((a b) c)", "(a (b c))"),
        GroupsReactivated(change + 1, 0, **chosen),
    )
    run = described(NONE, Paced(batches, events, Rows(15, 1)), offer, exact=True)
    assert run.results[:6] == (0, 0, 7, 7, 12, 15)
    assert run.tuples[1] == offer.offered(2.0)
    assert run.tuples[4] == offer.offered(5.0) - 100 + 120
    assert run.slot_s == (1.0 / STEP_S, 0.25 / STEP_S)
    assert run.moves == (Adapted(2.5, 5.5, "2 groups from slot 0 to slot 1"),)
    assert run.reshapes == (Adapted(4.5, None, "slot 1 to (a (b c))"),)


def test_track_that_did_not_end_has_no_end(tmp_path: Path) -> None:
    offer = Offer(Ebb(rate=50.0, seconds=float(SECONDS), partners=1.0), STEP_S, tmp_path / "input")
    change = round(CHANGE_S / STEP_S)
    move = {"groups": (4,), "bytes": 0, "seconds": 0.0, "reason": "", "move": 3, "receiver": 1}
    asked = (MoveAsked(0, 0, **move), DuplicationAsked(change, 0, **move))
    batches = (batch(0, 2.5, 40, 7, 50), batch(change, 4.5, 60, 5, 120))
    paced = Paced(batches, asked, Rows(12, 1))
    [open_track] = described(NONE, paced, offer, exact=True).moves
    assert open_track.until is None
    ended = replace(paced, events=(*asked, GroupsDeleted(change, 0, **move)))
    [track] = described(NONE, ended, offer, exact=True).moves
    assert track.until == 4.5


def test_input_is_offered_when_its_time_is_over(tmp_path: Path) -> None:
    ebb = Ebb(rate=4_000.0, seconds=0.04, change_s=0.02, partners=1.0)
    offer = Offer(ebb, 0.01, tmp_path / "input")
    assert [offer.offered(second) for second in (0.0, 0.005)] == [0, 0]
    assert offer.offered(0.025) == ebb.rows(0.02)
    assert offer.offered(9.0) == ebb.rows(0.04)
    there = tmp_path / "there"
    there.mkdir()
    with offer.offering(there):
        while len(list(there.iterdir())) < 4:
            pass
    assert {path.name for path in there.iterdir()} == {f"{n:04d}.parquet" for n in range(4)}


def test_batches_so_far_are_those_that_have_ended() -> None:
    some = [batch(0, 1.0, 1, 1, 1), batch(1, 2.0, 1, 1, 1)]
    assert so_far(some, 1.9) == some[:1]

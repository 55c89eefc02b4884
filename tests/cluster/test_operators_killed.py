"""Every operator, with rows that wait, spill or move, dies by SIGKILL at random times.

The input has late rows, NULL keys and times, and repeated rows; whole rows are compared, and all rows
are counted.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from inputs import Input
from lives import Life, commits
from mechanisms import MECHANISMS, WORKED
from oracles import check_counts, check_output
from processes import local_roots, wait_until
from sinks import SINKS

from spillway.checkpoint.log import Log
from spillway.state.runs.durable import open_durable

#: Kills of each query, and where everything is tried.
KILLS, SOAK_KILLS = 1, 3
SEED = 20261116
#: Files of each stream; slots of a ring go when a window and the lateness have passed.
FILES, RING_FILES = 14, 16


@dataclass(frozen=True)
class Case:
    """A query that is killed."""

    kind: str
    mechanism: str
    sink: str = "parquet"
    more: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}, {self.mechanism}, {self.sink}"

    def life(self, root: Path, number: int, given: Input) -> Life:
        """One start of it."""
        adapt = {**MECHANISMS[self.mechanism], **self.more}
        round_bytes = adapt.pop("round_bytes", None)
        return Life(str(root), number, given, self.kind, self.sink, adapt, round_bytes=round_bytes)


#: Groups move from the first batch on.
UNEVEN = {"shares": (3, 1)}
CASES = [
    Case("group-by", "moves", more=UNEVEN),
    Case("windowed", "skew buffer"),
    Case("dedup", "rotation"),
    Case("match", "generations"),
    Case("chained", "generations", "by id"),
]
FULL_CASES = [
    Case("group-by", "rotation"),
    Case("windowed", "generations"),
    Case("range", "tracks", more=UNEVEN),
    Case("intervals", "both"),
    Case("two streams", "generations", "table"),
    Case("full", "generations"),
    Case("full", "moves", more=UNEVEN),
    Case("full", "rotation", "by id"),
    Case("chained", "moves", more=UNEVEN),
    Case("match", "moves", more=UNEVEN),
    Case("match", "copies"),
    Case("match", "segments"),
    Case("match", "ring"),
]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for left in local_roots(tmp_path):
        shutil.rmtree(left, ignore_errors=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(one, marks=pytest.mark.full) for one in FULL_CASES)], ids=str
)
def test_operator_killed_at_random_loses_and_repeats_nothing(
    root: Path, case: Case, soak: bool
) -> None:
    given = Input(
        str(root / "in"),
        files=RING_FILES if case.mechanism == "ring" else FILES,
        rows=150,
        keys=200,
        seed=len(case.kind + case.mechanism),
        window_minutes=2,
        behind=0.1,
        null_times=0.02,
    )
    given.write()
    wanted = SOAK_KILLS if soak else KILLS
    kills = _lives(root, case, given, wanted)
    assert kills >= wanted, "the query was through before the last kill"
    given = given.read_by(root / "checkpoint/spark")
    sink = SINKS[case.sink]
    check_output(case.kind, given, sink.read(root), 1 if sink.exactly_once else 1 + kills)
    assert not list(root.glob("differs-*")), "a batch came again with other rows"
    logs = [Log(open_durable(str(path))) for path in sorted(root.glob("checkpoint/spillway*"))]
    told = [log.commits() for log in logs]
    check_counts(case.kind, given, [states[-1] for states in told])
    times = sum(WORKED[case.mechanism](state) for states in told for state in states)
    assert times, f"{case.mechanism} was in none of {len(told[0])} batches and rounds"
    assert all(states[-1].pending == () for states in told)
    assert all(states[-1].spooled_rows == 0 for states in told)


def _lives(root: Path, case: Case, given: Input, wanted: int) -> int:
    """Runs the query to its end, over some deaths; returns how many hit it while it ran."""
    chance = random.Random(f"{SEED} {case.kind} {case.mechanism}")
    hits = 0
    with ExitStack() as stack:
        life = case.life(root, 0, given)
        coming = life.born(stack)
        for number in range(1, 3 * wanted):
            child, ready = coming, life.ready
            life = case.life(root, number, given)
            coming = life.born(stack)
            child.tell("go")
            if not wait_until(ready.exists, 120, step=0.01, child=child):
                pytest.fail(f"life {number} did not start its query\n{child.told()}")
            target = commits(root) + 1
            wait_until(lambda target=target: commits(root) >= target, 60, step=0.005, child=child)
            time.sleep(chance.uniform(0.0, 1.0))
            through = life.done.exists()
            assert child.running or through, child.told()
            child.kill(workers=chance.random() < 0.5)
            hits += not through
            if through or hits >= wanted:
                break
        coming.tell("go")
        if not wait_until(life.done.exists, 200, child=coming):
            pytest.fail(f"the last life did not end well\n{coming.told()}")
    return hits

"""Every operator, with rows that wait, spill or move, dies by SIGKILL at random times.

The input has late rows, NULL keys and times, and repeated rows; whole rows are compared, and all rows
are counted. In the quick tier one driver runs a query of each operator, so one kill hits all of them
for the price of two JVMs. The full tier kills each on its own too.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from inputs import Input
from lives import Life, born, commits
from mechanisms import MECHANISMS, WORKED
from oracles import check_counts, check_output
from processes import Child, local_roots, wait_until
from sinks import SINKS

from spillway.checkpoint.log import Log
from spillway.state.runs.durable import open_durable
from tier import LONGEST_S

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


@dataclass(frozen=True)
class Played:
    """A query, where it has everything, and its input."""

    case: Case
    root: Path
    given: Input

    @staticmethod
    def of(case: Case, root: Path) -> Played:
        """The query, with its input written."""
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
        return Played(case, root, given)

    def life(self, number: int) -> Life:
        """One start of it."""
        return self.case.life(self.root, number, self.given)

    @property
    def ending(self) -> bool:
        """Whether only a few batches are left, so that a kill must come now."""
        names = (self.root / "checkpoint/spark/commits").glob("[0-9]*")
        return max((int(path.name) for path in names), default=-1) >= self.given.files - 4


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Played, int]]]:
    """The queries of the quick tier, in one driver that dies; how many kills hit each of them."""
    top = tmp_path_factory.mktemp("together")
    played = [Played.of(case, top / str(number)) for number, case in enumerate(CASES)]
    with tidied(top, played):
        kills = _lives(top, played, KILLS)
        yield {str(one.case): (one, kills[one.root]) for one in played}


@contextmanager
def tidied(top: Path, played: list[Played]) -> Iterator[None]:
    """Removes what the queries have left outside their directories."""
    try:
        yield
    finally:
        for left in (left for one in played for left in local_roots(one.root, top / "scratch")):
            shutil.rmtree(left, ignore_errors=True)


@pytest.mark.parametrize("case", [str(case) for case in CASES])
def test_operators_killed_together_lose_and_repeat_nothing(
    together: dict[str, tuple[Played, int]], case: str
) -> None:
    check(*together[case])


@pytest.mark.full
@pytest.mark.parametrize("case", [*CASES, *FULL_CASES], ids=str)
def test_operator_killed_at_random_loses_and_repeats_nothing(
    tmp_path: Path, case: Case, soak: bool
) -> None:
    one = Played.of(case, tmp_path)
    with tidied(tmp_path, [one]):
        wanted = SOAK_KILLS if soak else KILLS
        kills = _lives(tmp_path, [one], wanted)[one.root]
        check(one, kills, wanted)


def check(one: Played, kills: int, wanted: int = KILLS) -> None:
    """Raises unless the query was hit, the mechanism worked, and whole rows and all counts are right."""
    case, root = one.case, one.root
    assert kills >= wanted, "the query was through before the last kill"
    given = one.given.read_by(root / "checkpoint/spark")
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


def _lives(top: Path, played: list[Played], wanted: int) -> dict[Path, int]:
    """Runs queries in one driver to their end, over some deaths; how many hit each while it ran."""
    chance = random.Random(f"{SEED} {' '.join(str(one.case) for one in played)}")
    hits = {one.root: 0 for one in played}
    with ExitStack() as stack:
        lives = [one.life(0) for one in played]
        coming = born(stack, lives, top / "scratch")
        for number in range(1, 3 * wanted):
            child, now = coming, lives
            lives = [one.life(number) for one in played]
            coming = born(stack, lives, top / "scratch")
            child.tell("go")
            ready = partial(all_there, [life.ready for life in now])
            if not wait_until(ready, LONGEST_S, step=0.01, child=child):
                pytest.fail(f"life {number} did not start its queries\n{child.told()}")
            _wait_for_a_batch_of_each(played, child, chance.uniform(0.0, 1.0))
            through = [life.done.exists() for life in now]
            assert child.running or all(through), child.told()
            child.kill(workers=chance.random() < 0.5)
            for one, done in zip(played, through, strict=True):
                hits[one.root] += not done
            if any(through) or min(hits.values()) >= wanted:
                break
        coming.tell("go")
        if not wait_until(
            partial(all_there, [life.done for life in lives]), LONGEST_S, child=coming
        ):
            pytest.fail(f"the last life did not end well\n{coming.told()}")
    return hits


def _wait_for_a_batch_of_each(played: list[Played], child: Child, more_s: float) -> None:
    """Waits until each query has committed, and some time more, but for no query's end."""
    targets = [(one.root, commits(one.root) + 1) for one in played]

    def near() -> bool:
        return any(one.ending for one in played)

    def reached() -> bool:
        return near() or all(commits(root) >= target for root, target in targets)

    wait_until(reached, LONGEST_S, step=0.005, child=child)
    wait_until(near, more_s, step=0.005, child=child)


def all_there(paths: list[Path]) -> bool:
    return all(path.exists() for path in paths)

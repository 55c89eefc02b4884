"""Stories: a seed becomes a query, its lives, and the strikes that each of them suffers.

A strike kills a process, or stops it for a while (SIGSTOP, SIGCONT). It comes some commits and some
time after the last one. Every life but the last ends with the death of its driver, of its JVM, or of
all its processes; whatever survives goes on until it notices. Where state is in an object store, which
has no locks, a driver may also be frozen while another takes over, and then wake up.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inputs import Input
from lives import Life
from mechanisms import MECHANISMS
from processes import DRIVER, EXECUTOR, JVM, WORKER

#: Queries, with the mechanisms of each.
_ANY = ("nothing", "generations", "moves", "both", "rotation", "skew buffer")
MECHANISMS_OF: dict[str, tuple[str, ...]] = {
    "two streams": (*_ANY, "tracks"),
    "three streams": (*_ANY, "tracks"),
    "tree": (*_ANY, "tracks"),
    "group-by": _ANY,
    "windowed": _ANY,
    "range": (*_ANY, "tracks"),
    "dedup": _ANY,
    "intervals": (*_ANY, "tracks"),
    "match": ("nothing", "generations", "moves", "both"),
    "chained": _ANY,
}
PLANS = (
    {"shape": "((orders prices) stock)"},
    {"shape": "(orders (prices stock))"},
    {"kind": "nway"},
    {"kind": "auto"},
)
#: How a join on predicates is distributed; the first start decides.
DISTRIBUTIONS: tuple[dict[str, Any], ...] = (
    {"distribute": "psp"},
    {"distribute": "ctr", "copies": 2},
    {"distribute": "atr", "segment": "4 minutes"},
)
#: To freeze is to stop all processes of a driver until the next one has taken over.
KILL, PAUSE, FREEZE = "kill", "pause", "freeze"
#: All processes of a life at once.
ALL = "all"
_FATAL = (DRIVER, JVM, ALL)

#: Executors die often here, and a fetch from a dead one gives up soon.
_PATIENT = {
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "10",
    "spark.stage.maxConsecutiveAttempts": "10",
    "spark.locality.wait.process": "3s",
    "spark.sql.parquet.compression.codec": "uncompressed",
}
_SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "50ms",
}


@dataclass(frozen=True)
class Strike:
    """What happens to one process, or to all, of a life."""

    role: str
    deed: str
    #: The commits, and then the time, since the strike before.
    commits: int
    delay_s: float
    pause_s: float = 0.0

    @property
    def fatal(self) -> bool:
        """Whether the life ends with it."""
        return self.deed == FREEZE or (self.deed == KILL and self.role in _FATAL)

    def __str__(self) -> str:
        return f"{self.deed} {self.role}"


@dataclass(frozen=True)
class Story:
    """The lives of a query, and the strikes of each."""

    seed: int
    given: Input
    lives: tuple[tuple[Life, tuple[Strike, ...]], ...]

    def __str__(self) -> str:
        first = self.lives[0][0]
        lines = [f"seed {self.seed}: {first.kind} into {first.sink} on {first.master}"]
        for life, strikes in self.lives:
            told = {**life.adapt, **life.plan}
            lines.append(f"  {', '.join(map(str, strikes)) or 'the end'} with {told}")
        return "\n".join(lines)


def story_of(seed: int, root: Path, durable: str | None = None) -> Story:
    """The story of a seed, below `root`; `durable` is where its state is, if not there."""
    chance = random.Random(f"disaster {seed}")
    given = Input(
        str(root / "in"),
        files=chance.randint(8, 12),
        rows=chance.randint(60, 160),
        keys=chance.choice((40, 100, 200)),
        seed=seed,
        window_minutes=chance.randint(2, 4),
        behind=chance.choice((0.0, 0.1, 0.3)),
        null_times=chance.choice((0.0, 0.02)),
    )
    first = _first(chance, root, given)
    if durable is not None:
        first = replace(first, sink="by id", adapt={**first.adapt, "durable": durable})
    clustered = first.master.startswith("local-cluster")
    deaths = chance.randint(1, 2)
    lives = []
    for number in range(deaths + 1):
        life = _life(chance, first, number)
        frozen = durable is not None and number == 0
        strikes = _strikes(chance, clustered, last=number == deaths, frozen=frozen)
        lives.append((life, tuple(strikes)))
    return Story(seed, given, tuple(lives))


def _first(chance: random.Random, root: Path, given: Input) -> Life:
    """What all lives share."""
    kind = chance.choice(sorted(MECHANISMS_OF))
    executors = chance.choice((0, 0, 0, 2, 2, 3))
    # An embedded database belongs to one JVM, so slots on executors of their own cannot write to it.
    sinks = ("parquet", "by id", "table") if executors else ("parquet", "by id", "table", "jdbc")
    conf = dict(_PATIENT)
    if executors and chance.random() < 0.5:
        conf |= _SPECULATIVE
    return Life(
        str(root),
        0,
        given,
        kind,
        chance.choice(sinks),
        chance.choice(DISTRIBUTIONS) if kind == "match" else {},
        master=f"local-cluster[{executors},1,1024]" if executors else "local[2,10]",
        conf=conf,
    )


def _life(chance: random.Random, first: Life, number: int) -> Life:
    """One start, with settings of its own."""
    name = chance.choice(MECHANISMS_OF[first.kind])
    slots = chance.randint(2, 4) if "copies" in first.adapt else chance.randint(1, 4)
    adapt = {**first.adapt, **MECHANISMS[name], "slots": slots}
    round_bytes = adapt.pop("round_bytes", None)
    if "cluster" in first.master:
        adapt["share"] = chance.choice(("host", "executor"))
    if chance.random() < 0.3:
        adapt["block_rows"] = chance.choice((7, 100))
    return replace(
        first,
        number=number,
        adapt=adapt,
        plan=chance.choice(PLANS) if first.kind == "tree" else {},
        round_bytes=round_bytes,
        always_move=name in ("moves", "tracks", "both") and chance.random() < 0.5,
        replays=chance.choice(("skip", "compare")),
    )


def _strikes(chance: random.Random, clustered: bool, *, last: bool, frozen: bool) -> list[Strike]:
    killed = (EXECUTOR, WORKER) if clustered else (WORKER,)
    paused = (DRIVER, JVM, WORKER, EXECUTOR) if clustered else (DRIVER, JVM, WORKER)
    found = []
    for _ in range(chance.randint(0, 2)):
        deed = chance.choice((KILL, PAUSE))
        role = chance.choice(killed if deed == KILL else paused)
        found.append(_strike(chance, role, deed))
    if last:
        return found
    if frozen:
        return [*found, replace(_strike(chance, ALL, PAUSE), deed=FREEZE, commits=2)]
    return [*found, _strike(chance, chance.choice(_FATAL), KILL)]


def _strike(chance: random.Random, role: str, deed: str) -> Strike:
    pause_s = round(chance.uniform(0.2, 4.0), 3) if deed == PAUSE else 0.0
    return Strike(role, deed, chance.randint(0, 2), round(chance.uniform(0.0, 1.0), 3), pause_s)

"""Every operator, with rows that wait, spill or move, dies by SIGKILL at random times."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from inputs import Input, assert_same_rows, batch_of
from processes import Child, local_roots, wait_until

from spillway.checkpoint.log import Log
from spillway.coordinator.batch.committed import Committed
from spillway.metrics.events import Event, GroupsChosen, Scaled, Spilled
from spillway.state.runs.tiers import DurableTier

#: Kills of each query, and where everything is tried.
KILLS, SOAK_KILLS = 1, 3
SEED = 20261116

#: What makes rows wait, leave memory and move.
MECHANISMS: dict[str, dict[str, Any]] = {
    "generations": {"memory": 5_000, "round_bytes": 4_000, "strategy": "spill-only"},
    "moves": {
        "strategy": "relocate-only",
        "relocation_batches": 1,
        "relocation_threshold": 0.99,
        "shares": (3, 1),
    },
    "rotation": {"memory": 800, "spill_mode": "rotation", "t_gap": "1 millisecond"},
    "copies": {"distribute": "ctr", "copies": 2, "memory": 5_000, "strategy": "spill-only"},
    "segments": {
        "distribute": "atr",
        "segment": "4 minutes",
        "strategy": "relocate-only",
        "relocation_batches": 1,
        "relocation_threshold": 0.99,
    },
    "ring": {"ring": "auto", "adjustment": "passive"},
    "skew buffer": {"skew_buffer": "1MB", "batch_target": "1 millisecond"},
}


def _happened(kind: type[Event]) -> Callable[[Committed], bool]:
    """Whether a commit tells of such an event; one of no groups is none, but of slots."""
    return lambda state: any(
        isinstance(event, kind) and (event.groups or kind is Scaled) for event in state.events
    )


def _waited(state: Committed) -> bool:
    return state.spooled_rows > 0


#: What the log of a query in which a mechanism has worked tells, of some batch or round.
WORKED: dict[str, Callable[[Committed], bool]] = {
    "generations": _happened(Spilled),
    "moves": _happened(GroupsChosen),
    "rotation": _waited,
    "copies": _happened(Spilled),
    "segments": _happened(GroupsChosen),
    "ring": _happened(Scaled),
    "skew buffer": _waited,
}
#: Files of each stream; slots of a ring go when a window and the lateness have passed.
FILES, RING_FILES = 14, 16


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for left in local_roots(tmp_path):
        shutil.rmtree(left, ignore_errors=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "mechanism"),
    [
        ("group-by", "moves"),
        ("windowed", "skew buffer"),
        ("dedup", "rotation"),
        ("match", "generations"),
        *(
            pytest.param(kind, mechanism, marks=pytest.mark.full)
            for kind, mechanism in [
                ("group-by", "rotation"),
                ("windowed", "generations"),
                ("match", "moves"),
                ("match", "copies"),
                ("match", "segments"),
                ("match", "ring"),
            ]
        ),
    ],
)
def test_operator_killed_at_random_loses_and_repeats_nothing(
    root: Path, kind: str, mechanism: str, soak: bool
) -> None:
    kills = SOAK_KILLS if soak else KILLS
    files = RING_FILES if mechanism == "ring" else FILES
    given = Input(str(root / "in"), files=files, rows=150, keys=200, seed=len(kind + mechanism))
    given.write()
    chance = random.Random(f"{SEED} {kind} {mechanism}")
    with ExitStack() as stack:
        coming = _born(stack, root, 0, kind, MECHANISMS[mechanism])
        hits = 0
        for number in range(1, 3 * kills):
            life, coming = coming, _born(stack, root, number, kind, MECHANISMS[mechanism])
            life.tell("go")
            if not wait_until((root / f"ready-{number - 1}").exists, 120, step=0.01, child=life):
                pytest.fail(f"life {number} did not start its query\n{life.told()}")
            target = _logged(root) + 1
            wait_until(lambda target=target: _logged(root) >= target, 60, step=0.005, child=life)
            time.sleep(chance.uniform(0.0, 1.0))
            through = (root / "done").exists()
            assert life.running or through, life.told()
            life.kill(workers=chance.random() < 0.5)
            hits += not through
            if through or hits >= kills:
                break
        coming.tell("go")
        if not wait_until((root / "report.json").exists, 200, child=coming):
            pytest.fail(f"the last life did not end well\n{coming.told()}")
        wait_until((root / "done").exists, 30, child=coming)
    assert hits >= kills, "the query was through before the last kill"
    CHECKS[kind](root)
    log = Log(DurableTier(str(root / "checkpoint/spillway")))
    told = [log.read(mark) for mark in log.marks()]
    times = sum(map(WORKED[mechanism], told))
    assert times, f"{mechanism} was in none of {len(told)} batches and rounds"
    assert told[-1].pending == ()
    assert told[-1].spooled_rows == 0


def _check_totals(root: Path) -> None:
    """What was said last of each key is its total; a count grows, so the last is the largest."""
    orders, found = _rows(root, "orders"), _written(root)
    wanted = orders.groupby("item", dropna=False)["amount"].agg(["size", "sum"])
    last = found.sort_values("n").groupby("item", dropna=False).last()
    assert len(wanted) > 100
    assert last["n"].sort_index().tolist() == wanted["size"].sort_index().tolist()
    assert last["total"].sort_index().tolist() == wanted["sum"].sort_index().tolist()


def _check_windows(root: Path) -> None:
    """Every row has a result: the first row of a key sees one row, the second two, all others three."""
    orders, found = _rows(root, "orders"), _written(root)
    sizes = orders.groupby("item", dropna=False).size()
    wanted = Counter(
        (_plain(item), min(at, 3)) for item, size in sizes.items() for at in range(1, size + 1)
    )
    assert Counter(zip(map(_plain, found["item"]), found["n"], strict=True)) == wanted


def _check_keys(root: Path) -> None:
    """Every key once."""
    orders, found = _rows(root, "orders"), _written(root)
    once = Counter(_plain(item) for item in orders["item"].drop_duplicates())
    assert Counter(map(_plain, found["item"])) == once


def _check_matches(root: Path) -> None:
    """All combinations within two minutes, tried one by one."""
    orders, prices, stock = (
        _rows(root, stream).reset_index(drop=True) for stream in ("orders", "prices", "stock")
    )
    near = (orders["amount"].to_numpy()[:, None] - prices["price"].to_numpy()[None, :]) ** 2 < 0.09
    apart = orders["ts"].to_numpy()[:, None] - prices["ts"].to_numpy()[None, :]
    i, j = np.nonzero(near & (np.abs(apart) < np.timedelta64(2, "m")))
    pairs = pd.concat(
        [
            orders.iloc[i].rename(columns={"ts": "orders_ts"}).reset_index(drop=True),
            prices.iloc[j].rename(columns={"ts": "prices_ts"}).reset_index(drop=True),
        ],
        axis=1,
    )
    pairs["rest"], stock["rest"] = pairs["ref"] % 50, stock["key"] % 50
    whole = pairs.dropna(subset=["rest"]).merge(stock.dropna(subset=["rest"]), on="rest")
    times = whole[["orders_ts", "prices_ts", "ts"]]
    whole = whole[times.max(axis=1) - times.min(axis=1) < pd.Timedelta(minutes=2)]
    assert_same_rows(_matched(_written(root)), _matched(whole))


def _matched(rows: pd.DataFrame) -> Counter[tuple[object, ...]]:
    items = [_plain(item) for item in rows["item"]]
    others = (rows[column].tolist() for column in ("amount", "price", "place"))
    return Counter(zip(items, *others, strict=True))


CHECKS: dict[str, Callable[[Path], None]] = {
    "group-by": _check_totals,
    "windowed": _check_windows,
    "dedup": _check_keys,
    "match": _check_matches,
}


def _plain(item: Any) -> int | None:
    return None if pd.isna(item) else int(item)


def _rows(root: Path, stream: str) -> pd.DataFrame:
    paths = sorted((root / "in" / stream).glob("*.parquet"))
    return pd.concat([pq.read_table(path).to_pandas() for path in paths])


def _written(root: Path) -> pd.DataFrame:
    paths = sorted((root / "out").glob("b*.parquet"), key=lambda path: batch_of(path.name))
    return pd.concat([pq.read_table(path).to_pandas() for path in paths])


def _logged(root: Path) -> int:
    log = root / "checkpoint/spillway/log"
    return max((int(p.name.split(".")[0]) for p in log.glob("*.json")), default=-1)


def _born(stack: ExitStack, root: Path, number: int, kind: str, adapt: dict[str, Any]) -> Child:
    arguments = [kind, str(root), str(root / f"ready-{number}"), json.dumps(adapt)]
    child = Child("operators_child.py", arguments, root / "scratch")
    stack.callback(child.close)
    return child

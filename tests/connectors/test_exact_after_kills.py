"""Drivers die by SIGKILL around every write and commit; the place has every row once all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from artifacts import jars, other_spark
from database import Database
from inputs import SCHEMAS, Input, assert_same_rows, columns_of, counted
from places import PLACES, POINTS, Life
from processes import Child, wait_until

from spillway.checkpoint.log import Log
from spillway.state.runs.durable import open_durable

SECONDS = 240
TOTALS = ["item", "n", "total", "least", "newest"]


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("place", "merge"),
    [
        pytest.param(place, merge, id=f"{place}-{'merge' if merge else 'append'}")
        for place in PLACES
        for merge in (False, True)
        if not (merge and place == "whole batches")
    ],
)
def test_driver_killed_at_every_point_loses_and_repeats_no_row(
    request: pytest.FixtureRequest, tmp_path: Path, place: str, merge: bool
) -> None:
    """Each life dies at another point of its second write; rounds of cleanup lie between."""
    address, read = _reader(request, place, tmp_path)
    given = Input(str(tmp_path / "in"), files=8, rows=100, keys=100, seed=5)
    given.write()
    conf = {"spark.jars": ",".join(jars(PLACES[place].needs))} if PLACES[place].needs else {}
    first = Life(str(tmp_path), 0, given, place, merge, address, conf=conf)
    lives = [replace(first, number=at, dies=(point, 1 + at % 2)) for at, point in enumerate(POINTS)]
    _live([*lives, replace(first, number=len(lives))])
    _check(given, read(), merge)
    state = Log(open_durable(str(tmp_path / "checkpoint/spillway"))).latest()
    assert state is not None
    assert state.rounds > 0, "no round of cleanup lay between the batches"
    assert not state.pending


def _live(lives: list[Life]) -> None:
    """Runs the lives; the session of the next one starts while one runs."""
    with ExitStack() as stack:
        coming = _born(stack, lives[0])
        for at, life in enumerate(lives):
            child = coming
            if at + 1 < len(lives):
                coming = _born(stack, lives[at + 1])
            child.tell("go")
            told = life.file("dead" if life.dies else "done")
            assert wait_until(told.exists, SECONDS, child=child), f"{life.dies}\n{child.told()}"
            wait_until(lambda child=child: not child.running, 60)
            # Workers of an odd life go on for as long as they like.
            child.kill(workers=at % 2 == 0)


def _born(stack: ExitStack, life: Life) -> Child:
    place = PLACES[life.place]
    environment = {"PYTHONPATH": other_spark(place.spark)} if place.spark else {}
    script = str(Path(__file__).with_name("place_child.py"))
    child = Child(script, [life.text()], Path(life.root, "scratch"), environment)
    stack.callback(child.close)
    return child


def _reader(request: pytest.FixtureRequest, place: str, root: Path) -> tuple[str, Any]:
    if place != "postgres":
        return "", partial(_exported, root / "out")
    database: Database = request.getfixturevalue("database")
    return database.url, partial(_stored, database)


def _exported(out: Path) -> pd.DataFrame:
    return pq.read_table(out).to_pandas()


def _stored(database: Database) -> pd.DataFrame:
    import psycopg

    with psycopg.connect(database.url) as connection:
        cursor = connection.execute("SELECT * FROM results")
        columns = [one.name for one in cursor.description or ()]
        found = pd.DataFrame(cursor.fetchall(), columns=columns)
        left = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'spillway_stage%'"
        assert connection.execute(left).fetchone() == (0,), "staging tables were left behind"
    return found


def _check(given: Input, found: pd.DataFrame, merge: bool) -> None:
    if not merge:
        assert_same_rows(counted(found, columns_of(SCHEMAS)), given.expected())
        return
    rows = given.admitted(("orders",), timed=False, null_keys=True).rows["orders"]
    grouped = rows.groupby("item", dropna=False)
    totals = grouped.agg(
        n=("ts", "size"), total=("amount", "sum"), least=("amount", "min"), newest=("ts", "max")
    ).reset_index()
    kept = totals[totals["n"] % 5 != 0]
    assert 0 < len(kept) < len(totals)
    assert kept["item"].isna().any() or totals["item"].isna().any()
    wanted = counted(kept, TOTALS)
    assert_same_rows(Counter(_typed(counted(found, TOTALS))), Counter(_typed(wanted)))


def _typed(rows: Counter[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """Whole numbers as such: a column with NULL comes as floats from pandas."""
    for row, times in rows.items():
        plain = tuple(int(v) if isinstance(v, float) and v.is_integer() else v for v in row)
        yield from [plain] * times

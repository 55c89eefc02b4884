"""What each query must give, row by row and with all columns; and what it must count.

The files of each batch are known, and so is the order of rows: by batch, then by time (NULL first),
then by content. Results that append are compared as multisets. A group-by gives totals: each
must be the total of its key after some batch, come once, and the last one must be there.

`times` is how often a sink may have a batch: 1, or more if it appends and drivers died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pandas as pd
from inputs import SCHEMAS, Input, assert_same_rows, columns_of, counted, plain
from queries import KINDS, LAST

from spillway.coordinator.batch.committed import Committed

Tuple = tuple[Any, ...]
TOTALS = ("item", "n", "total", "least", "newest")
WINDOWS = ("item", "ts", "n", "total", "least")
ORDERS = ("item", "ts", "amount")
FULL = ("item", "amount", "orders_ts", "ref", "price", "prices_ts")
MATCHES = (
    *("item", "amount", "orders_ts", "price", "ref", "prices_ts"),
    *("key", "place", "stock_ts"),
)


def check_output(kind: str, given: Input, found: pd.DataFrame, times: int = 1) -> int:
    """Raises unless the output is that of the batch query; returns how many rows were compared."""
    _CHECKS[kind](given, found, times)
    return len(found)


def check_counts(kind: str, given: Input, states: list[Committed]) -> None:
    """Raises unless every input row was counted once: as one that was taken, as late, or as NULL.

    Each stage must have taken what the one before it gave.
    """
    query, first = KINDS[kind], states[0]
    wanted = given.admitted(query.streams, timed=query.timed, null_keys=query.null_keys)
    got = (first.rows_in, first.rows_late, first.rows_null)
    exact = (wanted.rows_in, wanted.rows_late, wanted.rows_null)
    assert got == exact, f"rows in, late and NULL are {got} instead of {exact}"
    whole = given.files * given.rows
    sums = [a + b for a, b in zip(first.rows_in, first.rows_null, strict=True)]
    assert set(sums) == {whole}, f"{sums} rows were counted of {whole}"
    for before, after in pairwise(states):
        assert after.rows_in == (before.rows_out,), (after.rows_in, before.rows_out)


def _check_join(streams: tuple[str, ...]) -> Callable[[Input, pd.DataFrame, int], None]:
    def check(given: Input, found: pd.DataFrame, times: int) -> None:
        got = counted(found, columns_of(streams))
        assert_same_rows(got, given.expected(streams=streams), times)

    return check


def _check_full(given: Input, found: pd.DataFrame, times: int) -> None:
    """The pairs within the window; and the rows without a partner that the watermark has passed."""
    taken = given.admitted(("orders", "prices"), timed=True)
    rows = {name: _stamped(name, some) for name, some in taken.rows.items()}
    numbered = [some.reset_index(names=f"{name} at") for name, some in rows.items()]
    pairs = numbered[0].merge(numbered[1], left_on="item", right_on="ref")
    pairs = given.within(pairs, tuple(rows))
    wanted = counted(pairs, FULL)
    for name, some in rows.items():
        alone = some[~some.index.isin(pairs[f"{name} at"])]
        ended = alone[f"{name}_ts"] + pd.Timedelta(minutes=given.window_minutes or 0)
        for part in (alone[ended <= taken.watermark], _stamped(name, taken.apart[name])):
            wanted += counted(part.reindex(columns=FULL), FULL)
    assert len(pairs) < wanted.total()
    assert_same_rows(counted(found, FULL), wanted, times)


def _stamped(name: str, rows: pd.DataFrame) -> pd.DataFrame:
    renamed = rows.rename(columns={"ts": f"{name}_ts"})
    return renamed.drop(columns="batch").reset_index(drop=True)


def _check_totals(given: Input, found: pd.DataFrame, times: int) -> None:
    allowed: set[Tuple] = set()
    known: dict[Any, Tuple] = {}
    for _, rows in groupby(_ordered(given, timed=False), key=lambda row: row[0]):
        touched = [_add(known, item, ts, amount) for _, item, ts, amount in rows]
        allowed |= {(item, *known[item]) for item in touched}
    got = counted(found, TOTALS)
    assert len(known) > 20
    assert not (wrong := got.keys() - allowed), f"not a total after a batch: {list(wrong)[:3]}"
    _assert_last(got, known, times)


def _add(known: dict[Any, Tuple], item: Any, ts: int | None, amount: int) -> Any:
    """Adds a row to the totals of its key, and returns the key."""
    n, total, least, newest = known.get(item, (0, 0, amount, None))
    newest = max((time for time in (newest, ts) if time is not None), default=None)
    known[item] = (n + 1, total + amount, min(least, amount), newest)
    return item


def _assert_last(got: Counter[Tuple], known: dict[Any, Tuple], times: int) -> None:
    assert not (missing := {(item, *total) for item, total in known.items()} - got.keys()), (
        f"{len(missing)} of {len(known)} keys lack their last total: {list(missing)[:3]}"
    )
    often = [row for row, count in got.items() if count > times]
    assert not often, f"{len(often)} totals came more than {times} times: {often[:3]}"


def _check_chain(given: Input, found: pd.DataFrame, times: int) -> None:
    """Which results a step of the join gives is open; so totals only grow, up to the last ones."""
    joined = given.joined(("orders", "prices"))
    last = joined.groupby("item").agg(
        n=("price", "size"),
        total=("price", "sum"),
        least=("amount", "min"),
        newest=("prices_ts", "max"),
    )
    rows = zip(*(plain(last.reset_index()[column]) for column in TOTALS), strict=True)
    known = {item: tuple(rest) for item, *rest in rows}
    got = counted(found, TOTALS)
    _assert_last(got, known, times)
    by_count = sorted(got, key=lambda row: (row[0], row[1]))
    for item, totals in groupby(by_count, key=lambda row: row[0]):
        _assert_grows(item, list(totals))
    if found["sink_id"].notna().all():
        grows = found.groupby("item")["n"].diff().dropna() > 0
        assert grows.all(), "an older total came after a newer one"
        assert not found.duplicated(["item", "sink_id"]).any(), "a step gave a key twice"


def _assert_grows(item: Any, totals: list[Tuple]) -> None:
    """Raises unless the totals of a key, by count, can be those of one row set after the other."""
    for (_, n, total, least, newest), (_, *after) in pairwise(totals):
        fits = after[0] > n and after[1] >= total and after[2] <= least and after[3] >= newest
        assert fits, f"totals of {item} do not grow: {(n, total, least, newest)}, {after}"


def _check_windows(given: Input, found: pd.DataFrame, times: int) -> None:
    """Every row has a result: over itself and the rows of its key before it."""
    wanted = Counter(
        (item, ts, *_sums(seen[-LAST:])) for item, ts, _, seen in _histories(given, timed=False)
    )
    assert_same_rows(counted(found, WINDOWS), wanted, times)


def _check_ranges(given: Input, found: pd.DataFrame, times: int) -> None:
    """Every row that is not late has a result, over the rows before it within the window."""
    width = _window_us(given)
    wanted = Counter(
        (item, ts, *_sums([(t, v) for t, v in seen if ts - width < t <= ts]))
        for item, ts, _, seen in _histories(given, timed=True)
    )
    assert_same_rows(counted(found, WINDOWS), wanted, times)


def _check_firsts(given: Input, found: pd.DataFrame, times: int) -> None:
    """The first row of every key."""
    firsts = [
        (item, ts, amount)
        for item, ts, amount, seen in _histories(given, timed=False)
        if len(seen) == 1
    ]
    assert_same_rows(counted(found, ORDERS), Counter(firsts), times)


def _check_intervals(given: Input, found: pd.DataFrame, times: int) -> None:
    """The first row of every key in every interval."""
    width = _window_us(given)
    firsts: dict[Tuple, Tuple] = {}
    for item, ts, amount, _ in _histories(given, timed=True):
        firsts.setdefault((item, ts // width), (item, ts, amount))
    assert_same_rows(counted(found, ORDERS), Counter(firsts.values()), times)


def _check_matches(given: Input, found: pd.DataFrame, times: int) -> None:
    """All combinations within the window, tried one by one."""
    taken = given.admitted(tuple(SCHEMAS), timed=True, null_keys=True).rows
    orders, prices, stock = (
        rows.rename(columns={"ts": f"{name}_ts"}).drop(columns="batch").reset_index(drop=True)
        for name, rows in taken.items()
    )
    apart = orders["amount"].to_numpy()[:, None] - prices["price"].to_numpy()[None, :]
    i, j = np.nonzero(np.abs(apart) < 0.3)
    pairs = [rows.iloc[at].reset_index(drop=True) for rows, at in ((orders, i), (prices, j))]
    whole = given.within(pd.concat(pairs, axis=1), ("orders", "prices"))
    whole = whole.assign(rest=whole["ref"] % 50).dropna(subset=["rest"])
    stock = stock.assign(rest=stock["key"] % 50).dropna(subset=["rest"])
    whole = given.within(whole.merge(stock, on="rest"), tuple(SCHEMAS))
    assert_same_rows(counted(found, MATCHES), counted(whole, MATCHES), times)


def _ordered(given: Input, *, timed: bool) -> list[Tuple]:
    """The rows of orders that are not late, as (batch, item, time, amount), in their order."""
    rows = given.admitted(("orders",), timed=timed, null_keys=True).rows["orders"]
    columns = (plain(rows[column]) for column in ("batch", *ORDERS))
    known = zip(*columns, strict=True)
    return sorted(known, key=lambda row: (row[0], row[2] is not None, row[2] or 0, row[3]))


def _histories(given: Input, *, timed: bool) -> Iterator[Tuple]:
    """Each row of orders, and the times and amounts of its key so far, with its own."""
    seen: dict[Any, list[Tuple]] = {}
    for _, item, ts, amount in _ordered(given, timed=timed):
        mine = seen.setdefault(item, [])
        mine.append((ts, amount))
        yield item, ts, amount, mine


def _sums(rows: Iterable[Tuple]) -> Tuple:
    amounts = [amount for _, amount in rows]
    return len(amounts), sum(amounts), min(amounts)


def _window_us(given: Input) -> int:
    assert given.window_minutes is not None
    return given.window_minutes * 60_000_000


_ALL = tuple(SCHEMAS)
_CHECKS: dict[str, Callable[[Input, pd.DataFrame, int], None]] = {
    "two streams": _check_join(("orders", "prices")),
    "three streams": _check_join(_ALL),
    "full": _check_full,
    "tree": _check_join(_ALL),
    "group-by": _check_totals,
    "windowed": _check_windows,
    "range": _check_ranges,
    "dedup": _check_firsts,
    "intervals": _check_intervals,
    "match": _check_matches,
    "chained": _check_chain,
}

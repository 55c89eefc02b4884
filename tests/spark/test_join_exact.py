"""The whole output equals a batch join of the whole input, whatever the rows are like."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from scenario import Scenario

from spillway import join
from spillway.operators.base import OperatorStats, StreamColumns
from spillway.operators.join import JoinOperator
from spillway.state.run import RunData
from spillway.testing import FileStream, assert_same_rows, multiset_difference, oracle

NAN = float("nan")


@pytest.fixture
def elsewhere(spark: SparkSession) -> SparkSession:
    """A session of its own, in a zone that is not UTC and has summer time."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session


# --- keys that are even, skewed, duplicated, NULL; streams that are empty or silent ---------------


@dataclass(frozen=True)
class Load:
    """The rows of a test: how many streams, how their keys are spread."""

    streams: int
    rows: int
    keys: int
    #: Part of the rows that have the one hot key.
    hot: float = 0.0
    batches: int = 5

    def names(self) -> list[str]:
        return [f"s{number}" for number in range(self.streams)]

    def fill(self, scenario: Scenario) -> None:
        """Batches with NULL keys and duplicate rows; one has no row, one stream is silent at first."""
        random_ = random.Random(self.streams * 1000 + self.keys)
        for batch in range(self.batches):
            silent = {self.names()[-1]} if batch < 2 else set(self.names()) if batch == 3 else set()
            scenario.add(**{n: self._rows(random_) for n in self.names() if n not in silent})

    def _rows(self, random_: random.Random) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = [
            (self._key(random_), random_.randrange(10), random_.choice(["", "x", "ü" * 9, None]))
            for _ in range(self.rows)
        ]
        return rows + random_.sample(rows, self.rows // 10)

    def _key(self, random_: random.Random) -> int | None:
        if random_.random() < 0.05:
            return None
        return 7 if random_.random() < self.hot else random_.randrange(self.keys)


LOADS = {
    "2 streams, uniform": (Load(2, 400, 300), {}),
    "2 streams, one hot key": (Load(2, 200, 100, hot=0.5), {"block_rows": 100}),
    "3 streams, skewed": (Load(3, 100, 60, hot=0.1), {"memory": "8kB", "piece_bytes": "2kB"}),
    "5 streams, uniform": (Load(5, 50, 80), {"slots": 3}),
}


@pytest.mark.parametrize("case", LOADS)
def test_output_equals_the_batch_join(spark: SparkSession, tmp_path: Path, case: str) -> None:
    load, adapt = LOADS[case]
    scenario = Scenario(spark, tmp_path, **dict.fromkeys(load.names(), "k bigint, v int, t string"))
    load.fill(scenario)
    joined = scenario.join().on("k")
    query = scenario.run(joined, **adapt)

    scenario.check(joined)
    progress = query.recentProgress
    assert sum(not entry["cleanupRound"] for entry in progress) == load.batches
    assert sum(entry["rowsOut"] for entry in progress) == scenario.output(joined).count() > 1000
    with_key = {n: s.batch().where("k is not null").count() for n, s in scenario.streams.items()}
    assert {n: sum(entry["rowsIn"][n] for entry in progress) for n in with_key} == with_key
    assert progress[-1]["stateRows"] == sum(with_key.values())


def test_merging_of_many_small_batches_loses_no_row(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a="k int, v int", b="k int, v int")
    random_ = random.Random(1)
    for _ in range(11):
        a, b = ([(random_.randrange(40), random_.randrange(9)) for _ in range(20)] for _ in "ab")
        scenario.add(a=a, b=b)
    joined = scenario.join().on("k")
    last = scenario.run(joined).recentProgress[-1]

    scenario.check(joined)
    assert all(layers <= 4 for slot in last["slots"] for layers in slot["layers"].values())
    assert last["stateRows"] == 2 * 11 * 20
    scenario.check_files(slots=2)


def test_keys_that_share_a_hash_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    hashes = spark.range(400_000).select("id", F.shiftright(F.xxhash64("id"), 32).alias("h"))
    shared = hashes.groupBy("h").agg(F.collect_list("id").alias("ids")).where("size(ids) > 1")
    keys = [key for row in shared.collect() for key in row["ids"]]
    assert len(keys) >= 4
    scenario = Scenario(spark, tmp_path, a="k bigint, v int", b="k bigint, v int")
    scenario.add(a=[(key, 1) for key in keys], b=[(key, 2) for key in keys])
    scenario.add(a=[(key, 3) for key in keys], b=[(key, 4) for key in keys])
    joined = scenario.join().on("k")
    scenario.run(joined)

    scenario.check(joined)
    assert scenario.output(joined).count() == 4 * len(keys)


def test_stream_read_twice_is_joined_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a="k bigint, parent bigint")
    scenario.add(a=[(1, None), (2, 1), (3, 1)])
    scenario.add(a=[(4, 2), (5, 2)])
    child, parent = scenario.streams["a"].stream(), scenario.streams["a"].stream()
    joined = join(child=child, parent=parent).on(child="parent", parent="k")
    scenario.run(joined)

    rows = scenario.output(joined).select("child.k", "parent.k").collect()
    assert sorted(tuple(row) for row in rows) == [(2, 1), (3, 1), (4, 2), (5, 2)]


# --- types ----------------------------------------------------------------------------------------

KEY_CASES: dict[str, tuple[str, list[Any], str, list[Any]]] = {
    "int and bigint": ("int", [1, -1, 2**31 - 1, None], "bigint", [1, -1, 2**31 - 1, 2**40, None]),
    "decimals of two scales": (
        "decimal(10,2)",
        [Decimal("1.50"), Decimal("-0.25"), Decimal("99999999.99")],
        "decimal(12,4)",
        [Decimal("1.5000"), Decimal("1.5001"), Decimal("-0.2500"), Decimal("99999999.9900")],
    ),
    "float and double": (
        "float",
        [NAN, 0.0, -0.0, 1.5, float("inf"), None],
        "double",
        [NAN, -NAN, 0.0, -0.0, 1.5, float("inf"), float("-inf"), None],
    ),
    "timestamps": (
        "timestamp",
        [dt.datetime(2024, 3, 10, 7), dt.datetime(2024, 3, 10, 6, 59, 59, 999_999)],
        "timestamp",
        [dt.datetime(2024, 3, 10, 7), dt.datetime(2024, 3, 10, 6, 59, 59, 999_998)],
    ),
    "dates": ("date", [dt.date(2024, 2, 29), dt.date(1969, 1, 1)], "date", [dt.date(1969, 1, 1)]),
}


@pytest.mark.parametrize("case", KEY_CASES)
def test_keys_are_equal_where_sql_says_so(spark: SparkSession, tmp_path: Path, case: str) -> None:
    left_type, left, right_type, right = KEY_CASES[case]
    scenario = Scenario(spark, tmp_path, a=f"k {left_type}, v int", b=f"v int, k {right_type}")
    for batch in range(2):
        a = [(key, batch) for key in left]
        scenario.add(a=a, b=[(batch, key) for key in right])
    joined = scenario.join().on("k")
    scenario.run(joined)

    scenario.check(joined)
    assert scenario.output(joined).count() > 0


def test_composite_keys_of_other_names_and_types_are_joined(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(
        spark,
        tmp_path,
        orders="id string, region binary, paid boolean, note string",
        payments="paid boolean, amount decimal(10,2), order_id string, area binary",
        refunds="area binary, order string, settled boolean, at date",
    )
    random_ = random.Random(5)

    def key() -> tuple[str | None, bytes | None, bool | None]:
        names, areas = ["", "a", "ab", "abc", None], [b"", b"\x00", b"\x00\x01", b"c", None]
        return random_.choice(names), random_.choice(areas), random_.choice([True, False, None])

    for _ in range(3):
        orders = [(*key(), "note") for _ in range(60)]
        payments = [(k[2], Decimal("9.99"), k[0], k[1]) for k in (key() for _ in range(60))]
        refunds = [(k[1], k[0], k[2], dt.date(2024, 1, 1)) for k in (key() for _ in range(60))]
        scenario.add(orders=orders, payments=payments, refunds=refunds)
    joined = scenario.join().on(
        orders=("id", "region", "paid"),
        payments=("order_id", "area", "paid"),
        refunds=("order", "area", "settled"),
    )
    scenario.run(joined)

    scenario.check(joined)
    assert scenario.output(joined).count() > 100


def test_columns_and_streams_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    odd = (
        "`we.ird` int, `_h` int, lane0 string, `_stream` string, `K` int, `a``b` struct<`x.y`:int>"
    )
    scenario = Scenario(spark, tmp_path, **{"bank 1": odd, "größe": odd})
    rows = [(n % 5, n, "lane", "stream", n % 3, {"x.y": n}) for n in range(30)]
    scenario.add(**{"bank 1": rows, "größe": rows[:20]})
    scenario.add(**{"bank 1": rows[:9], "größe": rows})
    joined = scenario.join().on("we.ird", "k").where("`bank 1`.`a``b`.`x.y` < `größe`.`_h`")
    scenario.run(joined)

    expected = scenario.expected(joined).where("`bank 1`.`a``b`.`x.y` < `größe`.`_h`")
    assert scenario.output(joined).count() > 20
    assert_same_rows(scenario.output(joined), expected)


PAYLOAD = """k bigint, s string, d decimal(38,10), small decimal(5,2), day date, at timestamp,
    ntz timestamp_ntz, raw binary, yes boolean, tiny tinyint, short smallint, f float, x double,
    st struct<a:int,b:struct<c:string,at:timestamp>>, ar array<string>, times array<timestamp>,
    m map<string,int>, deep map<string,array<struct<q:double,at:timestamp>>>,
    gap interval day to second"""


def payload(k: int, at: dt.datetime) -> tuple[Any, ...]:
    """A row with a value of every type, or NULLs where k is odd, or empty things where it is 4."""
    if k % 2:
        return (k, *(None,) * 18)
    some = k != 4
    return (
        k,
        "größe" if some else "",
        Decimal("12345678901234567890.0123456789") if some else Decimal(0),
        Decimal("-12.34"),
        dt.date(1582, 10, 15) if some else dt.date(1970, 1, 1),
        at,
        at,
        b"\x00\xff" if some else b"",
        some,
        -128,
        32767,
        NAN if some else -0.0,
        1e300,
        {"a": k, "b": {"c": "c", "at": at} if some else None},
        ["a", None, ""] if some else [],
        [at, None] if some else [],
        {"z": 1, "a": None} if some else {},
        {"x": [{"q": NAN, "at": at}, None], "y": None} if some else {},
        dt.timedelta(days=-1, microseconds=1),
    )


def test_every_type_passes_through_the_state_in_any_zone(
    spark: SparkSession, elsewhere: SparkSession, tmp_path: Path
) -> None:
    schemas = {"a": PAYLOAD, "b": f"{PAYLOAD}, extra string"}
    scenario = Scenario(elsewhere, tmp_path, **schemas)
    summer = dt.datetime(2024, 3, 10, 6, 59, 59, 123_456)
    for batch in range(2):
        at = summer + dt.timedelta(hours=batch)
        scenario.add(
            a=[payload(k, at) for k in range(8)],
            b=[(*payload(k, at), "x") for k in range(1, 9)],
        )
    joined = scenario.join().on("k")
    scenario.run(joined, slots=1)
    scenario.check(joined)

    # The runs of both zones are merged: nine layers are more than a level holds.
    scenario = Scenario(spark, tmp_path, **schemas)
    for batch in range(7):
        rows = [payload(k, summer - dt.timedelta(days=batch)) for k in range(batch, batch + 3)]
        scenario.add(a=rows, b=[(*row, None) for row in rows])
    joined = scenario.join().on("k")
    progress = scenario.run(joined, slots=1).recentProgress
    scenario.check(joined)
    assert any(slot["rowsMerged"] for entry in progress for slot in entry["slots"])


# --- windows and late rows ------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """How the streams of a windowed test run: minutes of window and lateness, per stream."""

    windows: tuple[int, ...]
    lateness: tuple[int, ...]
    kind: str = "timestamp"
    zone: str = "UTC"

    def names(self) -> list[str]:
        return [f"s{number}" for number in range(len(self.windows))]


TIMINGS = {
    "equal windows over a change of the clock": Timing((10, 10), (2, 2), zone="America/New_York"),
    "unequal windows": Timing((4, 12, 7), (0, 3, 1), kind="timestamp_ntz"),
}
#: Two batches before the clocks of New York jump from 2 to 3.
BEGIN = dt.datetime(2024, 3, 10, 6, 50)


def timed_batches(timing: Timing, batches: int) -> Iterator[dict[str, list[tuple[Any, ...]]]]:
    """Time goes on by five minutes a batch; one row in five is up to half an hour behind."""
    random_ = random.Random(len(timing.windows))
    for batch in range(batches):
        yield {
            name: []
            if batch == 3 and name == "s0"
            else [(random_.randrange(6), _moment(random_, batch), n) for n in range(40)]
            for name in timing.names()
        }


def _moment(random_: random.Random, batch: int) -> dt.datetime | None:
    if random_.random() < 0.03:
        return None
    behind = random_.uniform(0, 1800) if random_.random() < 0.2 else random_.uniform(0, 300)
    return BEGIN + dt.timedelta(minutes=5 * batch, microseconds=round(1e6 * (300 - behind)))


def without_late(
    timing: Timing, batches: list[dict[str, list[tuple[Any, ...]]]]
) -> tuple[list[dict[str, list[tuple[Any, ...]]]], list[dict[str, int]], list[dt.datetime | None]]:
    """A model of the watermark that shares nothing with the package: rows kept, late, marks."""
    newest: dict[str, dt.datetime] = {}
    mark: dt.datetime | None = None
    kept, late, marks = [], [], []
    for batch in batches:
        timely = {
            name: [row for row in rows if row[1] is not None and (mark is None or row[1] >= mark)]
            for name, rows in batch.items()
        }
        timed = {name: [row for row in rows if row[1] is not None] for name, rows in batch.items()}
        kept.append(timely)
        late.append({name: len(timed[name]) - len(timely[name]) for name in batch})
        for name, rows in timed.items():
            newest |= {name: max([row[1] for row in rows] + [newest.get(name, dt.datetime.min)])}
        if len([name for name in newest if newest[name] > dt.datetime.min]) == len(batch):
            bounds = [
                newest[name] - dt.timedelta(minutes=minutes)
                for name, minutes in zip(timing.names(), timing.lateness, strict=True)
            ]
            mark = max([min(bounds)] + ([] if mark is None else [mark]))
        marks.append(mark)
    return kept, late, marks


@pytest.mark.parametrize("case", TIMINGS)
def test_late_rows_are_dropped_and_counted_and_the_rest_is_exact(
    spark: SparkSession, elsewhere: SparkSession, tmp_path: Path, case: str
) -> None:
    timing = TIMINGS[case]
    session = spark if timing.zone == "UTC" else elsewhere
    schemas = dict.fromkeys(timing.names(), f"k int, ts {timing.kind}, v int")
    scenario = Scenario(session, tmp_path / "all", **schemas)
    timely = Scenario(session, tmp_path / "timely", **schemas)
    batches = list(timed_batches(timing, 11))
    kept, late, marks = without_late(timing, batches)
    for everything, in_time in zip(batches, kept, strict=True):
        scenario.add(**everything)
        timely.add(**in_time)
    minutes = dict(zip(timing.names(), timing.windows, strict=True))
    lateness = dict(zip(timing.names(), timing.lateness, strict=True))
    joined = (
        scenario.join()
        .on("k")
        .within(
            {name: f"{length} minutes" for name, length in minutes.items()},
            time="ts",
            lateness={name: f"{length} minutes" for name, length in lateness.items()},
        )
    )
    progress = scenario.run(joined).recentProgress

    assert_same_rows(scenario.output(joined), timely.expected(joined))
    assert scenario.output(joined).count() > 300
    assert [entry["rowsLate"] for entry in progress] == late
    assert sum(sum(counts.values()) for counts in late) > 20
    told = [
        None if mark is None else f"{mark.isoformat(timespec='milliseconds')}Z" for mark in marks
    ]
    assert [entry["watermark"] for entry in progress] == told
    # Rows leave with the layer they are in, which spans a part of the window at most.
    assert progress[-1]["stateRows"] < 0.5 * sum(len(r) for batch in kept for r in batch.values())


# --- where and select -----------------------------------------------------------------------------


def test_where_and_select_shape_the_rows_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a="k int, price double, t string", b="k int, price double")
    random_ = random.Random(3)
    for _ in range(2):
        a = [(random_.randrange(20), random_.random(), "x") for _ in range(80)]
        scenario.add(a=a, b=[(random_.randrange(20), random_.random()) for _ in range(80)])
    joined = (
        scenario.join()
        .on("k")
        .where("a.price < b.price")
        .filter(F.col("a.k") > 3)
        .select("b.price - a.price AS gain", F.col("a.t"), "a.k AS key", "b.*")
        .where("gain < 0.5")
    )
    scenario.run(joined)

    whole = scenario.expected(joined)
    shaped = whole.where("a.price < b.price AND a.k > 3 AND b.price - a.price < 0.5").selectExpr(
        "b.price - a.price AS gain", "a.t", "a.k AS key", "b.*"
    )
    assert joined.schema.names == ["gain", "t", "key", "k", "price"]
    assert scenario.output(joined).count() > 50
    assert_same_rows(scenario.output(joined), shaped)


# --- restart --------------------------------------------------------------------------------------


def test_restart_with_more_and_with_fewer_slots_loses_no_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    load = Load(3, 100, 80, hot=0.05, batches=3)
    scenario = Scenario(spark, tmp_path, **dict.fromkeys(load.names(), "k bigint, v int, t string"))
    used = []
    for slots in (2, 5, 1):
        load.fill(scenario)
        joined = scenario.join().on("k")
        progress = scenario.run(joined, slots=slots).recentProgress
        assert len(progress) == 3
        used.append(len(progress[-1]["slots"]))
        scenario.check(joined)
    assert used == [2, 5, 1]


def test_restart_after_a_stop_within_a_batch_loses_no_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    load = Load(2, 300, 200, batches=8)
    scenario = Scenario(spark, tmp_path, **dict.fromkeys(load.names(), "k bigint, v int, t string"))
    load.fill(scenario)
    joined = scenario.join().on("k")
    query = scenario.start(joined, trigger={"processingTime": "0 seconds"})
    while not query.recentProgress:
        query.awaitTermination(0.05)
    query.stop()
    assert query.exception() is None
    assert len(query.recentProgress) < 8
    scenario.run(scenario.join().on("k"))
    scenario.check(joined)


def test_restart_keeps_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a="k int, ts timestamp", b="k int, ts timestamp")
    on_time = [(1, BEGIN + dt.timedelta(minutes=30))]
    scenario.add(a=on_time, b=on_time)

    def joined() -> Any:
        return scenario.join().on("k").within("1 hour", time="ts", lateness="10 minutes")

    scenario.run(joined())
    scenario.add(a=[(1, BEGIN), (1, BEGIN + dt.timedelta(minutes=20))])
    progress = scenario.run(joined()).recentProgress
    assert [entry["rowsLate"] for entry in progress] == [{"a": 1, "b": 0}]
    assert scenario.output(joined()).count() == 2


# --- a hot key ------------------------------------------------------------------------------------


def test_hot_key_with_millions_of_combinations_leaves_in_bounded_batches() -> None:
    streams = [StreamColumns(name, ("k", "v"), (0, 1), (0,)) for name in "abc"]
    rows = 128
    deltas = [_run_of_one_key(rows) for _ in streams]
    stats = OperatorStats(16)
    total = 0
    for batch in JoinOperator(streams, block_rows=4096).terms([[], [], []], deltas, stats, {}):
        assert batch.num_rows <= 4096
        total += batch.num_rows
    assert total == rows**3 == stats.outputs.sum() > 2_000_000


def _run_of_one_key(rows: int) -> RunData:
    columns = {
        "_h": pa.array(np.full(rows, 7, np.uint32)),
        "c0": pa.array(np.zeros(rows, np.int64)),
        "c1": pa.array(np.arange(rows)),
    }
    return RunData(pa.record_batch(columns))


def test_smallest_blocks_lose_no_combination() -> None:
    streams = [StreamColumns(name, ("k", "v"), (0, 1), (0,)) for name in "ab"]
    deltas = [_run_of_one_key(5) for _ in streams]
    for block_rows in (1, 2, 3):
        join_ = JoinOperator(streams, block_rows)
        sizes = [b.num_rows for b in join_.terms([[], []], deltas, OperatorStats(4), {})]
        assert sum(sizes) == 25
        assert max(sizes) <= block_rows


def test_hot_key_with_millions_of_combinations_completes_exactly(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a="k int, v int", b="k int, v int")
    rows = [(1, n) for n in range(1450)]
    scenario.add(a=rows, b=rows)
    joined = scenario.join().on("k").select("a.v AS x", "b.v AS y")
    query = scenario.run(joined, block_rows=4096)

    assert query.recentProgress[-1]["rowsOut"] == 1450**2
    numbers = spark.range(1450)
    pairs = numbers.selectExpr("int(id) AS x").crossJoin(numbers.selectExpr("int(id) AS y"))
    assert_same_rows(scenario.output(joined), pairs)


# --- the oracle itself ----------------------------------------------------------------------------


def test_difference_counts_rows_as_often_as_they_differ(spark: SparkSession) -> None:
    schema = "x double, m map<string,map<int,double>>, a array<float>, s struct<`a.b`:string>"
    one = [(NAN, {"p": {2: -0.0, 1: NAN}, "q": {}}, [-0.0, NAN], ("x",)), (None, None, None, None)]
    same = [(NAN, {"q": {}, "p": {1: NAN, 2: 0.0}}, [0.0, NAN], ("x",)), (None, None, None, None)]
    a, b = spark.createDataFrame(one, schema), spark.createDataFrame(same, schema)
    assert multiset_difference(a, b) == 0
    assert multiset_difference(a.union(a), b) == 2
    assert multiset_difference(a, b.where("x is null")) == 1
    with pytest.raises(AssertionError, match="0 rows are unexpected, 1 are missing") as raised:
        assert_same_rows(a.where("x is null"), b)
    assert "missing: {'x': nan" in str(raised.value)


def test_frames_of_different_columns_are_refused(spark: SparkSession) -> None:
    with pytest.raises(AssertionError, match="column 0 is id bigint in one frame and id string"):
        assert_same_rows(spark.range(1), spark.range(1).selectExpr("string(id) AS id"))
    with pytest.raises(AssertionError, match="one frame has 1 columns, the other 2"):
        assert_same_rows(spark.range(1), spark.range(1).selectExpr("id", "id AS other"))


def test_oracle_keeps_combinations_within_every_window(spark: SparkSession) -> None:
    def times(*seconds: int) -> Any:
        return spark.createDataFrame([(1, s) for s in seconds], "k int, s int").selectExpr(
            "k", "timestamp_seconds(s) AS ts"
        )

    frames = {"a": times(0, 100), "b": times(95, 110)}
    keys = {"a": ("k",), "b": ("k",)}
    windows = {"a": ("ts", 10_000_000), "b": ("ts", 100_000_000)}
    found = oracle(frames, keys, windows).selectExpr("unix_seconds(a.ts)", "unix_seconds(b.ts)")
    assert [tuple(row) for row in found.collect()] == [(100, 95)]
    assert oracle(frames, keys).count() == 4


def test_file_stream_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    FileStream(spark, tmp_path, "k int, v string").add([{"k": 1, "v": "a"}])
    again = FileStream(spark, tmp_path, "k int, v string")
    again.add()
    again.add(spark.createDataFrame([(2, "b")], "k int, v string"))
    assert [path.name for path in again.files] == [f"part-00000{n}.parquet" for n in range(3)]
    assert sorted(tuple(row) for row in again.batch().collect()) == [(1, "a"), (2, "b")]
    times = [path.stat().st_mtime for path in again.files]
    assert times == sorted(set(times))

"""A join whose results are grouped in the same job: QUERY 1 of DCAPE, exact whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway import GroupBy, PlanError, Query
from spillway.coordinator.batch.committed import Committed
from spillway.metrics.events import Spilled
from spillway.spark.runtime import loop
from spillway.spark.runtime.host import SparkHost
from spillway.testing import FileStream, assert_same_rows, oracle
from tier import LONGEST_S, few

BANKS = ("bank1", "bank2", "bank3")


class Banks:
    """Three streams of offers, and what each broker has in those that all banks have."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.streams = {
            name: FileStream(spark, root / name, "offer bigint, broker string, price bigint")
            for name in BANKS
        }
        self.given: dict[int, list[Any]] = {}

    def add(self, rows: int, seed: int, offers: int = 60) -> None:
        rng = np.random.default_rng(seed)
        for stream in self.streams.values():
            columns = rng.integers(0, offers, rows), rng.integers(0, 9, rows)
            prices = rng.integers(1, 1000, rows)
            brokers = [None if one == 0 else f"broker {one}" for one in columns[1].tolist()]
            stream.add(list(zip(columns[0].tolist(), brokers, prices.tolist(), strict=True)))

    def query(self, **own: object) -> GroupBy:
        joined = sw.join(**{name: s.stream() for name, s in self.streams.items()}).on("offer")
        return (
            joined.adapt(**own)
            .where("bank1.price < 900")
            .group_by("bank1.broker")
            .agg(
                cheapest=sw.min("bank2.price"),
                offers=sw.count(),
                total=sw.sum("bank3.price + bank1.price"),
            )
        )

    def start(self, query: GroupBy, **adapt: Any) -> Query:
        def keep(rows: DataFrame, batch: int) -> None:
            self.given[batch] = rows.collect()

        return (
            query.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.root / "checkpoint"))
            .adapt(**({"slots": 2, "groups": 16} | adapt))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, query: GroupBy, **adapt: Any) -> Query:
        running = self.start(query, **adapt)
        assert running.awaitTermination(LONGEST_S), "the query hangs"
        return running

    def check(self) -> None:
        """The newest results of each broker equal the batch query."""
        newest = {row["broker"]: row for b in sorted(self.given) for row in self.given[b]}
        rows = oracle(
            {name: stream.batch() for name, stream in self.streams.items()},
            dict.fromkeys(BANKS, ("offer",)),
        )
        expected = (
            rows.where("bank1.price < 900")
            .groupBy(F.col("bank1.broker").alias("broker"))
            .agg(
                F.min("bank2.price").alias("cheapest"),
                F.count("*").alias("offers"),
                F.sum(F.expr("bank3.price + bank1.price")).alias("total"),
            )
        )
        found = self.spark.createDataFrame(list(newest.values()), expected.schema)
        assert_same_rows(found, expected)


@pytest.fixture
def banks(spark: SparkSession, tmp_path: Path) -> Banks:
    return Banks(spark, tmp_path)


def test_results_of_a_join_are_grouped_in_the_same_job(banks: Banks) -> None:
    for seed in range(4):
        banks.add(80, seed)
    query = banks.run(banks.query(slots=3))
    banks.check()
    entry = query.recentProgress[-1]
    assert entry["operator"] == "n-way join"
    assert len(entry["slots"]) == 3
    [then] = entry["then"]
    assert then["operator"] == "group-by"
    assert len(then["slots"]) == 2
    assert then["rowsIn"]["joined"] > 0
    assert [line for line in query.describe().splitlines() if not line.startswith(" ")][:2] == [
        "n-way join",
        "group-by",
    ]


@pytest.mark.full
def test_restarts_with_other_slots_go_on_where_they_were(banks: Banks) -> None:
    for slots in (2, 1, 3):
        banks.add(60, slots)
        banks.run(banks.query(), slots=slots)
    banks.check()


def test_results_that_cleanup_makes_late_are_grouped_too(banks: Banks) -> None:
    for seed in range(6):
        banks.add(150, seed, offers=400)
    query = banks.run(banks.query(memory="20kB", strategy="spill-only"))
    assert any(isinstance(event, Spilled) for event in query.events)
    assert any(entry["cleanupRound"] for entry in query.recentProgress)
    banks.check()


def test_rows_wait_in_both_operators(banks: Banks) -> None:
    for seed in range(6):
        banks.add(100, seed)
    little = {"skew_buffer": "1MB", "batch_target": "1 millisecond"}
    query = banks.run(banks.query(slots=2, **little), **little)
    banks.check()
    entries = query.recentProgress
    assert any(entry["spooledRows"] for entry in entries)
    assert any(entry["then"][0]["spooledRows"] for entry in entries)


@pytest.mark.parametrize(
    "how",
    few(
        [
            {"strategy": "relocate-only", "relocation_batches": 1, "relocation_threshold": 0.99},
            {"skew_buffer": "1MB", "batch_target": "1 millisecond"},
        ],
        0,
    ),
)
def test_second_operator_finishes_after_the_cleanup_of_the_first(
    banks: Banks, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of the join are batches of the group-by: rows may wait there, and groups may move."""
    monkeypatch.setattr(loop, "ROUND_BYTES", 2_000)
    for seed in range(4):
        banks.add(120, seed, offers=300)
    query = banks.run(banks.query(memory="15kB", strategy="spill-only"), **how)
    assert any(entry["cleanupRound"] for entry in query.recentProgress)
    grouped = query._loop.stages[1].state
    assert (grouped.spooled_rows, grouped.moves) == (0, ())
    banks.check()


@pytest.fixture
def failing_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Makes commits of the operators that are named fail, each once, in its third step."""
    wanted: list[str] = []
    append = SparkHost.append

    def failing(self: SparkHost, state: Committed) -> None:
        operator = "group-by" if self.checkpoint.location.endswith("spillway-2") else "n-way join"
        if state.batch + state.rounds == 2 and operator in wanted:
            wanted.remove(operator)
            raise OSError("the disk is gone")
        append(self, state)

    monkeypatch.setattr(SparkHost, "append", failing)
    return wanted


@pytest.mark.parametrize("operator", few(["n-way join", "group-by"], 0))
@pytest.mark.parametrize("memory", few([None, "20kB"], 1))
def test_crash_between_the_commits_of_two_stages_loses_and_repeats_nothing(
    banks: Banks, failing_commit: list[str], operator: str, memory: str | None
) -> None:
    for seed in range(5):
        banks.add(120, seed, offers=300)
    failing_commit.append(operator)
    own = {} if memory is None else {"memory": memory, "strategy": "spill-only"}
    with pytest.raises(Exception, match="the disk is gone"):
        banks.run(banks.query(**own))
    assert not failing_commit
    banks.run(banks.query(**own))
    banks.check()


@pytest.mark.full
def test_slots_of_all_stages_change_while_the_query_runs(banks: Banks) -> None:
    for seed in range(6):
        banks.add(80, seed)
    query = banks.start(banks.query())
    query.scale(slots=3)
    assert query.awaitTermination(LONGEST_S)
    banks.check()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("bank1.brokr", "joined has no column 'bank1.brokr' to use as key"),
        ("bank1", "joined.bank1 is struct"),
        ("bank4.broker", "stream joined has no column 'bank4.broker' to use as key"),
    ],
)
def test_key_that_is_not_there_is_named(banks: Banks, key: str, said: str) -> None:
    banks.add(1, 0)
    joined = sw.join(**{name: s.stream() for name, s in banks.streams.items()}).on("offer")
    with pytest.raises(PlanError) as problem:
        joined.group_by(key)
    assert said in str(problem.value)


def test_keys_of_two_streams_with_one_name_are_refused_with_the_way_to_name_them(
    banks: Banks,
) -> None:
    banks.add(1, 0)
    joined = sw.join(**{name: s.stream() for name, s in banks.streams.items()}).on("offer")
    with pytest.raises(PlanError) as problem:
        joined.group_by("bank1.offer", "bank2.offer")
    assert problem.value.message == (
        "the keys bank1.offer and bank2.offer of group_by() would both be the column offer of the "
        "results"
    )
    assert problem.value.hint == (
        'give them other names first: .select("bank1.offer AS bank1_offer", '
        "\"bank2.offer AS bank2_offer\", ...).group_by('bank1_offer', 'bank2_offer')"
    )
    named = joined.select("bank1.offer AS bank1_offer", "bank2.offer AS bank2_offer")
    grouped = named.group_by("bank1_offer", "bank2_offer").agg(n=sw.count())
    assert grouped.schema.names == ["bank1_offer", "bank2_offer", "n"]

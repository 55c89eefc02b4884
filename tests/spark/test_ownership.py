"""Two queries on one checkpoint: the first stops, and the output is that of one."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from scenario import Scenario

from spillway.checkpoint.log import Log
from spillway.errors import QueryError
from spillway.state.runs.durable import open_durable
from spillway.testing import assert_same_rows
from tier import LONGEST_S


def test_query_whose_checkpoint_another_start_takes_over_stops(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The second starts while the first is inside its sink; only the lock file kept them apart."""
    scenario = Scenario(spark, tmp_path_factory.mktemp("two"), a="k int, x int", b="k int, y int")
    for batch in range(3):
        scenario.add(a=[(key, batch) for key in range(20)], b=[(key, -batch) for key in range(20)])
    joined = scenario.join().on("k")
    given: dict[int, DataFrame] = {}

    def keep(rows: DataFrame, number: int) -> None:
        if number in given:
            assert_same_rows(rows, given[number])
        else:
            given[number] = spark.createDataFrame(rows.collect(), rows.schema)

    def interrupted(rows: DataFrame, number: int) -> None:
        keep(rows, number)
        if number == 1:
            (scenario.checkpoint / "spillway" / "lock").unlink()
            # As another start does, on a machine that this one does not see.
            Log(open_durable(str(scenario.checkpoint / "spillway"))).take_over()

    first = scenario.start(joined, sink=interrupted)
    with pytest.raises(QueryError) as refused:
        first.awaitTermination(LONGEST_S)
    assert "another start has taken over the checkpoint at" in refused.value.message
    assert refused.value.message.endswith("epoch 2 after 1")
    second = scenario.start(joined, sink=keep)
    assert second.awaitTermination(LONGEST_S)
    assert sorted(given) == [0, 1, 2]
    whole = given[0].unionAll(given[1]).unionAll(given[2])
    assert_same_rows(whole, scenario.expected(joined))
    scenario.check_files(slots=2)

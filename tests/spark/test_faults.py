"""The output stays exact when tasks and sinks fail, and when files are damaged, lost or refused."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from scenario import Scenario

from spillway import Join, StateError
from spillway.testing import Fault, assert_same_rows
from tier import LONGEST_S, few

BATCHES = 3


@pytest.fixture
def scenario(spark: SparkSession, tmp_path: Path) -> Scenario:
    """Two streams of three batches; every batch completes rows of the ones before."""
    made = Scenario(spark, tmp_path, a="k int, v int, t string", b="k int, v int")
    grow(made, BATCHES)
    return made


def grow(scenario: Scenario, batches: int) -> None:
    random_ = random.Random(len(scenario.streams["a"].files))
    for _ in range(batches):
        a = [(random_.randrange(30), random_.randrange(5), "text" * 5) for _ in range(60)]
        scenario.add(a=a, b=[(random_.randrange(30), random_.randrange(5)) for _ in range(60)])


def joined(scenario: Scenario) -> Join:
    return scenario.join().on("k")


def check_and_count_files(scenario: Scenario) -> None:
    """The output is exact, and the durable tier has the files that are named, and no other."""
    scenario.check(joined(scenario))
    scenario.check_files(slots=2)


# --- tasks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "batch", "slot"),
    few([("before-runs", 0, 1), ("after-runs", 1, 0), ("after-manifest", 2, 1)], 2),
)
def test_failed_task_leaves_nothing_that_counts(
    scenario: Scenario, tmp_path: Path, point: str, batch: int, slot: int
) -> None:
    fault = Fault(point, batch, slot, str(tmp_path / "happened"))
    with pytest.raises(StreamingQueryException, match=f"fault placed {point} in batch {batch}"):
        scenario.run(joined(scenario), faults=(fault,))
    progress = scenario.run(joined(scenario), faults=(fault,)).recentProgress

    assert [entry["batchId"] for entry in progress] == list(range(batch, BATCHES))
    check_and_count_files(scenario)


def test_killed_worker_leaves_nothing_that_counts(scenario: Scenario, tmp_path: Path) -> None:
    fault = Fault("after-runs", 1, 1, str(tmp_path / "happened"), kill=True)
    with pytest.raises(StreamingQueryException):
        scenario.run(joined(scenario), faults=(fault,))
    scenario.run(joined(scenario), faults=(fault,))
    check_and_count_files(scenario)


# --- sinks ---------------------------------------------------------------------------------------


def writing_by_batch(scenario: Scenario) -> Callable[[DataFrame, int], None]:
    """A user's sink that is idempotent by batch, as foreachBatch must be."""

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(scenario.out / f"batch={batch}"))

    return write


def by_batch(scenario: Scenario) -> DataFrame:
    return scenario.output(joined(scenario)).select("a", "b")


def test_sink_that_fails_after_writing_is_called_again_with_the_same_rows(
    scenario: Scenario,
) -> None:
    write = writing_by_batch(scenario)
    calls: list[tuple[int, int]] = []

    def failing_once(rows: DataFrame, batch: int) -> None:
        write(rows, batch)
        calls.append((batch, rows.count()))
        if [at for at, _ in calls] == [0, 1]:
            raise OSError("the sink had enough")

    with pytest.raises(StreamingQueryException, match="the sink had enough"):
        scenario.run(joined(scenario), sink=failing_once)
    scenario.run(joined(scenario), sink=failing_once)

    assert [batch for batch, _ in calls] == [0, 1, 1, 2]
    assert calls[1] == calls[2]
    assert_same_rows(by_batch(scenario), scenario.expected(joined(scenario)))


def test_batch_that_was_committed_here_but_not_by_spark_is_not_written_again(
    scenario: Scenario,
) -> None:
    seen: list[int] = []
    write = writing_by_batch(scenario)

    def noting(rows: DataFrame, batch: int) -> None:
        seen.append(batch)
        write(rows, batch)

    scenario.run(joined(scenario), sink=noting)
    commits = scenario.checkpoint / "spark" / "commits"
    for name in (str(BATCHES - 1), f".{BATCHES - 1}.crc"):
        (commits / name).unlink(missing_ok=True)
    scenario.run(joined(scenario), sink=noting)

    assert seen == list(range(BATCHES))
    assert_same_rows(by_batch(scenario), scenario.expected(joined(scenario)))


def test_sink_that_evaluates_twice_sees_the_same_rows_twice(scenario: Scenario) -> None:
    write = writing_by_batch(scenario)
    counts: list[tuple[int, int]] = []

    def twice(rows: DataFrame, batch: int) -> None:
        write(rows, batch)
        written = scenario.spark.read.parquet(str(scenario.out / f"batch={batch}"))
        counts.append((rows.count(), written.count()))

    query = scenario.run(joined(scenario), sink=twice)
    assert all(first == second for first, second in counts)
    assert query.recentProgress[-1]["stateRows"] == 2 * 60 * BATCHES
    assert_same_rows(by_batch(scenario), scenario.expected(joined(scenario)))
    scenario.check_files(slots=2)


@pytest.mark.parametrize("shape", few(["coalesced", "after others", "both halves"], 2))
def test_sink_that_repartitions_gets_the_same_rows(scenario: Scenario, shape: str) -> None:
    """Spark then numbers the tasks in another way than the slots."""
    write = writing_by_batch(scenario)

    def reshaping(rows: DataFrame, batch: int) -> None:
        if shape == "coalesced":
            rows = rows.coalesce(1)
        elif shape == "after others":
            rows = rows.sparkSession.createDataFrame([], rows.schema).unionAll(rows)
        else:
            rows = rows.where("a.v < 2").unionAll(rows.where("a.v >= 2"))
        write(rows, batch)

    grow(scenario, 1)
    scenario.streams["a"].add([(1, 1, "t")])
    scenario.streams["b"].add([(1, 1), (1, 2)])
    progress = scenario.run(joined(scenario), sink=reshaping, slots=4).recentProgress
    assert_same_rows(by_batch(scenario), scenario.expected(joined(scenario)))
    assert progress[-1]["stateRows"] == 2 * 60 * (BATCHES + 1) + 3
    scenario.check_files(slots=4)


# --- damage and loss -----------------------------------------------------------------------------


@pytest.fixture
def fresh_workers(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Makes the next query run in new Python workers, which have no run open, as after a crash."""
    environment = spark.sparkContext.environment
    count = 0

    def renew() -> None:
        nonlocal count
        count += 1
        environment["SPILLWAY_TEST_WORKERS"] = f"{tmp_path.name}-{count}"

    yield renew
    environment.pop("SPILLWAY_TEST_WORKERS", None)


def leave_local_files(scenario: Scenario) -> list[Path]:
    """Runs all batches and dies like a killed driver: the memory tier keeps its runs."""
    memory, kept = scenario.root / "memory", scenario.root / "kept"
    query = scenario.start(
        joined(scenario),
        memory_dir=str(memory),
        trigger={"processingTime": "0 seconds"},
        sink=writing_by_batch(scenario),
    )
    query.processAllAvailable()
    shutil.copytree(memory, kept)
    query.stop()
    assert not list(memory.rglob("*.arrow"))
    shutil.copytree(kept, memory, dirs_exist_ok=True)
    return sorted(memory.rglob("*.arrow"))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def durable(scenario: Scenario, folder: str) -> list[Path]:
    return sorted((scenario.checkpoint / "spillway" / folder).iterdir())


def test_damaged_local_runs_are_restored_from_the_durable_tier(
    scenario: Scenario, fresh_workers: Callable[[], None]
) -> None:
    runs = leave_local_files(scenario)
    originals = {path: path.read_bytes() for path in runs}
    assert len(runs) >= 4
    for path, damage in zip(runs, (truncate, flip, empty), strict=False):
        damage(path)
    grow(scenario, 1)
    fresh_workers()
    contents: dict[Path, bytes] = {}
    write = writing_by_batch(scenario)

    def looking(rows: DataFrame, batch: int) -> None:
        write(rows, batch)
        contents.update({path: path.read_bytes() for path in runs})

    query = scenario.start(joined(scenario), memory_dir=str(scenario.root / "memory"), sink=looking)
    assert query.awaitTermination(LONGEST_S)
    assert sum(slot["restored"] for slot in query.recentProgress[0]["slots"]) == 3
    assert contents == originals
    assert_same_rows(by_batch(scenario), scenario.expected(joined(scenario)))


def test_lost_memory_tier_is_restored_from_the_durable_tier(
    scenario: Scenario, fresh_workers: Callable[[], None]
) -> None:
    scenario.run(joined(scenario), memory_dir=str(scenario.root / "memory"))
    assert not list((scenario.root / "memory").rglob("*.arrow"))
    grow(scenario, 1)
    fresh_workers()
    query = scenario.run(joined(scenario), memory_dir=str(scenario.root / "other"))
    assert sum(slot["restored"] for slot in query.recentProgress[0]["slots"]) > 0
    scenario.check(joined(scenario))


def test_memory_tier_lost_while_the_query_runs_is_no_loss(scenario: Scenario) -> None:
    memory = scenario.root / "memory"
    query = scenario.start(
        joined(scenario), memory_dir=str(memory), trigger={"processingTime": "0 seconds"}
    )
    query.processAllAvailable()
    shutil.rmtree(memory)
    grow(scenario, 2)
    query.processAllAvailable()
    query.stop()
    scenario.check(joined(scenario))


@pytest.mark.parametrize("damage", few([flip, Path.unlink], 0))
def test_damaged_durable_run_is_refused_by_name(
    scenario: Scenario, fresh_workers: Callable[[], None], damage: Callable[[Path], Any]
) -> None:
    scenario.run(joined(scenario))
    run = durable(scenario, "runs")[0]
    damage(run)
    grow(scenario, 1)
    fresh_workers()
    with pytest.raises(StateError) as raised:
        scenario.run(joined(scenario))
    found = "missing" if damage is Path.unlink else "damaged"
    assert raised.value.message == f"run {run.name} is {found} in the durable tier"
    assert str(scenario.checkpoint / "spillway") in str(raised.value.detail)
    assert str(raised.value.hint).startswith("restore the checkpoint directory from a backup")


def test_damaged_manifest_log_or_metadata_is_refused_by_name_before_the_stream_starts(
    scenario: Scenario,
) -> None:
    scenario.run(joined(scenario))
    manifest = durable(scenario, "manifests")[1]
    record = max(path for path in durable(scenario, "log") if path.suffix == ".json")
    metadata = scenario.checkpoint / "spillway" / "metadata.json"
    # A start takes over before it reads manifests, and then has a record of its own.
    named = {
        metadata: f"the metadata of the checkpoint at {metadata.parent} is damaged",
        record: f"log record log/{record.name} is damaged",
        manifest: f"manifest manifests/{manifest.name} is damaged",
    }
    for path, message in named.items():
        whole = path.read_bytes()
        for damage in (truncate, flip, empty):
            damage(path)
            with pytest.raises(StateError) as raised:
                scenario.start(joined(scenario))
            assert raised.value.message == message
            assert raised.value.hint == "restore the checkpoint directory from a backup"
            path.write_bytes(whole)
    manifest.unlink()
    with pytest.raises(StateError, match=f"manifest manifests/{manifest.name} is missing"):
        scenario.start(joined(scenario))


# --- full tiers ----------------------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 kB."""
    place = tmp_path / "tiny"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no filesystem can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_full_memory_tier_stops_the_query_and_another_place_continues_it(
    scenario: Scenario, tiny_disk: Path
) -> None:
    grow(scenario, 5)
    with pytest.raises(StateError) as raised:
        scenario.run(joined(scenario), memory_dir=str(tiny_disk))
    assert raised.value.message.startswith(f"the memory tier at {tiny_disk}/")
    assert raised.value.message.endswith("/memory is full")
    assert "without data loss" in str(raised.value.detail)
    assert raised.value.hint == (
        "free space there, or choose a larger location with .adapt(memory=..., memory_dir=...), "
        "then start the query again"
    )
    scenario.run(joined(scenario), memory_dir=str(scenario.root / "large"))
    scenario.check(joined(scenario))


@pytest.mark.full
def test_full_durable_tier_stops_the_query_and_room_continues_it(
    scenario: Scenario, tiny_disk: Path
) -> None:
    grow(scenario, 5)
    with pytest.raises(StateError) as raised:
        scenario.run(joined(scenario), durable=str(tiny_disk))
    assert raised.value.message == f"the durable tier at {tiny_disk} is full"
    assert "the checkpointLocation option or .adapt(durable=...)" in str(raised.value.hint)
    subprocess.run(["mount", "-o", "remount,size=8m", str(tiny_disk)], check=True)
    scenario.run(joined(scenario), durable=str(tiny_disk))
    scenario.check(joined(scenario))


@pytest.mark.full
def test_full_disk_tier_stops_the_spill_and_another_place_continues_it(
    scenario: Scenario, tiny_disk: Path
) -> None:
    grow(scenario, 12)
    with pytest.raises(StateError) as raised:
        scenario.run(joined(scenario), memory=400, disk_dir=str(tiny_disk))
    assert raised.value.message.startswith(f"the disk tier at {tiny_disk}/")
    assert "without data loss" in str(raised.value.detail)
    assert ".adapt(disk_dir=...)" in str(raised.value.hint)
    scenario.run(joined(scenario), memory=400, disk_dir=str(scenario.root / "large"))
    scenario.check(joined(scenario))

"""Every mistake of a user gets an error that names the thing and says what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

from spillway import Join, PlanError, QueryError, SettingsError, SpillwayError, StateError, join
from spillway.checkpoint.checkpoint import FORMAT
from spillway.kernels.checksum import checksum
from spillway.settings import Adapt
from spillway.testing import Faults


@pytest.fixture
def scenario(spark: SparkSession, tmp_path: Path) -> Scenario:
    """Two streams without a row: what is refused here is refused before the stream starts."""
    return Scenario(
        spark,
        tmp_path,
        orders="order_id bigint, ts timestamp, local timestamp_ntz, price double, tags array<string>",
        payments="order_id bigint, ts timestamp, paid_for string, st struct<a:int>",
    )


def refusal(kind: type[SpillwayError], attempt: Callable[[], Any]) -> tuple[str, str, str]:
    """Message, detail and hint of the error; every one has a hint."""
    with pytest.raises(kind) as raised:
        attempt()
    error = raised.value
    assert type(error) is kind
    assert error.hint
    return error.message, error.detail or "", error.hint


# --- streams -------------------------------------------------------------------------------------


def test_fewer_than_two_streams_are_no_join(scenario: Scenario) -> None:
    orders = scenario.streams["orders"].stream()
    message, _, hint = refusal(PlanError, lambda: join(orders=orders))
    assert message == "a join needs at least two streams, not 1"
    assert hint == "name them: sw.join(orders=orders, payments=payments)"


def test_batch_frame_is_no_stream(scenario: Scenario) -> None:
    orders, payments = scenario.streams["orders"].stream(), scenario.streams["payments"].batch()
    message, _, hint = refusal(PlanError, lambda: join(orders=orders, payments=payments))
    assert message == "stream payments is a batch DataFrame, not a stream"
    assert hint == ("read it with spark.readStream instead of spark.read to make payments a stream")


def test_thing_that_is_no_frame_is_no_stream(scenario: Scenario) -> None:
    orders = scenario.streams["orders"].stream()
    message, _, hint = refusal(PlanError, lambda: join(orders=orders, payments="payments"))
    assert message == "stream payments is a str, not a streaming DataFrame"
    assert hint == "pass what spark.readStream...load() returns"


def test_stream_used_twice_is_refused_with_the_way_to_join_it_with_itself(
    scenario: Scenario,
) -> None:
    orders = scenario.streams["orders"].stream()
    message, _, hint = refusal(PlanError, lambda: join(a=orders, b=orders))
    assert message == "streams a and b are the same DataFrame"
    assert hint == (
        "to join a stream with itself, read its source twice: b = spark.readStream....load()"
    )


def test_columns_of_one_name_are_refused(scenario: Scenario) -> None:
    orders = scenario.streams["orders"].stream()
    twice = scenario.streams["payments"].stream().selectExpr("order_id", "ts AS Order_Id")
    message, _, hint = refusal(PlanError, lambda: join(orders=orders, payments=twice))
    assert message == "stream payments has more than one column called order_id"
    assert hint == "give each column its own name before the query"


# --- keys ----------------------------------------------------------------------------------------


def test_unknown_key_column_is_named_with_its_stream(scenario: Scenario) -> None:
    message, detail, hint = refusal(PlanError, lambda: scenario.join().on("order_ld"))
    assert message == "stream orders has no column 'order_ld' to use as key"
    assert detail == "its columns are order_id, ts, local, price, tags"
    assert hint == "did you mean 'order_id'?"


def test_key_that_one_stream_lacks_is_named(scenario: Scenario) -> None:
    message, detail, hint = refusal(PlanError, lambda: scenario.join().on("price"))
    assert message == "stream payments has no column 'price' to use as key"
    assert detail == "its columns are order_id, ts, paid_for, st"
    assert hint == 'name the column of each stream: .on(payments="...", ...)'


def test_join_without_keys_names_the_columns_that_could_be(scenario: Scenario) -> None:
    joined = scenario.join()
    message, detail, hint = refusal(PlanError, lambda: scenario.start(joined))
    assert message == "the join of orders, payments has no keys"
    assert detail == "the streams have these columns in common: order_id, ts"
    assert hint == (
        'add .on("column"), or .on(stream="column", ...) if the names differ; or add .match(...) for a '
        "condition other than equal keys"
    )


def test_streams_without_a_common_column_say_so(scenario: Scenario) -> None:
    orders = scenario.streams["orders"].stream().select("price")
    joined = join(orders=orders, payments=scenario.streams["payments"].stream())
    _, detail, _ = refusal(PlanError, lambda: scenario.start(joined))
    assert detail == "the streams have these columns in common: none"


def test_on_without_names_and_with_both_kinds_is_refused(scenario: Scenario) -> None:
    for attempt in (
        lambda: scenario.join().on(),
        lambda: scenario.join().on("order_id", orders="order_id"),
    ):
        message, _, hint = refusal(PlanError, attempt)
        assert message == "on() takes the names of key columns, or one name per stream"
        assert hint == 'for example .on("id") or .on(orders="id", payments="order_id")'


def test_on_names_every_stream_and_no_other(scenario: Scenario) -> None:
    message, _, hint = refusal(PlanError, lambda: scenario.join().on(orders="order_id"))
    assert (message, hint) == (
        "on() has no value for stream payments",
        "the streams are orders, payments",
    )
    names = {"orders": "order_id", "payments": "order_id", "refunds": "order_id"}
    message, _, hint = refusal(PlanError, lambda: scenario.join().on(**names))
    assert (message, hint) == (
        "on() names 'refunds', which is not one of the joined streams",
        "the streams are orders, payments",
    )


def test_streams_need_the_same_number_of_keys(scenario: Scenario) -> None:
    message, _, hint = refusal(
        PlanError, lambda: scenario.join().on(orders=("order_id", "ts"), payments="order_id")
    )
    assert message == (
        "every stream needs the same number of keys, not {'orders': 2, 'payments': 1}"
    )
    assert hint == "give the keys in the same order for every stream"


def test_keys_of_two_kinds_cannot_be_compared(scenario: Scenario) -> None:
    message, _, hint = refusal(
        PlanError, lambda: scenario.join().on(orders="order_id", payments="paid_for")
    )
    assert message == (
        "the keys cannot be compared: orders.order_id is bigint, payments.paid_for is string"
    )
    assert hint == "cast the keys to one type before the join"


def test_nested_column_is_no_key(scenario: Scenario) -> None:
    message, _, hint = refusal(PlanError, lambda: scenario.join().on(orders="tags", payments="st"))
    assert message == "orders.tags is array<string>, which cannot be a join key"
    assert hint == "join on one of its fields, or on text or a number made from it"
    message, _, _ = refusal(PlanError, lambda: scenario.join().on(orders="order_id", payments="st"))
    assert message == "payments.st is struct<a:int>, which cannot be a join key"


# --- windows -------------------------------------------------------------------------------------


def test_window_on_a_column_that_is_no_time_is_refused(scenario: Scenario) -> None:
    message, _, hint = refusal(
        PlanError,
        lambda: scenario.join().within("1 hour", time={"orders": "price", "payments": "ts"}),
    )
    assert message == "the window of stream orders is on price, which is double, not a timestamp"
    assert hint == (
        "use a timestamp column, or cast it before the join: "
        "to_timestamp(price) or timestamp_micros(price)"
    )


def test_unknown_time_column_is_named(scenario: Scenario) -> None:
    message, detail, hint = refusal(
        PlanError, lambda: scenario.join().within("1 hour", time="event")
    )
    assert message == "stream orders has no column 'event' to use as event time"
    assert detail == "its columns are order_id, ts, local, price, tags"
    assert hint == "name a column of orders"


def test_times_with_and_without_zone_cannot_be_compared(scenario: Scenario) -> None:
    message, _, hint = refusal(
        PlanError,
        lambda: scenario.join().within("1 hour", time={"orders": "local", "payments": "ts"}),
    )
    assert message == (
        "the times cannot be compared: orders.local is timestamp_ntz, payments.ts is timestamp"
    )
    assert hint == "cast them before the join: all with a time zone, or all without"


@pytest.mark.parametrize("text", ["an hour", "1 month", "", "10"])
def test_text_that_is_no_duration_is_refused(scenario: Scenario, text: str) -> None:
    message, detail, hint = refusal(PlanError, lambda: scenario.join().within(text, time="ts"))
    assert message == f"the window {text!r} is not a duration"
    assert detail == "months and years have no fixed length and are not durations"
    assert hint == 'write for example "10 minutes", "1 hour 30 minutes" or "500 milliseconds"'


@pytest.mark.parametrize("length", ["0 seconds", timedelta(seconds=-1)])
def test_window_of_no_length_is_refused(scenario: Scenario, length: Any) -> None:
    message, _, hint = refusal(PlanError, lambda: scenario.join().within(length, time="ts"))
    assert message == f"the window of stream orders must be positive, not {length!r}"
    assert hint == 'write for example "10 minutes"'


def test_negative_lateness_is_refused(scenario: Scenario) -> None:
    late = timedelta(seconds=-1)
    message, _, hint = refusal(
        PlanError, lambda: scenario.join().within("1 hour", time="ts", lateness=late)
    )
    assert message == f"the lateness of stream orders cannot be negative: {late!r}"
    assert hint == 'write for example "30 seconds", or leave lateness out'


def test_window_for_some_of_the_streams_is_refused(scenario: Scenario) -> None:
    message, _, hint = refusal(
        PlanError, lambda: scenario.join().within({"orders": "1 hour"}, time="ts")
    )
    assert message == "within(window=...) has no value for stream payments"
    assert hint == "the streams are orders, payments"


# --- where, select and the writer ----------------------------------------------------------------


def test_unknown_column_in_where_or_select_is_refused_when_it_is_written(
    scenario: Scenario,
) -> None:
    joined = scenario.join().on("order_id")
    attempts: dict[str, Callable[[], Join]] = {
        "where(orders.prize > 3) cannot be resolved": lambda: joined.where("orders.prize > 3"),
        "select(orders.prize) cannot be resolved": lambda: joined.select("orders.prize"),
        "where(orders.price >) cannot be resolved": lambda: joined.where("orders.price >"),
    }
    for expected, attempt in attempts.items():
        message, detail, hint = refusal(PlanError, attempt)
        assert message == expected
        assert "\n" not in detail
        assert hint == (
            "write a column as stream.column: "
            "orders.order_id, orders.ts, orders.local, orders.price, orders.tags; "
            "payments.order_id, payments.ts, payments.paid_for, payments.st"
        )


def test_output_mode_other_than_append_is_refused(scenario: Scenario) -> None:
    writer = scenario.join().on("order_id").writeStream
    message, detail, hint = refusal(PlanError, lambda: writer.outputMode("complete"))
    assert message == "outputMode('complete') is not valid for a join"
    assert detail == "a join never changes or withdraws a result"
    assert hint == 'use outputMode("append"), or leave it out'
    assert writer.outputMode("Append") is writer


def test_continuous_trigger_is_refused(scenario: Scenario) -> None:
    writer = scenario.join().on("order_id").writeStream
    message, _, hint = refusal(PlanError, lambda: writer.trigger(continuous="1 second"))
    assert message == ("trigger(continuous=...) is not supported: Spillway runs in micro-batches")
    assert hint == 'use trigger(processingTime="1 second") or trigger(availableNow=True)'


def test_query_without_checkpoint_location_is_refused(scenario: Scenario) -> None:
    writer = scenario.join().on("order_id").writeStream.format("parquet")
    message, _, hint = refusal(SettingsError, lambda: writer.start(str(scenario.out)))
    assert message == "the query has no checkpoint location"
    assert hint == (
        'add .option("checkpointLocation", "some/directory"); a restart continues from there'
    )


def test_unknown_setting_is_refused_with_the_known_ones(scenario: Scenario) -> None:
    writer = scenario.join().on("order_id").writeStream
    message, _, hint = refusal(SettingsError, lambda: writer.adapt(slot=4))
    assert message == "there is no setting 'slot'"
    assert hint == f"the settings are {', '.join(sorted(one.name for one in fields(Adapt)))}"


def test_faults_of_another_kind_are_rejected(scenario: Scenario) -> None:
    writer = scenario.join().on("order_id").writeStream
    message, _, hint = refusal(SettingsError, lambda: writer.faults("all"))
    assert message == "faults() takes a spillway.testing.Faults, not 'all'"
    assert hint == 'for example .faults(Faults(tasks=(Fault("after-runs", 1, 0, "marker"),)))'
    assert writer.faults(Faults()) is writer


@pytest.mark.parametrize("memory", ["lots", "200 MBs", "-1", 0, "0"])
def test_memory_that_is_no_size_is_refused(scenario: Scenario, memory: object) -> None:
    writer = scenario.join().on("order_id").writeStream
    message, _, hint = refusal(SettingsError, lambda: writer.adapt(memory=memory))
    assert message == f"memory={memory!r} must be a positive number of bytes"
    assert hint == 'write for example memory="200MB" or memory=200000000'


def test_more_slots_than_groups_are_refused(scenario: Scenario) -> None:
    writer = scenario.join().on("order_id").writeStream
    message, _, hint = refusal(SettingsError, lambda: writer.adapt(slots=20, groups=16))
    assert message == "20 slots cannot share 16 groups"
    assert hint == "raise groups to at least 20, or lower slots"


@pytest.mark.parametrize("location", ["nosuch://host/path", "hdfs://nowhere.invalid:9/path"])
def test_durable_location_that_cannot_be_reached_is_named(
    scenario: Scenario, location: str
) -> None:
    joined = scenario.join().on("order_id")
    message, detail, hint = refusal(StateError, lambda: scenario.start(joined, durable=location))
    assert message == f"the durable location {location!r} cannot be opened"
    assert detail
    assert (
        hint
        == "use a local path, file://, hdfs://, s3://, gs:// or az:// that this machine can reach"
    )


def test_durable_location_below_a_file_is_named(scenario: Scenario) -> None:
    (scenario.root / "file").write_text("")
    location = str(scenario.root / "file" / "below")
    joined = scenario.join().on("order_id")
    message, detail, hint = refusal(StateError, lambda: scenario.start(joined, durable=location))
    assert message == f"the durable location {location!r} cannot be opened"
    assert "Not a directory" in detail
    assert (
        hint
        == "use a local path, file://, hdfs://, s3://, gs:// or az:// that this machine can reach"
    )


# --- checkpoints ---------------------------------------------------------------------------------


def test_two_queries_on_one_checkpoint_at_the_same_time_are_refused(scenario: Scenario) -> None:
    running = scenario.start(scenario.join().on("order_id"), trigger={"processingTime": "1 second"})
    try:
        message, detail, hint = refusal(
            QueryError, lambda: scenario.start(scenario.join().on("order_id"))
        )
    finally:
        running.stop()
    assert message == (
        f"another query is running on the checkpoint at {scenario.checkpoint}/spillway"
    )
    assert re.fullmatch(r"process .+ holds its lock", detail)
    assert hint == "stop that query first, or use another checkpointLocation for this one"
    scenario.run(scenario.join().on("order_id"))


def test_checkpoint_of_another_query_is_refused_and_says_what_differs(scenario: Scenario) -> None:
    orders, payments = scenario.streams["orders"], scenario.streams["payments"]

    def windowed(length: str = "1 hour", lateness: str = "0 seconds") -> Join:
        return scenario.join().on("order_id").within(length, time="ts", lateness=lateness)

    def of(**frames: Any) -> Join:
        return join(**frames).on("order_id").within("1 hour", time="ts")

    scenario.run(windowed())
    trimmed = orders.stream().drop("price")
    cast = orders.stream().selectExpr("order_id", "ts", "local", "float(price) AS price", "tags")
    other = {
        "its streams are (orders, payments), this query's are (orders, refunds)": of(
            orders=orders.stream(), refunds=payments.stream()
        ),
        "its streams are (orders, payments), this query's are (payments, orders)": of(
            payments=payments.stream(), orders=orders.stream()
        ),
        "the keys of stream orders were (order_id), now (order_id, ts)": scenario.join()
        .on("order_id", "ts")
        .within("1 hour", time="ts"),
        "the schema of stream orders no longer has the column price double": of(
            orders=trimmed, payments=payments.stream()
        ),
        "the schema of stream orders had price double, now float": of(
            orders=cast, payments=payments.stream()
        ),
        "the window of stream orders was 3600 s on ts with lateness 0 s, "
        "now 7200 s on ts with lateness 0 s": windowed("2 hours"),
        "the window of stream orders was 3600 s on ts with lateness 0 s, "
        "now 3600 s on ts with lateness 60 s": windowed(lateness="1 minute"),
        "the window of stream orders was 3600 s on ts with lateness 0 s, "
        "now unbounded": scenario.join().on("order_id"),
    }
    for difference, query in other.items():
        message, _, hint = refusal(QueryError, lambda query=query: scenario.start(query))
        place = scenario.checkpoint / "spillway"
        assert message == f"the checkpoint at {place} belongs to another query: {difference}"
        assert hint == (
            "use another checkpointLocation for the changed query, or start the query that made "
            "this checkpoint"
        )
    scenario.run(windowed("60 minutes").where("orders.price > 1"))


def test_changed_number_of_groups_is_refused(scenario: Scenario) -> None:
    scenario.run(scenario.join().on("order_id"), groups=16)
    message, _, hint = refusal(
        QueryError, lambda: scenario.start(scenario.join().on("order_id"), groups=32)
    )
    place = scenario.checkpoint / "spillway"
    assert message == f"the checkpoint at {place} has 16 groups, but this query asks for 32"
    assert hint == "use .adapt(groups=16); only the number of slots may differ"


def test_checkpoint_of_a_newer_version_is_refused(scenario: Scenario) -> None:
    scenario.run(scenario.join().on("order_id"))
    path = scenario.checkpoint / "spillway" / "metadata.json"
    newer = json.loads(path.read_bytes().partition(b"\n")[2]) | {"format": 99, "unknown": True}
    body = json.dumps(newer).encode()
    path.write_bytes(f"{checksum(body):016x}\n".encode() + body)
    message, detail, hint = refusal(
        StateError, lambda: scenario.start(scenario.join().on("order_id"))
    )
    assert message == f"the checkpoint at {path.parent} was written by a newer version of Spillway"
    assert detail == f"its format is 99, this version reads format {FORMAT.number}"
    assert hint == "upgrade Spillway, or use another checkpoint location"


def test_refused_start_leaves_the_checkpoint_free(scenario: Scenario) -> None:
    scenario.run(scenario.join().on("order_id"))
    refusal(QueryError, lambda: scenario.start(scenario.join().on("order_id", "ts")))
    scenario.run(scenario.join().on("order_id"))


def test_state_and_offsets_of_different_age_are_refused(scenario: Scenario) -> None:
    scenario.add(orders=[(1, None, None, 1.0, [])], payments=[(1, None, "x", None)])
    scenario.run(scenario.join().on("order_id"))
    for record in (scenario.checkpoint / "spillway" / "log").iterdir():
        record.unlink()
    scenario.add(orders=[(2, None, None, 1.0, [])])
    message, detail, hint = refusal(
        QueryError, lambda: scenario.run(scenario.join().on("order_id"))
    )
    assert message == "Spark asks for batch 1, but the state is at batch -1"
    assert "belong together" in detail
    assert hint == (
        "restore the whole checkpoint directory from one backup, or start with a new one"
    )

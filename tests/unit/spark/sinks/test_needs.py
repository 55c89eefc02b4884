"""What a sink cannot do without is asked for before the stream starts."""

from __future__ import annotations

import pytest

from spillway.errors import PlanError
from spillway.spark.sinks.append import check_needs
from spillway.spark.sinks.spec import SinkSpec

SERVERS = {"Kafka.Bootstrap.Servers": "host:9092"}


@pytest.mark.parametrize(
    ("kind", "options", "columns", "message", "hint"),
    [
        ("jdbc", {}, [], "the sink 'jdbc' needs the option url", '.option("url", "jdbc:'),
        ("JDBC", {"URL": "jdbc:x"}, [], "the sink 'JDBC' needs the option dbtable", "dbtable"),
        ("kafka", {}, ["value"], "needs the option kafka.bootstrap.servers", "host:9092"),
        ("kafka", SERVERS, ["k"], "needs a column named value, of text or binary", "to_json"),
        ("kafka", SERVERS, ["Value"], "the sink 'kafka' needs a topic", '.option("topic"'),
    ],
)
def test_missing_option_or_column_is_named(
    kind: str, options: dict[str, str], columns: list[str], message: str, hint: str
) -> None:
    with pytest.raises(PlanError) as refused:
        check_needs(kind, SinkSpec(kind, options), columns)
    assert message in refused.value.message
    assert hint in (refused.value.hint or "")


def test_sink_with_all_that_it_needs_is_taken() -> None:
    check_needs("jdbc", SinkSpec("jdbc", {"url": "jdbc:x", "dbtable": "t"}), ["k"])
    check_needs("kafka", SinkSpec("kafka", {**SERVERS, "topic": "t"}), ["key", "value"])
    check_needs("kafka", SinkSpec("kafka", SERVERS), ["value", "topic"])
    check_needs("noop", SinkSpec("noop", {}), ["k"])

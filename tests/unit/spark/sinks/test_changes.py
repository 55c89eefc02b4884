"""The statements that turn results into changes of a table, and what the options refuse."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from spillway.errors import PlanError
from spillway.spark.sinks.spec import SinkSpec
from spillway.spark.sinks.transactions.changes import Changes, check_options, tick
from spillway.spark.sinks.transactions.postgres.target import quoted

SCHEMA = StructType(
    [
        StructField("Key", LongType()),
        StructField("odd `name", StringType()),
        StructField("list", ArrayType(LongType())),
    ]
)


def changes(**options: str) -> Changes:
    return Changes.of(SinkSpec("delta", options), SCHEMA, "delta")


def test_append_names_its_columns() -> None:
    assert changes().insert("t", "v") == (
        "INSERT INTO t (`Key`, `odd ``name`, `list`) SELECT `Key`, `odd ``name`, `list` FROM v"
    )


def test_merge_updates_inserts_and_deletes() -> None:
    made = changes(mergeKeys=" key ", deleteWhen="list IS NULL")
    assert made.keys == ("Key",)
    assert made.merge("t", "v", "t.k <=> s.k") == (
        "MERGE INTO t AS t USING v AS s ON t.k <=> s.k "
        "WHEN MATCHED AND s.`_spillway_deletes` THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET `odd ``name` = s.`odd ``name`, `list` = s.`list` "
        "WHEN NOT MATCHED AND NOT s.`_spillway_deletes` THEN "
        "INSERT (`Key`, `odd ``name`, `list`) VALUES (s.`Key`, s.`odd ``name`, s.`list`)"
    )


def test_merge_of_rows_that_are_only_a_key_inserts() -> None:
    only = Changes(("k",), ("k",), quote=quoted)
    assert only.merge("t", "v", "m") == (
        'MERGE INTO t AS t USING v AS s ON m WHEN NOT MATCHED THEN INSERT ("k") VALUES (s."k")'
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mergeKeys": " , "}, "option mergeKeys names no column"),
        ({"mergeKeys": "other"}, "option mergeKeys: the result has no column 'other'"),
        ({"mergeKeys": "list"}, "column 'list' is of type array<bigint>, which cannot be a key"),
        ({"deleteWhen": "true"}, "option deleteWhen of the sink 'delta' needs mergeKeys"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(PlanError) as refused:
        changes(**options)
    assert message in refused.value.message
    assert refused.value.hint


def test_options_that_a_statement_cannot_pass_on_are_refused() -> None:
    known = {"MERGEKEYS": "k", "path": "p", "delta.appendOnly": "true", "format-version": "2"}
    check_options(SinkSpec("delta", known), "delta", ("path",))
    with pytest.raises(PlanError, match="'delta' does not take the option mergeSchema") as refused:
        check_options(SinkSpec("delta", {"mergeSchema": "true"}), "delta", ("path",))
    assert "path, mergeKeys, deleteWhen" in (refused.value.hint or "")


def test_names_are_quoted() -> None:
    assert tick("a.b") == "`a.b`"
    assert quoted('a"b') == '"a""b"'

"""Job files: fields, values of the environment, and errors that name the field. No Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spillway.cli.main import app
from spillway.errors import SettingsError
from spillway.jobs.environment import with_environment
from spillway.jobs.flags import Flags, job_of_flags
from spillway.jobs.reading import read_job
from spillway.jobs.spec import Job
from spillway.redaction import hidden

GOOD: dict[str, Any] = {
    "name": "offers",
    "sources": {
        "orders": {"format": "parquet", "path": "in/orders", "options": {"maxFilesPerTrigger": 1}},
        "payments": {"format": "rate"},
    },
    "streams": {
        "large": {
            "from": "orders",
            "where": "total > 100",
            "select": ["id", "ts"],
            "watermark": {"time": "ts", "lateness": "10 seconds"},
        }
    },
    "query": {"sql": "SELECT large.id FROM large JOIN payments USING (id)"},
    "sink": {"format": "parquet", "path": "out", "mode": "append"},
    "checkpoint": "ck",
    "adapt": {"slots": 2, "memory": "200MB"},
    "trigger": {"processing_time": "1 second"},
    "session": {"master": "local[2]", "conf": {"spark.ui.enabled": False}},
}


def written(folder: Path, document: object) -> Path:
    path = folder / "job.json"
    path.write_text(json.dumps(document))
    return path


def job(folder: Path, **changes: Any) -> Job:
    return read_job(written(folder, {**GOOD, **changes}), {})


def error(folder: Path, **changes: Any) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        job(folder, **changes)
    return caught.value


def test_all_fields_are_read(tmp_path) -> None:
    found = job(tmp_path)
    assert found.sources["orders"].options == {"maxFilesPerTrigger": 1}
    assert found.streams["large"].of == "orders"
    assert found.trigger.arguments == {"processingTime": "1 second"}
    assert found.folder == tmp_path


def test_yaml_and_json_say_the_same(tmp_path) -> None:
    place = tmp_path / "job.yaml"
    place.write_text(
        "name: offers\nsources: {a: {format: rate}, b: {format: rate}}\n"
        "query: {file: query.sql}\nsink: {format: console}\n"
    )
    found = read_job(place, {})
    assert (found.name, list(found.sources), found.query.file) == (
        "offers",
        ["a", "b"],
        "query.sql",
    )


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"sink": None}, "sink must be a mapping of fields", "quote it"),
        ({"sources": {}}, "sources is empty", "kafka"),
        ({"sources": {"a": {}}}, "sources.a.format is missing", "format: parquet"),
        ({"sources": {"a": {"format": 3}}}, "sources.a.format must be text", "format: '...'"),
        ({"sources": {"a": {"fromat": "x"}}}, "sources.a.format is missing", "format: parquet"),
        (
            {"sources": {"a": {"format": "rate", "optoins": {}}}},
            "sources.a.optoins is not a field",
            "did you mean options?",
        ),
        (
            {"trigger": {"every": "1 s"}},
            "trigger.every is not a field",
            "processing_time, available_now",
        ),
        ({"chekpoint": "x"}, "chekpoint is not a field", "did you mean checkpoint?"),
        ({"name": "a b"}, "name is not a name", "letters, digits and _"),
        ({"query": {}}, "query: must have one of sql, file and python, not none", "query"),
        ({"query": {"sql": "x", "file": "y"}}, "not sql and file", "query"),
        ({"query": {"python": "module"}}, "'module' is not module:function", "query"),
        ({"sink": {"path": "x"}}, "sink: must have a format", "sink"),
        ({"sink": {"format": "x", "mode": "complete"}}, "sink.mode", "mode"),
        ({"adapt": {"slts": 2}}, "adapt: ", "slots"),
        ({"adapt": {"slots": 0}}, "adapt: ", "slots"),
        ({"trigger": {"processing_time": "soon"}}, "'soon' is not a duration", "10 minutes"),
        (
            {"streams": {"s": {"from": "nothing"}}},
            "streams.s.from names 'nothing'",
            "there are orders, payments",
        ),
        ({"streams": {"orders": {"from": "payments"}}}, "has the name of a source", "another name"),
        (
            {"streams": {"s": {"from": "orders", "watermark": {"time": "ts", "lateness": "late"}}}},
            "streams.s.watermark.lateness: the lateness 'late' is not a duration",
            "10 minutes",
        ),
    ],
)
def test_error_names_the_field_and_the_remedy(tmp_path, changes, message, hint) -> None:
    found = error(tmp_path, **changes)
    assert message in found.message
    assert "job.json" in found.message
    assert hint in str(found.hint)


def test_other_problems_are_in_the_detail(tmp_path) -> None:
    found = error(tmp_path, name=3, sink={"format": 3})
    assert "name must be text" in found.message
    assert found.detail == "sink.format must be text"


def test_variables_come_from_the_environment() -> None:
    document = {"a": ["x-${ONE}", "${TWO:-two}", "$${ONE}", 3], "b": {"c": "${ONE}${ONE}"}}
    found = with_environment(document, {"ONE": "1"})
    assert found == {"a": ["x-1", "two", "${ONE}", 3], "b": {"c": "11"}}


def test_values_of_the_environment_cannot_change_the_structure(tmp_path) -> None:
    place = tmp_path / "job.yaml"
    place.write_text(
        "name: x\nsources: {a: {format: rate, path: '${EVIL}'}}\nquery: {sql: x}\nsink: {format: noop}\n"
    )
    found = read_job(place, {"EVIL": "'}\nsink: {format: kafka}"})
    assert found.sink.format == "noop"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("${MISSING}", "sources.a.path needs the environment variable MISSING", "export MISSING"),
        ("${not a name}", "sources.a.path has ${not a name}, which is not a variable", "$${"),
    ],
)
def test_missing_variable_is_named_with_its_field(text, message, hint) -> None:
    with pytest.raises(SettingsError) as caught:
        with_environment({"sources": {"a": {"path": text}}}, {})
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_no_text_shows_a_value_of_the_environment() -> None:
    with_environment({"password": "${SOME_PASSWORD}"}, {"SOME_PASSWORD": "correct-horse-battery"})
    assert hidden("cannot log in with correct-horse-battery") == "cannot log in with ***"


@pytest.mark.parametrize(
    ("name", "text", "detail"),
    [
        ("job.yaml", "name: [1", "line 1"),
        ("job.yaml", "\tname: x", "line 1, column 1"),
        ("job.json", '{"name": }', "line 1, column 10"),
    ],
)
def test_file_that_cannot_be_parsed_has_its_place(tmp_path, name, text, detail) -> None:
    place = tmp_path / name
    place.write_text(text)
    with pytest.raises(SettingsError, match="is not valid") as caught:
        read_job(place, {})
    assert detail in str(caught.value.detail)


def test_file_that_is_not_there_or_not_a_job(tmp_path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        read_job(tmp_path / "none.yaml", {})
    with pytest.raises(SettingsError, match="is not a job"):
        read_job(written(tmp_path, [1]), {})


# A SQL file with options


def flags(folder: Path, **changes: Any) -> Job:
    place = folder / "my-query.sql"
    place.write_text("SELECT 1")
    return job_of_flags(
        place, Flags(**{"streams": ["orders=parquet:in/orders", "b=rate"], **changes})
    )


def test_options_of_the_command_line_are_a_job(tmp_path) -> None:
    found = flags(
        tmp_path,
        schemas=["orders=id bigint, ts timestamp"],
        options=["orders.maxFilesPerTrigger=1", "sink.compression=zstd"],
        sink="parquet:out",
        checkpoint="ck",
        adapt=["slots=2", "memory=1GB", "fsync=false"],
        trigger="available-now",
        master="local[2]",
    )
    assert found.name == "my_query"
    assert found.sources["orders"].path == "in/orders"
    assert found.sources["orders"].schema_text == "id bigint, ts timestamp"
    assert found.sources["b"].path is None
    assert found.sink.options == {"compression": "zstd"}
    assert found.adapt == {"slots": 2, "memory": "1GB", "fsync": False}
    assert found.trigger.arguments == {"availableNow": True}


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"streams": []}, "reads streams that nothing describes", "--stream orders="),
        ({"streams": ["orders"]}, "--stream 'orders' is not name=value", "orders=parquet:"),
        ({"schemas": ["x=id int"]}, "--schema names 'x'", "the streams are orders, b"),
        ({"options": ["x.y=1"]}, "--option names 'x'", "the streams are orders, b"),
        ({"adapt": ["slots"]}, "--adapt 'slots' is not name=value", "slots=2"),
        ({"adapt": ["slots=many"]}, "adapt", "slots"),
        ({"trigger": "soon"}, "trigger", "10 minutes"),
    ],
)
def test_option_that_does_not_fit_is_named(tmp_path, changes, message, hint) -> None:
    with pytest.raises(SettingsError) as caught:
        flags(tmp_path, **changes)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_command_refuses_what_it_cannot_do_before_it_starts_spark(tmp_path) -> None:
    path = written(tmp_path, {**GOOD, "sink": {"format": "console"}})
    for arguments, told in (
        (["--json"], "a console sink and --json both write to standard output"),
        (["--sink", "noop"], "--sink is for .sql files"),
    ):
        done = CliRunner().invoke(app, ["run", str(path), *arguments])
        assert done.exit_code == 2
        assert told in done.output


def test_example_is_a_job() -> None:
    place = Path(__file__).parents[3] / "examples" / "bank.yaml"
    found = read_job(place, {})
    assert found.sources["bank2"].path == str(place.parent / "bank" / "bank2")

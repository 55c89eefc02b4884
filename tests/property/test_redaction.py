"""Random secrets in locations and options occur in no text that Spillway produces."""

from __future__ import annotations

import json
import pickle
import traceback
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.errors import (
    QueryError,
    SpillwayError,
    StateError,
    from_wire,
    keeping_secrets,
    passed_to_driver,
)
from spillway.inspect.document import as_document
from spillway.inspect.inspection import Inspection
from spillway.redaction import hidden, hidden_options, learn_location, learn_options
from spillway.settings import Adapt
from spillway.spark.runtime.home import Home
from spillway.spark.sinks.spec import SinkSpec
from spillway.state.runs.durable.opening import open_filesystem

#: Digits in front, so that no word of a text is a secret by chance.
SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=24).map(
    lambda text: f"7Q{text}9Z"
)

LOCATIONS = (
    "s3://AKIDKEY:{}@bucket/ck?region=eu-central-1&scheme=https",
    "s3://bucket/ck?access_key=AKIDKEY&secret_key={}&region=eu",
    "s3a://{}@bucket/ck",
    "gs://bucket/ck?access_token={}",
    "abfss://container@account.dfs.core.windows.net/ck?se=2030&sig={}",
    "abfss://container:{}@account.dfs.core.windows.net/ck",
    "https://account.blob.core.windows.net/c/ck?sv=2024&new_parameter={}",
    "hdfs://user:{}@namenode:8020/ck",
)
OPTIONS = (
    ("password", "{}"),
    ("url", "jdbc:postgresql://host/db?user=me&password={quoted}"),
    ("url", "jdbc:sqlserver://host:1433;databaseName=db;user=me;password={quoted};encrypt=true"),
    ("url", "jdbc:postgresql://me:{quoted}@host/db"),
    ("url", "jdbc:oracle:thin:me/{quoted}@//host:1521/service"),
    ("kafka.sasl.jaas.config", 'org.apache.Login required username="me" password="{quoted}";'),
    ("kafka.ssl.keystore.password", "{}"),
    ("authToken", "{}"),
    ("fs.s3a.secret.key", "{}"),
)


def forms(secret: str) -> set[str]:
    return {secret, quote(secret, safe=""), repr(secret)[1:-1], json.dumps(secret)[1:-1]}


def assert_hidden(secret: str, *texts: str) -> None:
    for text in texts:
        assert not [form for form in forms(secret) if form in text], text


def told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize("template", LOCATIONS)
@given(secret=SECRETS)
def test_secret_of_a_location_is_in_no_text(template: str, secret: str) -> None:
    location = template.format(quote(secret, safe=""))
    # By its form alone, before anybody has learned it.
    assert quote(secret, safe="") not in hidden(f"cannot open '{location}': denied")
    assert hidden(location).startswith(location.partition("://")[0] + "://")
    learn_location(location)
    assert_hidden(
        secret,
        repr(Adapt(durable=location)),
        repr(Home("q", 1, location, Adapt(durable=location))),
        str(StateError(f"in {location}", detail=f"decoded {secret}", hint=f"not {secret!r}")),
        hidden(json.dumps({"at": location, "key": secret})),
        json.dumps(as_document(inspection(location))["location"]),
    )


@pytest.mark.parametrize(("name", "template"), OPTIONS)
@given(secret=SECRETS)
def test_secret_of_an_option_is_in_no_text(name: str, template: str, secret: str) -> None:
    value = template.format(secret, quoted=quote(secret, safe=""))
    options = {name: value, "dbtable": "results"}
    spec = SinkSpec("jdbc", options)
    shown = hidden_options(options)
    assert shown["dbtable"] == "results"
    assert_hidden(secret, str(shown))
    learn_options(options)
    assert_hidden(
        secret, repr(spec), str(QueryError(f"sink failed: {value}", detail=f"login of {secret}"))
    )


@given(secret=SECRETS)
def test_secret_of_a_cause_is_in_no_traceback(secret: str) -> None:
    location = f"s3://AKIDKEY:{quote(secret, safe='')}@bucket/ck"
    learn_location(location)
    for error in (OSError(f"cannot read {location}"), KeyError(secret), StateError(location)):
        for wrapped in (error, StateError("the tier is full")):
            with pytest.raises(Exception) as raised, keeping_secrets():  # noqa: PT011 - any error
                raise wrapped from (None if wrapped is error else error)
            assert_hidden(secret, told(raised.value))
            assert isinstance(raised.value, SpillwayError)


@given(secret=SECRETS)
def test_secret_in_a_task_does_not_reach_the_driver(secret: str) -> None:
    learn_options({"password": secret})
    with pytest.raises(RuntimeError) as raised, passed_to_driver():
        raise OSError(f"denied for {secret}")
    assert_hidden(secret, told(raised.value))
    found = from_wire(str(raised.value))
    assert isinstance(found, QueryError)
    assert found.message == "OSError: denied for ***"
    assert_hidden(secret, told(pickle.loads(pickle.dumps(found))))


def test_error_of_arrow_about_a_location_hides_its_secret() -> None:
    location = "s3://AKIDKEY:sEcrEt7789@bucket/ck?region=eu&unknown=sEcrEt1234"
    learn_location(location)
    with pytest.raises(StateError) as raised, keeping_secrets():
        open_filesystem(location)
    text = told(raised.value)
    assert (
        "the durable location 's3://***@bucket/ck?region=eu&unknown=***' cannot be opened" in text
    )
    for secret in ("sEcrEt7789", "sEcrEt1234", "AKIDKEY"):
        assert secret not in text


def test_error_without_secrets_stays_as_it_is() -> None:
    error, cause = ValueError("the column token = 3"), OSError("cause")
    error.__cause__ = cause
    with pytest.raises(ValueError, match="token = 3") as raised, keeping_secrets():
        raise error
    assert raised.value is error
    assert raised.value.__cause__ is cause


@pytest.mark.parametrize(
    "text",
    [
        "where a.token = b.token and a.password = 'x'",
        "s3://bucket/ck?region=eu-central-1",
        "abfss://container@account.dfs.core.windows.net/ck",
        "/tmp/ck@home:1/x",
        "kafka host:9092 topic t",
        "http://host:4040/jobs/job/?a@b",
    ],
)
def test_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert hidden(text) == text


def inspection(location: str) -> Inspection:
    query = {"streams": [], "key_types": []}
    return Inspection(
        location, {"query": query, "spillway": "0", "format": 3, "query_id": "q", "groups": 1}, None
    )

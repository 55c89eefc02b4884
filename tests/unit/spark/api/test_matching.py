"""Conditions of a join, before its query starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from spillway.errors import PlanError
from spillway.operators.predicates.conditions import predicate
from spillway.spark.api.matching import predicates_of


def frames(**settings: str) -> dict[str, Any]:
    """Streams of a session with some settings, as far as conditions look at them."""
    session = SimpleNamespace(conf=settings)
    schema = StructType().add("x", "double").add("s", "string")
    return {name: SimpleNamespace(schema=schema, sparkSession=session) for name in "ab"}


def near(a: Any, b: Any) -> Any:
    return a.x < b.x


@pytest.mark.parametrize("condition", ["a.x < b.x", predicate(near, prefilter="a.x < b.x")])
def test_sql_in_a_session_without_ansi_mode_is_refused(condition: Any) -> None:
    with pytest.raises(PlanError) as caught:
        predicates_of(
            frames(**{"spark.sql.ansi.enabled": "false"}), ((near, ()), (condition, ("a", "b")))
        )
    problem = caught.value
    assert problem.message == (
        "the condition 'a.x < b.x' needs ANSI SQL, but spark.sql.ansi.enabled is false"
    )
    assert problem.hint == (
        "set spark.sql.ansi.enabled to true, or pass a function over the columns instead of text"
    )


def test_functions_need_no_ansi_mode() -> None:
    [found] = predicates_of(frames(**{"spark.sql.ansi.enabled": "false"}), ((near, ("a", "b")),))
    assert found.sql is None


def test_sql_in_a_session_with_ansi_mode_is_understood() -> None:
    [found] = predicates_of(frames(**{"spark.sql.ansi.enabled": "true"}), (("a.x < b.x", ()),))
    assert found.sql == "a.x < b.x"

"""What a kind of join cannot do is refused before the start, with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spillway as sw
from spillway import Join, PlanError, QueryError, SettingsError, SpillwayError
from spillway.testing import FileStream

Frames = dict[str, object]


@pytest.fixture
def frames(spark: SparkSession, tmp_path: Path) -> Frames:
    schema = "k bigint, v bigint, ts timestamp"
    streams = {name: FileStream(spark, tmp_path / name, schema) for name in "abc"}
    for one in streams.values():
        one.add([])
    return {name: one.stream() for name, one in streams.items()}


def two(frames: Frames, how: str) -> Join:
    return sw.join(a=frames["a"], b=frames["b"], how=how).on("k")


def three(frames: Frames) -> Join:
    return sw.join(**frames).on("k").within("1 hour", time="ts")


def start(join: object, place: Path, **adapt: object) -> sw.Query:
    writer = join.writeStream.format("noop").option("checkpointLocation", str(place / "ck"))
    return writer.adapt(slots=1, groups=4, **adapt).trigger(availableNow=True).start()


SAID: dict[str, tuple[Callable[[Frames], object], str, str]] = {
    "unknown": (lambda f: two(f, "lefft"), "how='lefft' is not a kind of join", "'left'"),
    "no text": (lambda f: sw.join(a=f["a"], b=f["b"], how=3), "how=3 is not a kind", 'how="left"'),
    "three": (
        lambda f: sw.join(**f, how="left"),
        "how='left' is for two streams, and this join has 3",
        ".optional('b', 'c')",
    ),
    "first": (lambda f: three(f).optional("a"), "a is the first stream", "name another stream"),
    "foreign": (lambda f: three(f).optional("x"), "optional() names 'x'", "streams are a, b, c"),
    "none": (lambda f: three(f).optional(), "optional() takes the streams", ".optional('c')"),
    "both": (lambda f: two(f, "left").optional("b"), "a join without how", "use one of both"),
}


@pytest.mark.parametrize("case", SAID)
def test_verbs_refuse_what_no_join_can_be(frames: Frames, case: str) -> None:
    build, message, hint = SAID[case]
    with pytest.raises(PlanError) as refused:
        build(frames)
    assert message in str(refused.value)
    assert hint in str(refused.value)


def test_stream_may_be_named_how(frames: Frames) -> None:
    assert list(sw.join(how=frames["a"], b=frames["b"]).frames) == ["how", "b"]


def test_words_of_spark_and_sql_name_the_same_kinds(frames: Frames) -> None:
    for how in ("left_outer", "LEFT OUTER", "leftouter"):
        assert two(frames, how).joins == two(frames, "left").joins
    assert two(frames, "left").joins == sw.join(a=frames["a"], b=frames["b"]).optional("b").joins
    assert two(frames, "outer").joins.how == "full"


STARTED: dict[str, tuple[Callable[[Frames], object], type[SpillwayError], str, str]] = {
    "unbounded": (
        lambda f: two(f, "left"),
        PlanError,
        "the left join of a, b has no window",
        ".within(",
    ),
    "plan": (
        lambda f: three(f).optional("b").plan("tree"),
        PlanError,
        "a left join cannot have plan()",
        "leave plan() out",
    ),
    "no keys": (
        lambda f: (
            sw.join(a=f["a"], b=f["b"], how="full").within("1 hour", time="ts").match("a.v < b.v")
        ),
        PlanError,
        "the full join of a, b has no equal keys",
        "add .on(...)",
    ),
    "two optional": (
        lambda f: three(f).match("b.v < c.v").optional("b", "c"),
        PlanError,
        "is about b, which may be missing when c joins",
        "take b out of optional()",
    ),
    "later window": (
        lambda f: (
            two(f, "left")
            .within("1 hour", time="ts")
            .select("a.k", "a.ts AS at")
            .group_by("k")
            .within("5 minutes", time="at")
            .agg(n=sw.count())
        ),
        PlanError,
        "rows without partners come 3600 s later than others",
        'lateness="3600 seconds"',
    ),
}


@pytest.mark.parametrize("case", STARTED)
def test_start_refuses_what_the_kind_cannot_do(frames: Frames, tmp_path: Path, case: str) -> None:
    build, kind, message, hint = STARTED[case]
    with pytest.raises(kind) as refused:
        start(build(frames), tmp_path)
    assert message in str(refused.value)
    assert hint in str(refused.value)


def test_parallel_tracks_are_refused_with_the_reason(frames: Frames, tmp_path: Path) -> None:
    join = two(frames, "anti").within("1 hour", time="ts")
    with pytest.raises(SettingsError, match="decided once") as refused:
        start(join, tmp_path, moves="ptlb")
    assert 'moves="mslb"' in str(refused.value)


def test_checkpoint_of_another_kind_is_refused(frames: Frames, tmp_path: Path) -> None:
    assert start(two(frames, "left").within("1 hour", time="ts"), tmp_path).awaitTermination(120)
    with pytest.raises(QueryError, match=r"its join was left \(b optional\), now full"):
        start(two(frames, "full").within("1 hour", time="ts"), tmp_path)

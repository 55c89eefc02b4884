"""The sources of a streaming DataFrame, as plain data for the metadata of a checkpoint.

It has only the names of places, without secrets. Other options may hold passwords, so it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spillway.redaction import hidden
from spillway.spark.api.session import qualified

#: Options that say where a source reads.
_PLACES = ("path", "subscribe", "subscribepattern", "assign", "topic", "host", "port", "table")
#: Spark's name for a source that reads the files of a directory.
_FILES = "FileSource["


def sources_of(frame: DataFrame) -> list[list[Any]]:
    """The sources in the order in which Spark numbers them: kind, place, and whether it has files."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves().iterator()
    found = []
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.isStreaming():
            found.append(list(_source(frame.sparkSession, leaf)))
    return found


def _source(spark: SparkSession, leaf: Any) -> tuple[str, str, bool]:
    kind = str(leaf.nodeName())
    if kind == "StreamingRelation":
        source, files = leaf.dataSource(), str(leaf.sourceName()).startswith(_FILES)
        return str(source.className()), _place(spark, _options(source.options()), files), files
    if kind == "StreamingRelationV2":
        options = dict(leaf.extraOptions().asCaseSensitiveMap())
        return str(leaf.sourceName()), _place(spark, options, False), False
    return kind, "", False


def _place(spark: SparkSession, options: Mapping[str, Any], files: bool) -> str:
    given = {key.lower(): str(value) for key, value in options.items()}
    named = [given[name] for name in _PLACES if name in given]
    return hidden(" ".join(qualified(spark, one).rstrip("/") if files else one for one in named))


def _options(options: Any) -> Mapping[str, str]:
    """A Scala map as a mapping."""
    return dict(_pairs(options.iterator()))


def _pairs(entries: Any) -> Iterator[tuple[str, str]]:
    while entries.hasNext():
        entry = entries.next()
        yield str(entry._1()), str(entry._2())

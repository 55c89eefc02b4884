"""What a batch does to the rows of a table: append them, or merge them by key.

With the option `mergeKeys`, a result replaces the row of the table that has the same key, and with
`deleteWhen` a result for which the SQL condition holds removes that row. NULL is a key like any other.
A batch must not have two results of one key, since neither would be the newer one.

`Changes` makes the same MERGE for every system; `Dialect` says how the system writes names and how it
compares keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from spillway.errors import PlanError, QueryError
from spillway.spark.sinks.refusal import any_failure
from spillway.spark.sinks.spec import SinkSpec

#: The column that says whether a result deletes the row of its key.
DELETES = "_spillway_deletes"
#: Options that this module reads; sinks do not pass them on.
OPTIONS = ("mergeKeys", "deleteWhen")


def tick(name: str) -> str:
    """A name in Spark's SQL.

    Example:
        >>> tick("a`b")
        '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Changes:
    """The columns of the results, and what the results do to the table."""

    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    delete_when: str | None = None
    quote: Callable[[str], str] = tick

    @staticmethod
    def of(
        spec: SinkSpec, schema: StructType, kind: str, quote: Callable[[str], str] = tick
    ) -> Changes:
        """What the options of the writer ask for; raises `PlanError` if the results do not fit."""
        text, condition = spec.option("mergeKeys"), spec.option("deleteWhen")
        keys = tuple(name.strip() for name in (text or "").split(",") if name.strip())
        if text is not None and not keys:
            raise PlanError("option mergeKeys names no column", hint='for example "customer, day"')
        if condition is not None and not keys:
            raise PlanError(
                f"option deleteWhen of the sink {kind!r} needs mergeKeys",
                hint='name the key of the rows: .option("mergeKeys", "customer")',
            )
        _check_names(schema, kind)
        return Changes(
            tuple(schema.names), tuple(_column(schema, key) for key in keys), condition, quote
        )

    def check_condition(self, rows: DataFrame) -> None:
        """Lets Spark check deleteWhen on rows that have the columns of the results."""
        with any_failure(
            f"option deleteWhen: Spark cannot evaluate {self.delete_when!r} on the results",
            hint=f"the results have the columns {', '.join(self.columns)}",
        ):
            self.flagged(rows)

    def flagged(self, rows: DataFrame) -> DataFrame:
        """The rows, with the column DELETES if some may delete."""
        if self.delete_when is None:
            return rows
        return rows.withColumn(DELETES, F.coalesce(F.expr(self.delete_when), F.lit(False)))

    @property
    def staged(self) -> tuple[str, ...]:
        """The columns of `flagged`."""
        return (*self.columns, DELETES) if self.delete_when is not None else self.columns

    def insert(self, target: str, source: str) -> str:
        """Appends the rows of the source."""
        names = ", ".join(map(self.quote, self.columns))
        return f"INSERT INTO {target} ({names}) SELECT {names} FROM {source}"

    def merge(self, target: str, source: str, match: str) -> str:
        """Replaces, deletes and inserts rows by key; `match` compares keys of `t` and `s`."""
        names = [self.quote(name) for name in self.columns]
        values = ", ".join(f"s.{name}" for name in names)
        deletes = f"s.{self.quote(DELETES)}"
        others = [self.quote(name) for name in self.columns if name not in self.keys]
        lines = [f"MERGE INTO {target} AS t USING {source} AS s ON {match}"]
        if self.delete_when is not None:
            lines.append(f"WHEN MATCHED AND {deletes} THEN DELETE")
        if others:
            sets = ", ".join(f"{name} = s.{name}" for name in others)
            lines.append(f"WHEN MATCHED THEN UPDATE SET {sets}")
        unmatched = f" AND NOT {deletes}" if self.delete_when is not None else ""
        lines.append(
            f"WHEN NOT MATCHED{unmatched} THEN INSERT ({', '.join(names)}) VALUES ({values})"
        )
        return " ".join(lines)

    def same_key_twice(self, number: int, example: str) -> QueryError:
        """The error for a batch with two results of one key."""
        return QueryError(
            f"batch {number} has more than one result with the same key "
            f"({', '.join(self.keys)}), for example {example}",
            detail="with mergeKeys one result replaces another, and none of two is the newer one",
            hint="name all columns that tell results apart in mergeKeys, or group_by(...) these keys "
            'with outputMode("update")',
        )


def check_options(spec: SinkSpec, kind: str, known: Sequence[str]) -> None:
    """Rejects options that a statement cannot pass on; names with a dot are properties of the table."""
    allowed = {name.lower() for name in (*known, *OPTIONS)}
    for name in spec.options:
        if name.lower() not in allowed and "." not in name and "-" not in name:
            raise PlanError(
                f"the sink {kind!r} does not take the option {name}",
                hint=f"it takes {', '.join((*known, *OPTIONS))}; set others as properties of the table, "
                "or as settings of the session",
            )


def _check_names(schema: StructType, kind: str) -> None:
    lower = [name.lower() for name in schema.names]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise PlanError(
            f"the result has more than one column named {', '.join(twice)}",
            hint=f"{kind} needs distinct names: select(...) the columns, each with its own alias",
        )
    if DELETES in lower:
        raise PlanError(
            f"the result has a column {DELETES}, a name that the sink uses itself",
            hint="select(...) it under another name",
        )


def _column(schema: StructType, key: str) -> str:
    found = next((field for field in schema if field.name.lower() == key.lower()), None)
    if found is None:
        raise PlanError(
            f"option mergeKeys: the result has no column {key!r}",
            hint=f"its columns are {', '.join(schema.names)}",
        )
    if isinstance(found.dataType, (StructType, ArrayType, MapType)):
        raise PlanError(
            f"option mergeKeys: column {key!r} is of type {found.dataType.simpleString()}, "
            "which cannot be a key",
            hint="name columns of simple types",
        )
    return found.name


def check_same(there: Sequence[str], given: Sequence[str], place: str) -> None:
    """Rejects results that have columns which the table does not have; the table may have more."""
    known = {name.lower() for name in there}
    missing = [name for name in given if name.lower() not in known]
    if missing:
        raise PlanError(
            f"{place} has the columns {', '.join(there)}; the result has {', '.join(given)}",
            hint=f"select(...) columns of the table, or add {', '.join(missing)} to it",
        )

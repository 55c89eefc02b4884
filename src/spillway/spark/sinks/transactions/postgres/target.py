"""PostgreSQL: a staging table for each attempt at a batch, and one transaction for rows and number.

    prepare   the tasks COPY their rows, in parallel, into an unlogged table of the attempt
    commit    one transaction: the number, the rows from the staging table, and its removal

The table `spillway_commits`, next to the target, has the newest number of each query. A commit raises
the number only if it is smaller, which also locks it: of two drivers one waits, and then finds the
number there. A server that crashed empties unlogged tables, so a commit counts the staged rows first.

MERGE cannot compare NULL with `=`, and with IS NOT DISTINCT FROM it uses no index. So the sink merges
once for each combination of NULL keys in the batch, as a rule once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spillway.errors import EnvironmentMissing, PlanError, QueryError
from spillway.spark.sinks.spec import SinkSpec
from spillway.spark.sinks.transactions.changes import DELETES, Changes, check_options, check_same
from spillway.spark.sinks.transactions.postgres.copying import ANSWER, ATTEMPT, copier
from spillway.spark.sinks.transactions.postgres.types import column_type, written

if TYPE_CHECKING:
    import psycopg

#: The table with the numbers.
COMMITS = "spillway_commits"
#: MERGE and UNIQUE NULLS NOT DISTINCT exist from this release on.
_OLDEST = 150000
#: How long the removal of a dead attempt's table waits for a task that still writes to it.
_SWEEP_WAIT = "5s"


@dataclass(frozen=True)
class Staged:
    """The staging table of an attempt, and what its tasks copied."""

    table: str
    attempts: tuple[int, ...]
    rows: int


def quoted(name: str) -> str:
    """A name in PostgreSQL's SQL.

    Example:
        >>> quoted('a"b')
        '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


class PostgresTarget:
    """A table of PostgreSQL."""

    def __init__(self, spec: SinkSpec, spark: SparkSession) -> None:
        self._spec = spec
        self._spark = spark
        self._address = _needed(spec, "url", "postgresql://user@host/database")
        parts = _needed(spec, "dbtable", "schema.table").split(".")
        self._parts = tuple(part.strip('"') for part in parts)
        if len(parts) > 2 or not all(self._parts):
            raise PlanError(
                f"option dbtable must be a table or schema.table, not {spec.option('dbtable')!r}",
                hint='for example .option("dbtable", "public.totals")',
            )
        self.name = ".".join(map(quoted, self._parts))
        self._writer = spec.writer or "query"
        self._changes = Changes(())

    def open(self, schema: StructType) -> None:
        """Checks columns, keys and types; creates the table if it is missing."""
        check_options(self._spec, "postgresql", ("url", "dbtable"))
        self._changes = Changes.of(self._spec, schema, "postgresql", quoted)
        self._changes.check_condition(self._spark.createDataFrame([], schema))
        types = {field.name: column_type(field) for field in schema}
        with self._connection() as connection:
            if connection.info.server_version < _OLDEST:
                raise PlanError(
                    f"the sink 'postgresql' needs PostgreSQL {_OLDEST // 10000} or newer, not "
                    f"{connection.info.server_version // 10000}",
                    hint="update the server, or use the sink 'jdbc'",
                )
            # Two queries that start at once must not create the tables twice.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('spillway'))")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._beside(COMMITS)} (writer text PRIMARY KEY, "
                "number bigint NOT NULL, committed_at timestamptz NOT NULL DEFAULT now())"
            )
            connection.execute(self._creation(types))
            there = connection.execute(f"SELECT * FROM {self.name} LIMIT 0").description or ()
        check_same([one.name for one in there], self._changes.columns, f"the table {self.name}")
        # PostgreSQL tells names apart by case, Spark does not.
        names = {one.name.lower(): one.name for one in there}
        self._changes = replace(
            self._changes,
            columns=tuple(names[name.lower()] for name in self._changes.columns),
            keys=tuple(names[name.lower()] for name in self._changes.keys),
        )

    def last(self) -> int | None:
        """The number of this query in `spillway_commits`."""
        with self._connection() as connection:
            found = connection.execute(
                f"SELECT number FROM {self._beside(COMMITS)} WHERE writer = %s", [self._writer]
            ).fetchone()
        return None if found is None else int(found[0])

    def prepare(self, rows: DataFrame, number: int) -> Staged:
        """Copies the rows into a new staging table, from all tasks at once."""
        table = self._beside(f"{self._prefix}{number}_{uuid.uuid4().hex[:8]}")
        columns = ", ".join(map(quoted, self._changes.columns))
        flags = [f"ADD COLUMN {quoted(ATTEMPT)} bigint"]
        if self._changes.delete_when is not None:
            flags.insert(0, f"ADD COLUMN {quoted(DELETES)} boolean")
        with self._connection() as connection:
            connection.execute(
                f"CREATE UNLOGGED TABLE {table} AS SELECT {columns} FROM {self.name} WITH NO DATA"
            )
            connection.execute(f"ALTER TABLE {table} {', '.join(flags)}")
        staged = ", ".join(map(quoted, (*self._changes.staged, ATTEMPT)))
        copied = written(self._changes.flagged(rows)).mapInArrow(
            copier(self._address, table, staged), ANSWER
        )
        answers = copied.collect()
        return Staged(
            table, tuple(one.attempt for one in answers), sum(one.rows for one in answers)
        )

    def commit(self, prepared: Staged, number: int) -> None:
        """Applies the staged rows and the number in one transaction."""
        with self._connection() as connection:
            if not self._raise_number(connection, number):
                return
            attempts = ", ".join(map(str, prepared.attempts)) or "NULL"
            rows = f"(SELECT * FROM {prepared.table} WHERE {quoted(ATTEMPT)} IN ({attempts}))"
            [there] = connection.execute(f"SELECT count(*) FROM {rows} AS s").fetchone() or (0,)
            if there != prepared.rows:
                raise QueryError(
                    f"the table {self.name}: {there} of {prepared.rows} staged rows of batch {number} "
                    "are there",
                    detail="a server that crashed empties unlogged tables",
                    hint="start the query again; it repeats the batch",
                )
            if self._changes.keys:
                self._merge(connection, rows, number)
            else:
                connection.execute(self._changes.insert(self.name, f"{rows} AS s"))
            connection.execute(f"DROP TABLE {prepared.table}")

    def discard(self, prepared: Staged) -> None:
        """Drops the staging table of a failed commit; a sweep does it if the server is away."""
        self._drop(prepared.table)

    def sweep(self) -> None:
        """Drops the staging tables of dead attempts."""
        schema = "%s::text" if len(self._parts) > 1 else "coalesce(%s::text, current_schema())"
        with self._connection() as connection:
            found = connection.execute(
                "SELECT tablename FROM pg_tables WHERE starts_with(tablename, %s) AND "
                f"schemaname = {schema}",
                [self._prefix, self._parts[0] if len(self._parts) > 1 else None],
            ).fetchall()
        for (name,) in found:
            self._drop(self._beside(name))

    def _drop(self, table: str) -> None:
        import psycopg

        try:
            with psycopg.connect(self._address) as connection:
                connection.execute(f"SET lock_timeout = '{_SWEEP_WAIT}'")
                connection.execute(f"DROP TABLE IF EXISTS {table}")
        except psycopg.Error:
            # A task of a dead driver still writes to it; a later sweep finds it.
            return

    def _raise_number(self, connection: psycopg.Connection[Any], number: int) -> bool:
        """Whether the number was not there; this transaction now holds it."""
        raised = connection.execute(
            f"INSERT INTO {self._beside(COMMITS)} AS c (writer, number) VALUES (%s, %s) "
            "ON CONFLICT (writer) DO UPDATE SET number = excluded.number, committed_at = now() "
            "WHERE c.number < excluded.number",
            [self._writer, number],
        )
        return raised.rowcount == 1

    def _merge(self, connection: psycopg.Connection[Any], rows: str, number: int) -> None:
        keys = [quoted(key) for key in self._changes.keys]
        names = ", ".join(keys)
        twice = connection.execute(
            f"SELECT {names} FROM {rows} AS s GROUP BY {names} HAVING count(*) > 1 LIMIT 1"
        ).fetchone()
        if twice is not None:
            raise self._changes.same_key_twice(number, str(tuple(twice)))
        nulls = ", ".join(f"{key} IS NULL" for key in keys)
        for pattern in connection.execute(f"SELECT DISTINCT {nulls} FROM {rows} AS s").fetchall():
            both = list(zip(keys, pattern, strict=True))
            of = " AND ".join(f"{key} IS {'' if null else 'NOT '}NULL" for key, null in both)
            match = " AND ".join(
                f"t.{key} IS NULL" if null else f"t.{key} = s.{key}" for key, null in both
            )
            source = f"(SELECT * FROM {rows} AS s WHERE {of})"
            connection.execute(self._changes.merge(self.name, source, match))

    def _creation(self, types: dict[str, str]) -> str:
        columns = [f"{quoted(name)} {kind}" for name, kind in types.items()]
        if self._changes.keys:
            keys = ", ".join(map(quoted, self._changes.keys))
            columns.append(f"UNIQUE NULLS NOT DISTINCT ({keys})")
        return f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(columns)})"

    @property
    def _prefix(self) -> str:
        return f"spillway_stage_{self._writer[:16]}_"

    def _beside(self, table: str) -> str:
        """A table in the schema of the target."""
        return ".".join(map(quoted, (*self._parts[:-1], table)))

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        """One transaction: commits at the end of the block, or rolls back."""
        import psycopg

        try:
            with psycopg.connect(self._address) as connection:
                yield connection
        except psycopg.Error as problem:
            raise QueryError(
                f"PostgreSQL: the query cannot use the table {self.name}",
                detail=str(problem).strip(),
                hint="check the option url, the permissions and the server; a restart repeats the batch",
            ) from None


def require_driver() -> None:
    """Raises if psycopg is missing."""
    try:
        import psycopg  # noqa: F401
    except ImportError as missing:
        raise EnvironmentMissing(
            "the sink 'postgresql' needs psycopg, the driver of PostgreSQL",
            detail=str(missing),
            hint="pip install 'spillway[postgresql]', for the Python of driver and executors",
        ) from None


def _needed(spec: SinkSpec, option: str, example: str) -> str:
    require_driver()
    value = spec.option(option)
    if not value:
        raise PlanError(
            f"the sink 'postgresql' needs the option {option}",
            hint=f'add .option("{option}", "{example}")',
        )
    return value

"""The fields of a job file, as frozen values that check themselves.

A job has sources (what Spark reads), streams over them (filters, columns, event time), one query, one
sink, a checkpoint, and settings. pydantic checks fields and types; `jobs/reading.py` turns its errors
into ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import Self

from spillway.duration import duration_us
from spillway.errors import SpillwayError
from spillway.settings import Adapt

#: Values of options; Spark reads them as text.
Option = str | bool | int | float
#: A name that SQL and Python can use.
_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Source(_Part):
    """What Spark reads as a stream."""

    format: str
    path: str | None = None
    #: The columns as DDL text. Files of Parquet and ORC know theirs.
    schema_text: str | None = Field(default=None, alias="schema")
    options: dict[str, Option] = {}


class Watermark(_Part):
    """The event time of a stream, and how late its rows may be."""

    time: str
    lateness: str = "0 seconds"

    @field_validator("lateness")
    @classmethod
    def _check(cls, value: str) -> str:
        _told(lambda: duration_us("lateness", value))
        return value


class StreamOf(_Part):
    """A stream over a source, or over an earlier stream."""

    of: str = Field(alias="from")
    where: str | None = None
    select: list[str] | None = None
    watermark: Watermark | None = None


class QueryText(_Part):
    """The query: SQL text, a file of it, or a function `module:name` in Python."""

    sql: str | None = None
    file: str | None = None
    python: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [name for name in ("sql", "file", "python") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"must have one of sql, file and python, not {' and '.join(given) or 'none'}"
            )
        if self.python is not None and self.python.count(":") != 1:
            raise ValueError(f"python: {self.python!r} is not module:function")
        return self


class SinkTo(_Part):
    """Where the results go."""

    format: str | None = None
    path: str | None = None
    table: str | None = None
    mode: Literal["append", "update"] | None = None
    partition_by: list[str] = []
    options: dict[str, Option] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.format is None and self.table is None:
            raise ValueError("must have a format (parquet, console, kafka, ...) or a table")
        return self


class Trigger(_Part):
    """When batches run."""

    processing_time: str | None = None
    available_now: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.processing_time is not None and self.available_now:
            raise ValueError("must have processing_time or available_now, not both")
        if self.processing_time is not None:
            _told(lambda: duration_us("processing_time", str(self.processing_time)))
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the writer's `trigger`."""
        if self.available_now:
            return {"availableNow": True}
        return {} if self.processing_time is None else {"processingTime": self.processing_time}


class Session(_Part):
    """The Spark session that the job starts, if none runs."""

    master: str = "local[*]"
    conf: dict[str, Option] = {}


class Job(_Part):
    """All of a job file."""

    name: str = Field(pattern=_NAME)
    sources: dict[str, Source] = Field(min_length=1)
    streams: dict[str, StreamOf] = {}
    query: QueryText
    sink: SinkTo
    checkpoint: str | None = None
    adapt: dict[str, Any] = {}
    trigger: Trigger = Trigger()
    session: Session = Session()
    #: The folder of the file; queries in files and modules are there.
    folder: Path = Field(default=Path(), exclude=True)

    @field_validator("adapt")
    @classmethod
    def _check_adapt(cls, value: dict[str, Any]) -> dict[str, Any]:
        _told(lambda: Adapt().changed(**value))
        return value

    @model_validator(mode="after")
    def _check_streams(self) -> Self:
        known = list(self.sources)
        for name, stream in self.streams.items():
            if name in self.sources:
                raise ValueError(f"streams.{name} has the name of a source; use another name")
            if stream.of not in known:
                raise ValueError(
                    f"streams.{name}.from names {stream.of!r}, which is not a source or an earlier "
                    f"stream; there are {', '.join(known)}"
                )
            known.append(name)
        return self


def _told(check: Any) -> None:
    """Raises our errors as pydantic's, which name the field."""
    try:
        check()
    except SpillwayError as problem:
        raise ValueError(f"{problem.message}; {problem.hint}") from problem

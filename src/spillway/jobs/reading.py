"""Reads a job file: YAML or JSON, values of the environment, fields. Errors name the field."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.errors import EnvironmentMissing, SettingsError
from spillway.jobs.environment import JOB_DIR, with_environment

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from spillway.jobs.spec import Job

_INSTALL = "pip install 'spillway[jobs]'"
#: What a field must be, by pydantic's word for its error.
_WANTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping of names",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "list_type": "a list",
}
_EXAMPLES = {
    "name": "name: cheapest_offers",
    "sources": "sources: {orders: {format: kafka, options: {subscribe: orders}}}",
    "query": "query: {sql: SELECT ...}",
    "sink": "sink: {format: parquet, path: out}",
    "format": "format: parquet",
    "from": "from: orders",
    "time": "time: ts",
}


def read_job(path: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> Job:
    """The job in a file; raises `SettingsError` with the field that is wrong."""
    place = Path(path)
    try:
        text = place.read_text()
    except OSError as problem:
        raise SettingsError(
            f"the job file {place} cannot be read",
            detail=problem.strerror,
            hint="give the path of a YAML or JSON file, or of a .sql file with --stream",
        ) from problem
    folder = place.absolute().parent
    given = os.environ if environment is None else environment
    document = with_environment(_parsed(text, place), {**given, JOB_DIR: str(folder)})
    return job_of(document, str(place), folder)


def job_of(document: Any, title: str, folder: Path) -> Job:
    """The job of a parsed file; `title` is what errors call it."""
    _require("pydantic")
    from pydantic import ValidationError

    from spillway.jobs.spec import Job

    if not isinstance(document, Mapping):
        raise SettingsError(
            f"{title} is not a job", hint="write fields: name, sources, query, sink, checkpoint"
        )
    try:
        return Job.model_validate({**document, "folder": folder})
    except ValidationError as problem:
        raise _refused(problem, title) from None


def _parsed(text: str, place: Path) -> Any:
    if place.suffix == ".json":
        try:
            return json.loads(text)
        except json.JSONDecodeError as problem:
            raise _unreadable(place, problem.lineno, problem.colno, problem.msg) from problem
    _require("yaml")
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        at = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _unreadable(place, *at, str(problem.problem)) from problem
    except yaml.YAMLError as problem:
        raise _unreadable(place, 1, 1, str(problem)) from problem


def _unreadable(place: Path, line: int, column: int, why: str) -> SettingsError:
    return SettingsError(
        f"the job file {place} is not valid {'JSON' if place.suffix == '.json' else 'YAML'}",
        detail=f"line {line}, column {column}: {why}",
        hint="indent fields with spaces, and quote text that has a colon or a #",
    )


def _require(package: str) -> None:
    try:
        __import__(package)
    except ModuleNotFoundError as problem:
        raise EnvironmentMissing(
            f"job files need the Python package {package}, which is not installed", hint=_INSTALL
        ) from problem


def _refused(problem: ValidationError, title: str) -> SettingsError:
    """The first problem as message and hint, the others as detail."""
    # Values are not shown: they may be secrets.
    found = [_told(one) for one in problem.errors(include_url=False, include_context=False)]
    (message, hint), *others = found
    return SettingsError(
        f"{title}: {message}",
        detail="; ".join(message for message, _ in others) or None,
        hint=hint,
    )


def _told(error: ErrorDetails) -> tuple[str, str]:
    """What is wrong with a field, and what to write."""
    place = [str(part) for part in error["loc"]]
    field, kind = ".".join(place) or "the job", error["type"]
    last = place[-1] if place else ""
    example = _EXAMPLES.get(last, f"see docs/guide/jobs.md for {field}")
    if kind == "missing":
        return f"{field} is missing", f"for example {example}"
    if kind == "extra_forbidden":
        known = _fields_next_to(place)
        near = difflib.get_close_matches(last, known, n=1)
        mean = f"did you mean {near[0]}? " if near else ""
        return f"{field} is not a field", f"{mean}the fields are {', '.join(known)}"
    if kind == "value_error":
        message, _, hint = str(error["msg"]).removeprefix("Value error, ").partition("; ")
        return f"{field}: {message}" if place else message, hint or example
    if kind == "too_short":
        return f"{field} is empty", f"for example {example}"
    if kind == "string_pattern_mismatch":
        return f"{field} is not a name", "use letters, digits and _, and begin with a letter"
    wanted = _WANTED.get(kind)
    if wanted is None:
        return f"{field}: {error['msg']}", example
    return f"{field} must be {wanted}", f"quote it if it is text: {last}: '...'"


def _fields_next_to(place: list[str]) -> list[str]:
    """The fields of the part of a job in which a field is."""
    from spillway.jobs import spec

    parts: dict[str, type[spec._Part]] = {
        "sources": spec.Source, "streams": spec.StreamOf, "watermark": spec.Watermark,
        "query": spec.QueryText, "sink": spec.SinkTo, "trigger": spec.Trigger,
        "session": spec.Session,
    }  # fmt: skip
    named = [parts[one] for one in place[:-1] if one in parts]
    fields = (named[-1] if named else spec.Job).model_fields
    return [one.alias or name for name, one in fields.items() if name != "folder"]

"""A SQL file with options of the command line as a job: `spillway run QUERY.sql --stream ...`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.errors import SettingsError
from spillway.jobs.reading import job_of

if TYPE_CHECKING:
    from spillway.jobs.spec import Job

AVAILABLE_NOW = "available-now"


@dataclass(frozen=True)
class Flags:
    """The options of the command line, as the user wrote them."""

    streams: Sequence[str]
    schemas: Sequence[str] = ()
    options: Sequence[str] = ()
    sink: str = "console"
    checkpoint: str | None = None
    adapt: Sequence[str] = ()
    trigger: str | None = None
    master: str | None = None


def job_of_flags(path: Path, flags: Flags) -> Job:
    """The job of a SQL file.

    A stream is `name=format:path`, or `name=format` for a format without a path. An option is
    `name.key=value`, where `name` is a stream or `sink`.
    """
    if not path.is_file():
        raise SettingsError(f"there is no file {path}", hint="give the path of a .sql file")
    if not flags.streams:
        raise SettingsError(
            f"{path} reads streams that nothing describes",
            hint="add --stream orders=parquet:data/orders for each stream in FROM",
        )
    sources: dict[str, dict[str, Any]] = {}
    for one in flags.streams:
        name, text = _pair("--stream", one, "orders=parquet:data/orders")
        kind, _, place = text.partition(":")
        sources[name] = {"format": kind, "path": place or None, "options": {}}
    for one in flags.schemas:
        name, text = _pair("--schema", one, "orders='id bigint, ts timestamp'")
        _of(sources, "--schema", name)["schema"] = text
    kind, _, place = flags.sink.partition(":")
    to: dict[str, Any] = {"format": kind, "path": place or None, "options": {}}
    for one in flags.options:
        key, value = _pair("--option", one, "orders.maxFilesPerTrigger=1")
        name, _, key = key.partition(".")
        part = to if name == "sink" else _of(sources, "--option", name)
        part["options"][key] = value
    settings = dict(_pair("--adapt", one, "slots=2") for one in flags.adapt)
    name = "".join(c if c.isalnum() else "_" for c in path.stem).lstrip("_0123456789")
    document = {
        "name": name or "query",
        "sources": sources,
        "query": {"file": str(path.absolute())},
        "sink": to,
        "checkpoint": flags.checkpoint,
        "adapt": {name: _value(value) for name, value in settings.items()},
        "trigger": _trigger(flags.trigger),
        "session": {} if flags.master is None else {"master": flags.master},
    }
    return job_of(document, str(path), path.absolute().parent)


def _pair(flag: str, text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise SettingsError(
            f"{flag} {text!r} is not name=value", hint=f"for example {flag} {example}"
        )
    return name, value


def _of(sources: dict[str, dict[str, Any]], flag: str, name: str) -> dict[str, Any]:
    if name not in sources:
        raise SettingsError(
            f"{flag} names {name!r}, which is not a stream",
            hint=f"the streams are {', '.join(sources)}",
        )
    return sources[name]


def _trigger(text: str | None) -> dict[str, Any]:
    if text == AVAILABLE_NOW:
        return {"available_now": True}
    return {} if text is None else {"processing_time": text}


def _value(text: str) -> str | int | float | bool:
    """A setting as a number or a truth value, if it is written as one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

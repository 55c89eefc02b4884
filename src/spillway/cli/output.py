"""What commands print: one JSON document on standard output, or text for people.

With `--json`, standard output carries that document and nothing else: progress goes to standard
error, and a user error is a document too. Every user error ends the command with exit code 2.
A command looks like this:

    def inspect(checkpoint: str, json_output: JsonOption = False) -> None:
        with guarded(json_output):
            found = ...
        if json_output:
            emit_json(found)
        else:
            console_for(json_output).print(...)
"""

from __future__ import annotations

import json as _json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from spillway.errors import SpillwayError, keeping_secrets
from spillway.redaction import hidden

USER_ERROR = 2

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, nothing else.")
]


def emit_json(obj: object) -> None:
    """Print `obj` as the one document of the command; NaN and infinity raise, JSON has neither."""
    typer.echo(_json.dumps(obj, indent=2, allow_nan=False))


def console_for(json: bool) -> Console:
    """Where text for people goes: standard output, or standard error with `--json`.

    The console prints texts unchanged: square brackets in a path or a name are not markup.
    """
    return Console(stderr=json, markup=False, highlight=False)


@contextmanager
def guarded(json: bool) -> Iterator[None]:
    """Report a `SpillwayError` of the block, or of the decorated function, and exit with code 2."""
    try:
        with keeping_secrets():
            yield
    except SpillwayError as error:
        if json:
            emit_json({"error": error_parts(error)})
        else:
            print_error(error)
        raise typer.Exit(USER_ERROR) from error


def error_parts(error: Exception) -> dict[str, str | None]:
    """An error as plain data."""
    if isinstance(error, SpillwayError):
        return {"message": error.message, "detail": error.detail, "hint": error.hint}
    # Spark's text has the stack of Java; the cause is what failed in Python.
    cause = error if error.__cause__ is None else error.__cause__
    told = next(filter(None, (line.strip() for line in str(cause).splitlines())), "")
    return {"message": hidden(f"{type(cause).__name__}: {told}"), "detail": None, "hint": None}


def print_error(error: Exception) -> None:
    """Prints an error for people on standard error."""
    Console(stderr=True, soft_wrap=True).print(_described(error))


def _described(error: Exception) -> Text:
    """The three parts, as in `str(error)`, with "error:" in front."""
    told = str(error) if isinstance(error, SpillwayError) else error_parts(error)["message"]
    text = Text.assemble(("error: ", "bold red"), str(told))
    text.highlight_regex(r"(?m)^  (detail|hint):", "bold")
    return text

"""The `spillway` command.

A command is a function that an entry point of the group `spillway.commands` names; so other packages,
such as the laboratory, add commands of their own. All commands are imported to print the help, so a
command imports Spark inside its function, not at the top of its module.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Annotated

import typer

COMMANDS = "spillway.commands"
#: The order in which the help lists commands; others come after them, by name.
ORDER = ("demo", "bench", "reproduce", "simulate", "inspect", "doctor")

app = typer.Typer(
    name="spillway",
    help="Adaptive, state-intensive stream queries on Apache Spark.",
    no_args_is_help=True,
    # A defect is reported with a plain traceback, which can be copied; user errors never get here.
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spillway {_version()}")
        raise typer.Exit


def _version() -> str:
    try:
        return metadata.version("spillway")
    except metadata.PackageNotFoundError:
        return "(not installed)"


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def _place(found: metadata.EntryPoint) -> tuple[int, str]:
    return (ORDER.index(found.name) if found.name in ORDER else len(ORDER), found.name)


def _command(found: metadata.EntryPoint) -> Callable[..., None]:
    """The function behind an entry point, or one that says what it lacks."""
    try:
        loaded: Callable[..., None] = found.load()
        return loaded
    except ImportError as problem:
        missing = problem.name or str(problem)

    def lacking() -> None:
        typer.echo(f"error: spillway {found.name} needs the module {missing}", err=True)
        typer.echo("  hint: pip install 'spillway[lab]'", err=True)
        raise typer.Exit(2)

    lacking.__doc__ = f"Needs {missing}: pip install 'spillway[lab]'."
    return lacking


for _found in sorted(metadata.entry_points(group=COMMANDS), key=_place):
    app.command(_found.name)(_command(_found))


if __name__ == "__main__":
    main()

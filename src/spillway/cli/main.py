"""The `spillway` command.

A command is a module of this package with a function of the same name: `doctor.py` has `doctor`.
To add one, add its name to `COMMANDS`; the help lists them in that order. Modules are all imported
to print the help, so a command imports Spark inside its function, not at the top of its module.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Annotated

import typer

COMMANDS = ("demo", "bench", "reproduce", "simulate", "inspect", "doctor")

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


for _name in COMMANDS:
    app.command(_name)(getattr(import_module(f"spillway.cli.{_name}"), _name))


if __name__ == "__main__":
    main()

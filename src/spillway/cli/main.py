"""The `spillway` command.

A command is a function that an entry point of the group `spillway.commands` names, so other packages,
such as the laboratory, add their own. Printing the help imports the module of every command. A command
therefore imports Spark, Arrow and NumPy inside its function, and the command line starts without them:
`spillway doctor` must run on a machine that has none of them. A command that then misses a package
says which one, and what to install, and exits 2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import metadata
from typing import Annotated, Any

import typer

from spillway.cli.output import guarded
from spillway.errors import EnvironmentMissing

COMMANDS = "spillway.commands"
#: The order in which the help lists commands; others follow by name.
ORDER = ("demo", "run", "bench", "reproduce", "simulate", "dashboard", "inspect", "doctor", "chaos")
#: Packages of this distribution: an import of one that fails is a defect, not a missing package.
_OWN = ("spillway", "spillway_lab")

app = typer.Typer(
    name="spillway",
    help="Adaptive, state-intensive stream queries on Apache Spark.",
    no_args_is_help=True,
    # A defect prints a plain traceback, which can be copied; user errors never get here.
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


def register(commands: typer.Typer, found: metadata.EntryPoint) -> None:
    """Add the command behind an entry point, or one that says why it cannot be imported."""
    try:
        function = found.load()
    except ImportError as problem:
        # Any arguments: what the real command takes is not known.
        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        commands.command(found.name, context_settings=anything)(_unavailable(found, problem))
    else:
        commands.command(found.name)(_explained(found, function))


def _explained(found: metadata.EntryPoint, function: Callable[..., None]) -> Callable[..., None]:
    """The command, which names a package that it misses instead of printing a traceback."""

    @wraps(function)
    def command(*args: Any, **options: Any) -> None:
        with guarded(bool(options.get("json_output"))):
            try:
                function(*args, **options)
            except ModuleNotFoundError as problem:
                if (problem.name or "").partition(".")[0] in ("", *_OWN):
                    raise
                raise _missing(found, problem) from problem

    return command


def _unavailable(found: metadata.EntryPoint, problem: ImportError) -> Callable[..., None]:
    missing = _missing(found, problem)

    def command(context: typer.Context) -> None:
        with guarded("--json" in context.args):
            raise missing

    command.__doc__ = f"Not available: {missing.hint}."
    return command


def _missing(found: metadata.EntryPoint, problem: ImportError) -> EnvironmentMissing:
    """What to install; the laboratory needs more than the product does."""
    what = (problem.name or str(problem)).partition(".")[0]
    own = found.module.partition(".")[0] == "spillway"
    wanted = "spillway" if own else "'spillway[lab]'"
    return EnvironmentMissing(
        f"spillway {found.name} needs the Python package {what}, which is not installed",
        hint=f"pip install {wanted}; spillway doctor lists what else is missing",
    )


def _rank(found: metadata.EntryPoint) -> tuple[int, str]:
    return (ORDER.index(found.name) if found.name in ORDER else len(ORDER), found.name)


for _found in sorted(metadata.entry_points(group=COMMANDS), key=_rank):
    register(app, _found)


if __name__ == "__main__":
    main()

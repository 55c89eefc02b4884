"""`spillway simulate`: the policies and protocols of the product on a simulated cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from spillway.cli.figures import count, size
from spillway.cli.output import JsonOption, console_for, emit_json, guarded
from spillway.errors import SettingsError

if TYPE_CHECKING:
    from spillway_lab.simulator.cluster.scenario import Machine, Scenario
    from spillway_lab.simulator.cluster.simulation import Result

VIOLATED = 1
#: Points of the series that are shown to people.
_SHOWN = 20


def simulate(
    scenario: Annotated[
        str,
        typer.Argument(
            help="baseline, rotating, blocked, pressure, adapting, large; or a JSON file."
        ),
    ] = "baseline",
    seconds: Annotated[float | None, typer.Option(help="Virtual seconds.")] = None,
    slots: Annotated[int | None, typer.Option(help="Simulated slots.")] = None,
    groups: Annotated[int | None, typer.Option(help="Partition groups.")] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help="How slots share memory and load: a strategy of .adapt()."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random numbers.")] = None,
    journal: Annotated[
        bool, typer.Option("--journal", help="Include every event in the JSON document.")
    ] = False,
    machine: Annotated[
        Path | None,
        typer.Option(help="File from --calibrate: simulate slots on machines like that one."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure this machine, write the result to --machine, and exit."
        ),
    ] = False,
    dashboard: Annotated[
        bool,
        typer.Option("--dashboard", help="Show the run as a live page, until interrupted."),
    ] = False,
    port: Annotated[int, typer.Option(help="Port of --dashboard; 0 takes a free one.")] = 0,
    speed: Annotated[
        float, typer.Option(help="Virtual seconds per second with --dashboard.", min=0.01)
    ] = 1.0,
    record: Annotated[
        Path | None, typer.Option(help="Write the run as a page that plays it, a .html file.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the scenario as JSON and exit.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Run policies and protocols on a simulated cluster, in virtual time; exit 1 if a check fails.

    It does not start Spark. The same scenario and seed give the same numbers.
    """
    errors = Console(stderr=True, markup=False, highlight=False)
    with guarded(json_output):
        if calibrate:
            _calibrate(machine, errors, json_output)
            return
        asked = {"seconds": seconds, "slots": slots, "groups": groups, "seed": seed}
        changes: dict[str, Any] = {k: v for k, v in asked.items() if v is not None}
        wanted = _scenario(scenario, changes, strategy, machine)
        if show:
            emit_json(wanted.to_json())
            return
        if dashboard or record is not None:
            found = _show_live(wanted, errors, port if dashboard else None, speed, record)
        else:
            found = _run_quietly(wanted, errors)
    if json_output:
        document = found.to_json()
        emit_json(document if journal else {k: v for k, v in document.items() if k != "journal"})
    else:
        _print(found, console_for(json_output))
    if found.violations:
        raise typer.Exit(VIOLATED)


def _show_live(
    wanted: Scenario, errors: Console, port: int | None, speed: float, record: Path | None
) -> Result:
    """Records the run, serves it, or both; the runs are equal."""
    from spillway_lab.simulator.cluster.live import record_run, serve_run

    if record is not None:
        found = record_run(wanted, record)
        errors.print(f"{record} plays {wanted.seconds:g} virtual seconds of {wanted.name}")
    if port is not None:
        found = serve_run(
            wanted, port, speed, lambda url: errors.print(f"dashboard: {url} (Ctrl-C ends it)")
        )
    return found


def _run_quietly(wanted: Scenario, errors: Console) -> Result:
    """Runs with a line of progress."""
    from spillway_lab.simulator.cluster.simulation import simulate as run

    told = f"{wanted.name}: {{:g}} of {wanted.seconds:g} virtual seconds"
    with errors.status(told.format(0)) as status:
        return run(wanted, tell=lambda at: status.update(told.format(at)))


def _calibrate(path: Path | None, errors: Console, json_output: bool) -> None:
    from spillway_lab.simulator.cluster.calibration import calibrate

    with errors.status("measuring this machine") as status:
        found = calibrate(tell=lambda what: status.update(f"measuring this machine: {what}"))
    document = found.to_json()
    if path is not None:
        try:
            path.write_text(json.dumps(document, indent=2) + "\n")
        except OSError as problem:
            raise SettingsError(
                f"cannot write the measurements to {path}",
                detail=str(problem),
                hint="choose another --machine",
            ) from problem
    if json_output:
        emit_json(document)
        return
    table = Table("what", "measured")
    for name, value in document["measured"].items():
        table.add_row(name, f"{value:,.4g}")
    console_for(json_output).print(table)


def _scenario(
    name: str, changes: dict[str, Any], strategy: str | None, machine: Path | None
) -> Scenario:
    from spillway_lab.simulator.cluster.presets import preset
    from spillway_lab.simulator.cluster.scenario import Scenario

    path = Path(name)
    found = Scenario.from_json(_read(path)) if path.suffix == ".json" else preset(name)
    if strategy is not None:
        changes["adapt"] = {**found.adapt, "strategy": strategy}
    if machine is not None:
        changes["machine"] = _machine(machine)
    return found.changed(**changes) if changes else found


def _machine(path: Path) -> Machine:
    from spillway_lab.simulator.cluster.scenario import Scenario

    found = _read(path)
    if not isinstance(found, dict) or "machine" not in found:
        raise SettingsError(
            f"{path} does not hold the measurements of a machine",
            hint=f"run spillway simulate --calibrate --machine {path} to write them",
        )
    return Scenario.from_json({"machine": found["machine"]}).machine


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise SettingsError(
            f"cannot read {path} as JSON",
            detail=str(problem),
            hint="run spillway simulate baseline --show > scenario.json to make one",
        ) from problem


def _print(found: Result, console: Console) -> None:
    table = Table(
        "second", "rows/s", "latency", "delay", "fullest", "on disk", "busy, %", "moves",
        title=found.scenario.name, title_justify="left",
    )  # fmt: skip
    for column in table.columns:
        column.justify = "right"
    series = found.series
    points = len(series["second"])
    every = max(1, -(-points // _SHOWN))
    for at in range(every - 1, points, every):
        one = {name: values[at] for name, values in series.items()}
        table.add_row(
            f"{one['second']:g}",
            count(one["rows_per_s"]),
            _time(one["latency_s"]),
            _time(one["delay_s"]),
            size(one["fullest_bytes"]),
            size(one["disk_bytes"]),
            f"{one['utilisation_least']:.0%}-{one['utilisation_most']:.0%}".replace("%", ""),
            count(one["moves"]),
        )
    console.print(table)
    totals = found.totals
    console.print(
        f"{count(totals['rows_processed'])} rows in {found.scenario.seconds:g} virtual seconds, "
        f"{count(totals['rows_per_s'])} a second; {count(totals['moves'])} moves, "
        f"{count(totals['spills'])} spills"
    )
    for wrong in found.violations:
        console.print(f"check failed: {wrong}")


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"

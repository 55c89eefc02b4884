"""Spillway against Spark's own join: all engines of a case in turn, each in a fresh process.

One engine runs at a time, with its own Java, so none inherits garbage or compiled code. Checkpoints
go to the same disk and are removed after each run. Spark's own joins run with their defaults.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spillway.doctor import memory_bytes, require_java
from spillway.errors import QueryError, SettingsError
from spillway_lab.bench.figures import (
    board_document,
    case_document,
    engine_figures,
    plans_document,
    relocate_document,
    theta_document,
)
from spillway_lab.bench.spec import (
    BOARD,
    CASES,
    CORES,
    DRIFT,
    KNOWN_ENGINES,
    RELOCATE,
    THETA,
    BenchSettings,
    EngineOrder,
    chosen,
)

#: Called with progress: case, engine, and a fact such as {"phase", "batch", "of"}.
Say = Callable[[str, str, dict[str, Any]], None]

_TAIL_LINES = 15
#: Lines of a log that name an error, and how many of them to show.
_CAUSE = re.compile(r"([\w.]+\.)?\w*(Error|Exception): ")
_CAUSES = 3
_STOP_S = 60


def run_bench(
    names: Sequence[str],
    engines: Sequence[str],
    settings: BenchSettings,
    say: Say = lambda *_: None,
) -> Iterator[dict[str, Any]]:
    """Measures the named cases, or all; yields the document of each.

    Names are checked at once; a case runs when its document is consumed.
    """
    wanted = chosen("benchmark", names, list(CASES))
    able = chosen("engine", engines, KNOWN_ENGINES)
    for name in wanted:
        if not set(able) & set(CASES[name].engines):
            raise SettingsError(
                f"none of the engines {', '.join(able)} runs {name}",
                hint=f"{name} is for {', '.join(CASES[name].engines)}",
            )
    require_java()
    return (_run_case(name, able, settings, say) for name in wanted)


def settle(share: float | None = None) -> int:
    """Touches the free memory in a child process; returns the bytes touched."""
    command = [sys.executable, "-m", "spillway_lab.bench.settle"]
    done = subprocess.run(
        [*command, *([] if share is None else [str(share)])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    # The measurement continues even if the machine refuses the memory.
    return int(done.stdout) if done.returncode == 0 else 0


def _run_case(name: str, able: Sequence[str], settings: BenchSettings, say: Say) -> dict[str, Any]:
    engines = [engine for engine in able if engine in CASES[name].engines]
    results = {engine: run_engine(name, engine, settings, say) for engine in engines}
    return _document(name, results, settings)


def run_engine(name: str, engine: str, settings: BenchSettings, say: Say) -> dict[str, Any]:
    """Runs one engine of one case in a child process; returns its result."""
    folder = Path(tempfile.mkdtemp(prefix="spillway-bench-", dir=settings.directory)).resolve()
    try:
        order = EngineOrder.of(name, engine, settings, str(folder))
        (folder / "order.json").write_text(json.dumps(order.to_json()))
        module = CASES[name].module
        with (folder / "log").open("wb") as log, _child(module, folder, log.fileno()) as child:
            assert child.stdout is not None
            for line in child.stdout:
                with suppress(json.JSONDecodeError):
                    say(name, engine, json.loads(line))
            child.wait()
        if child.returncode != 0:
            raise _failed(name, engine, folder / "log", child.returncode)
        result: dict[str, Any] = json.loads((folder / "result.json").read_text())
        return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _child(module: str, folder: Path, log: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", module]
    child = subprocess.Popen(
        [*command, str(folder / "order.json"), str(folder / "result.json")],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        # Java and its workers write files to their working directory.
        cwd=folder,
        # Only this process gets keyboard interrupts; it passes them on once.
        start_new_session=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            # An interrupted child stops its query, which frees its shared memory.
            child.send_signal(signal.SIGINT)
            try:
                child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
        if child.stdout is not None:
            child.stdout.close()


def _failed(name: str, engine: str, log: Path, code: int) -> QueryError:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    # Spark's description of the query, which comes last, would hide the cause.
    causes = [line for line in lines if _CAUSE.match(line.strip())]
    return QueryError(
        f"engine {engine} failed in {name}, with exit code {code}",
        detail="\n".join((*causes[-_CAUSES:], *lines[-_TAIL_LINES:])) or None,
        hint="run `spillway doctor`; if memory is short, set --driver-memory or use fewer --rows",
    )


def _document(
    name: str, results: dict[str, dict[str, Any]], settings: BenchSettings
) -> dict[str, Any]:
    setup = {key: value for key, value in asdict(settings).items() if key != "directory"}
    machine = {
        "cores_used": CORES,
        "cores": os.cpu_count(),
        "memory_bytes": memory_bytes(),
        "spark": next(iter(results.values()))["spark"],
        "python": ".".join(map(str, sys.version_info[:3])),
    }
    return {**_figures(name, results, settings), "setup": setup, "machine": machine}


def _figures(
    name: str, results: dict[str, dict[str, Any]], settings: BenchSettings
) -> dict[str, Any]:
    if name == DRIFT:
        return plans_document(results)
    if name == RELOCATE:
        return relocate_document(next(iter(results.values())))
    if name == BOARD:
        return board_document(next(iter(results.values())))
    if name == THETA:
        return theta_document(next(iter(results.values())))
    rows = settings.rows * CASES[name].streams
    figures = {
        engine: engine_figures(result, rows, settings.dropped) for engine, result in results.items()
    }
    return case_document(name, figures)

"""The decisions between two batches are composed once, in the package `spillway.coordinator`.

Others hold a `Coordinator` or a `Conductor`. Whoever imports one of the functions that these are made
of, or reaches it through an imported module, composes a second coordinator, and fails here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = "spillway.coordinator"
#: The functions that are for the package alone.
PARTS = {"adapt", "commit_batch", "plan_batch", "reshape", "resume", "smooth"}
#: Where they are free: the package, and its own tests.
INSIDE = [ROOT / "src" / "spillway" / "coordinator", ROOT / "tests" / "unit" / "coordinator"]


def second_compositions(text: str) -> list[str]:
    """What of a module composes a coordinator, as `line: name`."""
    if "coordinator" not in text:
        return []
    nodes = list(ast.walk(ast.parse(text)))
    found = [*imported_parts(nodes), *reached_parts(nodes, dict(imported_modules(nodes)))]
    return [f"{line}: {name}" for line, name in sorted(found)]


def imported_parts(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Parts that are imported by name."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _inside(node.module or ""):
            yield from ((node.lineno, one.name) for one in node.names if one.name in {*PARTS, "*"})


def imported_modules(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """The names under which modules of the package are known, and the modules."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.asname:
                    yield one.asname, one.name
                elif _inside(one.name):
                    yield one.name, one.name
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                yield one.asname or one.name, f"{node.module}.{one.name}"


def reached_parts(nodes: list[ast.AST], modules: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Parts that are reached as attributes of an imported module."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in PARTS:
            held = ast.unparse(node.value)
            # A class of the package has methods of these names, which are for everybody.
            if _is_module(modules.get(held, "")):
                yield node.lineno, f"{held}.{node.attr}"


def _inside(module: str) -> bool:
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def _is_module(name: str) -> bool:
    path = ROOT / "src" / Path(*name.split("."))
    return _inside(name) and (path.is_dir() or path.with_suffix(".py").is_file())


def outside() -> dict[str, Path]:
    """All modules that may not compose a coordinator, by name."""
    paths = [path for folder in ("src", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
    return {
        path.relative_to(ROOT).as_posix(): path
        for path in paths
        if not any(folder in path.parents for folder in INSIDE)
    }


def test_nobody_else_composes_a_coordinator():
    modules = outside()
    assert len(modules) > 200
    found = {name: second_compositions(path.read_text()) for name, path in modules.items()}
    assert {name: parts for name, parts in found.items() if parts} == {}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("from spillway.coordinator.decisions.adaptation import Rules, adapt", "adapt"),
        ("from spillway.coordinator.batch.commit import commit_batch as made", "commit_batch"),
        ("from spillway.coordinator.coordinator import smooth", "smooth"),
        ("from spillway.coordinator.batch.plan import *", "*"),
        (
            "def later():\n    from spillway.coordinator.decisions.reshaping import reshape",
            "reshape",
        ),
        ("from spillway.coordinator.batch import plan\nplan.plan_batch(1)", "plan.plan_batch"),
        ("import spillway.coordinator.batch.commit as c\nc.commit_batch()", "c.commit_batch"),
        (
            "import spillway.coordinator.batch.commit\nspillway.coordinator.batch.commit.commit_batch()",
            "spillway.coordinator.batch.commit.commit_batch",
        ),
    ],
)
def test_a_part_is_found_in_every_form(text, part):
    line = text.count("\n") + 1
    assert second_compositions(text) == [f"{line}: {part}"]


@pytest.mark.parametrize(
    "text",
    [
        "from spillway.coordinator.decisions.adaptation import Rules, begin",
        "from spillway.coordinator.coordinator import Coordinator\nCoordinator.plan_batch",
        "from spillway.coordinator import plan\nplan.new_note()",
        "scenario.adapt\nadapt = 1",
        "from elsewhere import smooth\nimport numpy as np\nnp.resume",
    ],
)
def test_what_is_for_everybody_is_not_found(text):
    assert second_compositions(text) == []

"""The examples in docstrings are what the code gives."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import spillway
import spillway_lab


def with_examples(package: str, root: Path) -> list[str]:
    """The modules of a package that have examples."""
    paths = (path for path in root.rglob("*.py") if ">>> " in path.read_text())
    places = (path.relative_to(root).with_suffix("").parts for path in paths)
    return sorted(".".join((package, *place)).removesuffix(".__init__") for place in places)


MODULES = [
    name
    for package in (spillway, spillway_lab)
    for name in with_examples(package.__name__, Path(str(package.__file__)).parent)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name: str) -> None:
    # Those that need a session are written to be skipped.
    assert doctest.testmod(import_module(name)).failed == 0

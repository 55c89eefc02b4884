"""The examples in docstrings are what the code gives."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import spillway

ROOT = Path(spillway.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(("spillway", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_give_what_they_say(name: str) -> None:
    # Those that need a session are written to be skipped.
    assert doctest.testmod(import_module(name)).failed == 0

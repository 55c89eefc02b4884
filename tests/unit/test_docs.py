"""The documentation says what the code does, where it can be compared."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from spillway.metrics.events import STEPS, TRACK_STEPS
from spillway.protocols.diagram import DRAWN, diagram, marks, rendered
from spillway.settings import STRATEGIES, Adapt

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "spillway"


def text(name: str) -> str:
    return (ROOT / name).read_text()


def first_cells(page: str, head: str) -> list[str]:
    """The names in the first column of the table with that head."""
    rows = page.split(f"| {head} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_diagram_of_the_phases_is_drawn_from_the_table() -> None:
    page = text("docs/architecture.md")
    assert all(page.count(mark) == 1 for name in DRAWN for mark in marks(name))
    assert rendered(page) == page


@pytest.mark.parametrize("name", DRAWN)
def test_diagram_has_every_transition(name: str) -> None:
    arrows = [line for line in diagram(name).splitlines() if " : " in line]
    assert len(arrows) == len(set(arrows)) == sum(map(len, DRAWN[name].values()))
    ends = {"relocation": "Reactivated", "parallel-track": "EndOfPartitions"}
    assert f"    rolling_back --> [*] : {ends[name]}" in arrows


def test_steps_of_a_move_are_those_of_the_papers() -> None:
    page = text("docs/architecture.md")
    assert first_cells(page, "message") == [one.message for one in STEPS]
    _, track = page.split("## One parallel track", 1)
    assert first_cells(track, "message") == [one.message for one in TRACK_STEPS]


def test_readme_has_every_strategy_and_every_setting() -> None:
    page = text("README.md")
    assert first_cells(page, "strategy") == list(STRATEGIES)
    assert sorted(first_cells(page, "setting")) == sorted(one.name for one in fields(Adapt))


@pytest.mark.parametrize("name", ["docs/architecture.md", "docs/glossary.md"])
def test_paths_in_the_documentation_exist(name: str) -> None:
    paths = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", text(name))
    known = [path for path in paths if (SOURCE / path.split("/")[0]).is_dir()]
    assert len(known) > 20
    assert [path for path in known if not (SOURCE / path).exists()] == []

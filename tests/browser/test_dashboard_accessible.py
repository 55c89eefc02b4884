"""axe-core finds no serious accessibility issue; npm brings it, for this test only."""

from __future__ import annotations

import shutil
import subprocess
import tarfile

import pytest
from dashboard_cases import move_steps, moving, slots, spilled, start, step
from dashboard_pages import drawn, until

from spillway.dashboard.server.controls import Controls
from spillway.dashboard.server.serving import Dashboard

VERSION = "4"
SERIOUS = ("serious", "critical")

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm to get axe-core")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run(
        ["npm", "pack", "--silent", f"axe-core@{VERSION}"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = list(folder.glob("axe-core-*.tgz"))
    if done.returncode != 0 or not found:
        pytest.skip("npm could not get axe-core")
    with tarfile.open(found[0]) as packed:
        script = packed.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_has_no_serious_accessibility_issue(open_page, feed, axe, width, dark) -> None:
    with Dashboard(feed, controls=Controls({"scale": lambda _: "done"})) as opened:
        start(feed, controls=("scale", "memory", "pause", "cleanup"))
        steps = move_steps(4, 2, upto=5)
        shapes = ("((a b) c)",) * 4
        busy = (slots(4, 4, (moving(4),), shapes=shapes),)
        feed.publish(step(4, happenings=(spilled(4), *steps), slots=busy))
        page = open_page(opened.control_url, width=width, height=844, dark=dark)
        drawn(page)
        until(page, "document.querySelectorAll('#timeline .event').length === 2")
        page.click("#slot-details summary")
        page.click("#timeline details summary")
        page.focus("#heat")
        for key in ("ArrowRight", "Enter"):
            page.keyboard.press(key)
        until(page, "!document.querySelector('#pinned').hidden")
        page.evaluate(axe)
        found = page.evaluate("axe.run(document)")
        wrong = [
            (one["impact"], one["id"], node["html"][:160], node.get("failureSummary"))
            for one in found["violations"]
            if one["impact"] in SERIOUS
            for node in one["nodes"][:3]
        ]
        assert wrong == []
        assert len(found["passes"]) > 10

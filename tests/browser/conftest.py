"""One Chromium for the tests of each file of this folder, and the dashboard in it.

It ends with the file, because Playwright keeps an event loop running in the thread of the tests.

The flags are those for a browser that runs as root in a container. Without a Chromium the tests skip;
`scripts/ensure-chromium` installs one where that is permitted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from spillway.dashboard.feed.feed import Feed
from spillway.dashboard.server.serving import Dashboard

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_NAMES = ("chromium", "chromium-browser", "google-chrome")

Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium: scripts/ensure-chromium, or set CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Opener]:
    """Opens a page at an address; fails at the end if the page had an error or asked the network."""
    contexts, problems = [], []

    def opened(url: str, *, width: int = 1280, height: int = 900, dark: bool = False, **more: Any):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            **more,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda one: problems.append(one.text) if one.type == "error" else None)
        own = url.split("#")[0].rstrip("/")

        def asked(request: Any) -> None:
            if not request.url.startswith((own, "data:", "blob:", "file:")):
                problems.append(f"the page asked {request.url}")

        page.on("request", asked)
        page.goto(url)
        return page

    opened.problems = problems  # type: ignore[attr-defined]
    yield opened
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def dashboard(feed: Feed) -> Iterator[Dashboard]:
    with Dashboard(feed) as opened:
        yield opened

"""Waiting for what a page shows."""

from __future__ import annotations

import time
from typing import Any

from playwright.sync_api import Page

_PATIENCE_S = 30.0


def until(page: Page, expression: str, *, seconds: float = _PATIENCE_S) -> Any:
    """Waits until an expression is true in the page; returns its value.

    Playwright's own wait needs `eval`, which the page's policy forbids.
    """
    ends = time.monotonic() + seconds
    while not (found := page.evaluate(expression)):
        assert time.monotonic() < ends, f"{expression} stayed {found!r}"
        page.wait_for_timeout(50)
    return found


def drawn(page: Page) -> None:
    """Waits until the page has drawn the last message that its feed has now."""
    until(page, "!!spillway.updates && spillway.page.model.about !== null")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

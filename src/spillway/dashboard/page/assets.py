"""The files that the page is made of, from the wheel; no other file is ever served."""

from __future__ import annotations

from functools import cache
from importlib import resources

#: Content types by the end of a name.
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
STYLES = ("uplot.css", "style.css")
#: In the order in which they run.
SCRIPTS = (
    "uplot.js",
    "text.js",
    "model.js",
    "chapters.js",
    "heat.js",
    "charts.js",
    "timeline.js",
    "flow.js",
    "controls.js",
    "sources.js",
    "app.js",
)
_NAMES = frozenset(("index.html", "icon.svg", "uplot.LICENSE.txt", *STYLES, *SCRIPTS))


@cache
def asset(name: str) -> bytes | None:
    """The content of a file of the page; None if the page has no such file.

    Example:
        >>> asset("../assets.py") is None
        True
    """
    if name not in _NAMES:
        return None
    return resources.files(__package__).joinpath("files", name).read_bytes()

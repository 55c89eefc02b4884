"""The plots, drawn only from the figures' documents; matplotlib is imported only here, and late."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spillway.errors import EnvironmentMissing
from spillway_lab.reproduce.flux.page import draw
from spillway_lab.reproduce.spec import FIGURES

#: What a line shows: the divisor for its unit, and the axis.
_AXES = {
    "output": (1e6, "rows produced so far, millions"),
    "memory": (1e6, "state in memory, MB"),
    "slots": (1e6, "state in memory of each slot, MB"),
    "fullest": (1e6, "state in memory of the fullest slot, MB"),
}
_SIZE_INCHES = (7.0, 4.2)
_DOTS_PER_INCH = 110


def require_matplotlib() -> None:
    """Raises with the package to install, before anything runs in vain."""
    if find_spec("matplotlib") is None:
        raise EnvironmentMissing(
            "plots need matplotlib, which is not installed",
            hint="pip install 'spillway[lab]', or leave out --out and --page",
        )


def plot(document: Mapping[str, Any], path: Path) -> None:
    """Draws one figure into a PNG file; the same document gives the same bytes."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sheet = Figure(figsize=_SIZE_INCHES, layout="constrained")
    FigureCanvasAgg(sheet)
    axes = sheet.add_subplot()
    drawn = _draw if document["figure"] in FIGURES else draw
    drawn(document, axes)
    axes.title.set_fontsize("medium")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    sheet.savefig(path, dpi=_DOTS_PER_INCH, metadata={"Software": None})


def _draw(document: Mapping[str, Any], axes: Any) -> None:
    figure = FIGURES[document["figure"]]
    divisor, label = _AXES[figure.shows]
    series, limit = document["series"], document["measured"]["limit_bytes"]
    for name, values in series[figure.shows].items():
        axes.plot(series["minute"], [value / divisor for value in values], label=name)
    if figure.shows != "output" and limit is not None:
        axes.axhline(limit / divisor, color="black", linestyle=":", label="limit")
    axes.set(xlabel="virtual minutes", ylabel=label, title=figure.title, ylim=(0, None))

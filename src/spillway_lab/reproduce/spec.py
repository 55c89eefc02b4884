"""What is reproduced: the figures of the papers, those of DCAPE first, then those of its report."""

from __future__ import annotations

import re

from spillway_lab.reproduce.dcape.machines import MACHINES_FIGURES
from spillway_lab.reproduce.dcape.relocation import RELOCATION_FIGURES
from spillway_lab.reproduce.dcape.spill import SPILL_FIGURES
from spillway_lab.reproduce.dcape.strategy import STRATEGY_FIGURES
from spillway_lab.reproduce.terms import Figure


def _in_papers(figure: Figure) -> tuple[bool, int]:
    """A paper's figures by their numbers."""
    return "-tr-" in figure.name, int(re.sub(r"\D", "", figure.name))


_ALL = (*SPILL_FIGURES, *RELOCATION_FIGURES, *STRATEGY_FIGURES, *MACHINES_FIGURES)

FIGURES = {figure.name: figure for figure in sorted(_ALL, key=_in_papers)}

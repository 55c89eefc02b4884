"""Runs PSP's figures on a simulated ring, and makes their documents. No Spark is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spillway_lab.reproduce.flux.figures import documents_of
from spillway_lab.reproduce.psp.rate import RATE_FIGURES
from spillway_lab.reproduce.psp.ring import RING_FIGURES
from spillway_lab.reproduce.psp.rivals import RIVAL_FIGURES
from spillway_lab.reproduce.psp.terms import PspFigure
from spillway_lab.simulator.ring.simulation import simulate_ring

PSP_FIGURES = {figure.name: figure for figure in (*RING_FIGURES, *RIVAL_FIGURES, *RATE_FIGURES)}


def psp_documents(
    figures: Sequence[PspFigure], say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """The documents of PSP's figures."""
    return documents_of(figures, simulate_ring, say)

"""Draws the phase diagrams of moves, as text, from the tables that the code follows."""

from __future__ import annotations

from spillway.protocols.move import Phase, Transitions
from spillway.protocols.parallel_track import TRANSITIONS as TRACK
from spillway.protocols.relocation import TRANSITIONS as RELOCATION

#: The diagrams, by the name between their marks.
DRAWN: dict[str, Transitions] = {"relocation": RELOCATION, "parallel-track": TRACK}


def marks(name: str) -> tuple[str, str]:
    """Returns the marks that begin and end a diagram in a page."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def diagram(name: str) -> str:
    """Draws the phases and the messages between them as a mermaid state diagram.

    Example:
        >>> diagram("relocation").splitlines()[:2]
        ['stateDiagram-v2', '    [*] --> computing']
    """
    lines = ["stateDiagram-v2", f"    [*] --> {_name(Phase.COMPUTING)}"]
    for (before, message), afters in DRAWN[name].items():
        # A set has no order, so use that of the phases.
        for after in (phase for phase in Phase if phase in afters):
            lines.append(f"    {_name(before)} --> {_name(after)} : {message.__name__}")
    return "\n".join(lines)


def rendered(page: str) -> str:
    """Returns the page with the diagrams between their marks."""
    for name in DRAWN:
        begin, end = marks(name)
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n```mermaid\n{diagram(name)}\n```\n{end}{after}"
    return page


def _name(phase: Phase) -> str:
    """Returns a phase name that mermaid accepts."""
    return "[*]" if phase is Phase.ENDED else phase.value.replace("-", "_")

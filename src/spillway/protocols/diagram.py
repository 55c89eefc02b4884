"""The diagram of the phases of a relocation, drawn from the table that the code follows.

    python -m spillway.protocols.diagram PAGE

`tests/unit/test_docs.py` draws it again and fails if the page shows anything else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spillway.protocols.move import Phase
from spillway.protocols.relocation import TRANSITIONS

BEGIN, END = "<!-- relocation:begin -->", "<!-- relocation:end -->"


def relocation_diagram() -> str:
    """The phases and the messages between them, as a mermaid state diagram.

    Example:
        >>> relocation_diagram().splitlines()[:2]
        ['stateDiagram-v2', '    [*] --> computing']
    """
    lines = ["stateDiagram-v2", f"    [*] --> {_name(Phase.COMPUTING)}"]
    for (before, message), afters in TRANSITIONS.items():
        # A set has no order, so that of the phases is taken.
        for after in (phase for phase in Phase if phase in afters):
            lines.append(f"    {_name(before)} --> {_name(after)} : {message.__name__}")
    return "\n".join(lines)


def rendered(page: str) -> str:
    """The page with the diagram between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n```mermaid\n{relocation_diagram()}\n```\n{END}{after}"


def _name(phase: Phase) -> str:
    """A phase as mermaid can name it."""
    return "[*]" if phase is Phase.ENDED else phase.value.replace("-", "_")


def main() -> None:
    """Draws the diagram into a page."""
    page = Path(sys.argv[1])
    page.write_text(rendered(page.read_text()))


if __name__ == "__main__":
    main()

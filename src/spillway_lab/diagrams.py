"""Writes the phase diagrams of moves into a page.

    python -m spillway_lab.diagrams PAGE

`spillway/protocols/diagram.py` draws them from the tables of the protocols. `tests/unit/test_docs.py`
draws them again and fails if the page differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spillway.protocols.diagram import rendered


def main() -> None:
    """Draws the diagrams into a page."""
    page = Path(sys.argv[1])
    page.write_text(rendered(page.read_text()))


if __name__ == "__main__":
    main()

"""The tiers of the tests: quick, full, soak.

make test        quick: every kind of test, few cases of those that take long
make test-full   full: the whole matrix, every step, every operator, many examples
make soak        full, on random examples that no run has seen yet, with more kills
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

SOAK = os.environ.get("SOAK") == "1"
FULL = SOAK or os.environ.get("FULL") == "1"

#: How long a test waits for what must come. That takes seconds, or minutes where many share two cores.
LONGEST_S = 500
#: How many times more examples the full tier draws.
_MORE = 8
#: The fewest examples that the quick tier draws.
_FEWEST = 10


def examples(full: int) -> int:
    """How many examples a property test draws: `full` in the full tier, an eighth in the quick one."""
    return full if FULL else max(_FEWEST, full // _MORE)


def few(cases: Iterable[Any], *quick: int) -> list[Any]:
    """Cases of a parametrised test; all but those at the places `quick` are of the full tier.

    Example: `@pytest.mark.parametrize("kind", few(["parquet", "json", "orc"], 0))`.
    """
    return [
        pytest.param(
            *(one if isinstance(one, tuple) else (one,)),
            marks=() if at in quick else pytest.mark.full,
        )
        for at, one in enumerate(cases)
    ]

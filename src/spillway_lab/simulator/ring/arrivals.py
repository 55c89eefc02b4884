"""Poisson arrivals of rows at a rate that may change. Pure; the generator is an argument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spillway.metrics.groups import Floats


def poisson_times(
    rates: Sequence[tuple[float, float]], seconds: float, rng: np.random.Generator
) -> Floats:
    """The times of rows, ascending; `rates` pairs a second with the rows a second from then on.

    Example:
        >>> times = poisson_times([(0.0, 50.0), (10.0, 100.0)], 20.0, np.random.default_rng(0))
        >>> bool(400 < (times < 10).sum() < 600 < 900 < (times >= 10).sum() < 1100)
        True
    """
    ends = [since for since, _ in rates[1:]] + [seconds]
    parts = []
    for (since, rate), until in zip(rates, ends, strict=True):
        span = max(0.0, min(until, seconds) - since)
        # Given their number, Poisson arrivals are uniform.
        parts.append(np.sort(since + span * rng.random(rng.poisson(rate * span))))
    return np.concatenate(parts)

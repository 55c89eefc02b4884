"""Durations that users write as text, converted to microseconds."""

from __future__ import annotations

import re
from datetime import timedelta

from spillway.errors import PlanError

_UNITS_US = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
    "w": 604_800_000_000,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")

Duration = str | timedelta


def duration_us(what: str, value: Duration) -> int:
    """Converts a duration to microseconds.

    Example:
        >>> duration_us("window", "1 minute 30 seconds")
        90000000
    """
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    total, at = 0.0, 0
    text = str(value).strip().lower().removeprefix("interval ")
    while at < len(text):
        part = _PART.match(text, at)
        unit = part.group(2) if part else ""
        scale = _UNITS_US.get(unit) or _UNITS_US.get(unit.removesuffix("s"))
        if part is None or scale is None:
            total = -1.0
            break
        total += float(part.group(1)) * scale
        at = part.end()
    if total < 0 or not text:
        raise PlanError(
            f"the {what} {value!r} is not a duration",
            detail="months and years have no fixed length and are not durations",
            hint='write for example "10 minutes", "1 hour 30 minutes" or "500 milliseconds"',
        )
    return round(total)

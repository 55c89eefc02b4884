"""Numbers in the form that people read."""

from __future__ import annotations

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def count(number: float) -> str:
    """A whole number with separators between thousands.

    Example:
        >>> count(1234567)
        '1,234,567'
    """
    return f"{number:,.0f}"


def size(number: float) -> str:
    """A number of bytes in decimal units, as in settings.

    Example:
        >>> size(1_234_567)
        '1.2 MB'
    """
    unit = 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.1f} {_UNITS[unit]}" if unit else f"{number:.0f} {_UNITS[0]}"

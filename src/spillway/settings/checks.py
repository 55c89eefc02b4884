"""Which values of settings are valid, and the errors for the others.

Every message names the setting, the value and what is expected; every hint is a call that works.
"""

from __future__ import annotations

import re
from typing import Any

from spillway.duration import duration_us
from spillway.errors import SettingsError
from spillway.settings.choices import AUTO

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_UNITS |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}

#: Settings that are not texts, but may be "auto".
MAY_BE_AUTO = ("imbalance_threshold", "delta_min", "t_gap", "batch_target")


def parse_bytes(name: str, value: int | str) -> int:
    """A number of bytes from a number or from text with a unit.

    Example:
        >>> parse_bytes("memory", "64 MiB")
        67108864
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", str(value))
    if found and found.group(2).lower() in _UNITS:
        amount = int(float(found.group(1)) * _UNITS[found.group(2).lower()])
        if amount > 0:
            return amount
    raise SettingsError(
        f"{name}={value!r} must be a positive number of bytes",
        hint=f'write for example {name}="200MB" or {name}=200000000',
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_count(name: str, value: Any) -> None:
    """Raises unless the value is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise SettingsError(
            f"{name}={value!r} must be a whole number of at least 1", hint=_example(name, "8")
        )


def check_fraction(name: str, value: Any) -> None:
    """Raises unless the value is above 0 and at most 1."""
    if not _is_number(value) or not 0 < value <= 1:
        raise SettingsError(
            f"{name}={value!r} must be a number above 0 and at most 1", hint=_example(name, "0.3")
        )


def check_ratio(name: str, value: Any, example: str) -> None:
    """Raises unless the value is a number of at least 1."""
    if not _is_number(value) or not value >= 1:
        raise SettingsError(
            f"{name}={value!r} must be a number of at least 1", hint=_example(name, example)
        )


def check_duration(name: str, value: Any, example: str) -> None:
    """Raises unless the value is a duration longer than zero."""
    if duration_us(name, value) <= 0:
        raise SettingsError(
            f"{name}={value!r} must be a positive duration", hint=_example(name, example)
        )


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raises unless the value is one of the choices."""
    if value not in choices:
        raise SettingsError(
            f"{name}={value!r} is not one of {', '.join(map(repr, choices))}",
            hint=_example(name, repr(choices[0])),
        )


def _example(name: str, value: str) -> str:
    auto = f' or .adapt({name}="{AUTO}")' if name in MAY_BE_AUTO else ""
    return f"write for example .adapt({name}={value}){auto}"

"""Builds descriptions of simulations from plain data, such as a user's JSON file.

The codec reads the values. This module checks names first: a misspelt field that silently kept its
default would simulate something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from spillway.codec import made
from spillway.errors import SettingsError

_T = TypeVar("_T")


def described(kind: type[_T], found: Any, where: str) -> _T:
    """A description from plain data; missing fields have their defaults."""
    _check_names(kind, found, where)
    try:
        return made(kind, found)
    except ValueError as problem:
        raise SettingsError(
            f"a field of {where} has the wrong type",
            detail=str(problem),
            hint="compare it with the output of spillway simulate baseline --show",
        ) from problem


def _check_names(kind: Any, found: Any, where: str) -> None:
    if not isinstance(found, Mapping):
        raise SettingsError(
            f"{where} must be an object, not {found!r}",
            hint=f"its fields are {', '.join(one.name for one in fields(kind))}",
        )
    types, names = get_type_hints(kind), [one.name for one in fields(kind)]
    for name, value in found.items():
        if name not in names:
            raise SettingsError(
                f"{where} has no field {name!r}", hint=f"the fields are {', '.join(names)}"
            )
        for inner, one, place in _inner(types[name], value, name):
            _check_names(inner, one, place)


def _inner(kind: Any, value: Any, name: str) -> Iterator[tuple[Any, Any, str]]:
    """The descriptions inside a field, with their kinds and names."""
    if is_dataclass(kind):
        yield kind, value, name
    elif isinstance(value, list | tuple) and is_dataclass(next(iter(get_args(kind)), None)):
        for number, one in enumerate(value):
            yield get_args(kind)[0], one, f"{name}[{number}]"

"""Values from the environment in a job file: `${VAR}` and `${VAR:-default}`.

Values enter after the file is parsed, so they cannot change its structure. No text of Spillway shows
them (spillway/redaction.py), so they may be secrets. `$${` is a plain `${`. `${JOB_DIR}` is the folder
of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spillway.errors import SettingsError
from spillway.redaction import learn_secret

JOB_DIR = "JOB_DIR"
_USE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def with_environment(value: Any, environment: Mapping[str, str], field: str = "") -> Any:
    """A parsed file with values of the environment; raises with the field of one that is missing.

    Example:
        >>> with_environment({"path": "${HOME:-/tmp}/in"}, {})
        {'path': '/tmp/in'}
    """
    if isinstance(value, Mapping):
        return {
            key: with_environment(one, environment, f"{field}.{key}".lstrip("."))
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [
            with_environment(one, environment, f"{field}[{at}]") for at, one in enumerate(value)
        ]
    if not isinstance(value, str):
        return value
    return _USE.sub(lambda use: _value(use, environment, field), value)


def _value(use: re.Match[str], environment: Mapping[str, str], field: str) -> str:
    if use[1]:
        return "${"
    named = _NAME.fullmatch(use[2])
    if named is None:
        raise SettingsError(
            f"{field} has {use[0]}, which is not a variable",
            hint="write ${VAR}, ${VAR:-default}, or $${ for a plain ${",
        )
    name, default = named[1], named[2]
    found = environment.get(name, default)
    if found is None:
        raise SettingsError(
            f"{field} needs the environment variable {name}, which is not set",
            hint=f"export {name}=..., or write ${{{name}:-default}}",
        )
    if name in environment and name != JOB_DIR:
        learn_secret(found)
    return found

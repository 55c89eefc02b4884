"""Checkpoint files: JSON with the format number first, sealed with a checksum.

Every kind of file has a `Format`. A version checks the format number before it reads the rest of a
file. It rejects files that are too old with one message and files that are too new with another.
The policy is in docs/formats.md: a release reads every format that its major version has written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from spillway.codec import decode
from spillway.errors import StateError
from spillway.kernels.checksum import sealed, unsealed

_T = TypeVar("_T")
#: Names the readers of older formats: there was no release before 0.1.0.
_OLDER_READERS = "builds of Spillway before the release of 0.1.0"


class _Head(msgspec.Struct):
    """The fields that every file has in any format."""

    format: int


@dataclass(frozen=True)
class Format:
    """The format of one kind of file."""

    #: The format that this version writes, and the oldest that it reads.
    number: int
    oldest: int

    def stamped(self, body: bytes) -> bytes:
        """Returns a JSON object with the format number as its first field.

        Example:
            >>> Format(3, 2).stamped(b'{"rows":1}')
            b'{"format":3,"rows":1}'
        """
        return b'{"format":%d,' % self.number + body[1:]

    def written(self, body: bytes) -> bytes:
        """Returns the bytes of a file: a JSON object, stamped and sealed."""
        return sealed(self.stamped(body))

    def body_of(self, data: Any, what: str, location: str = "") -> bytes:
        """Returns the JSON of a file. Rejects damaged files and unsupported formats."""
        body = unsealed(data)
        if body is None:
            raise StateError(
                f"{what} is damaged",
                detail=f"its checksum does not match its content{_inside(location)}",
                hint="restore the checkpoint directory from a backup",
            )
        return self.checked(body, what, location)

    def checked(self, body: bytes, what: str, location: str = "") -> bytes:
        """Returns the same JSON. Rejects a format that this version cannot read."""
        found = read_as(_Head, body, what, location).format
        if found > self.number:
            raise StateError(
                f"{what} was written by a newer version of Spillway",
                detail=f"{self._reads(found)}{_inside(location)}",
                hint="upgrade Spillway, or use another checkpoint location",
            )
        if found < self.oldest:
            raise StateError(
                f"{what} was written by an older version of Spillway",
                detail=f"{self._reads(found)}, {_OLDER_READERS} read format {found}"
                f"{_inside(location)}",
                hint=(
                    "finish the query with the version that wrote the checkpoint, or use a "
                    "new checkpoint location"
                ),
            )
        return body

    def _reads(self, found: int) -> str:
        whole = f"formats {self.oldest} to {self.number}"
        known = whole if self.oldest < self.number else f"format {self.number}"
        return f"its format is {found}, this version reads {known}"


def read_as(kind: type[_T], body: bytes, what: str, location: str = "", shared: Any = None) -> _T:
    """Decodes JSON to a value. If the types do not match, the error names the file."""
    try:
        return decode(kind, body, shared)
    except ValueError as problem:
        raise StateError(
            f"{what} cannot be read",
            detail=f"{problem}{_inside(location)}",
            hint="restore the checkpoint directory from a backup",
        ) from problem


def _inside(location: str) -> str:
    return f"; in {location}" if location else ""

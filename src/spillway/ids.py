"""Identifiers of the domain, as distinct types."""

from __future__ import annotations

from typing import NewType

SlotId = NewType("SlotId", int)
#: A state version is the id of the batch that wrote it; -1 is the empty state.
Version = NewType("Version", int)

NO_VERSION = Version(-1)
#: One more than the largest 32-bit hash: the hash domain is [0, HASH_END).
HASH_END = 1 << 32

"""What operators count of pairs of rows, by typed keys, and how these are written down.

    Probed(i, j)     rows of side i that looked for partners in side j, and the partners they found
    Sampled(i, j)    pairs of a few rows of stream i with rows of stream j, and those that matched
    Judged(p)        pairs that predicate p was given, and those that passed
    Spent(p)         pairs that predicate p was given, and the seconds that it took

Sides are named by the numbers of their streams ("0", "0+1"), predicates by any text. `key_text` and
`key_of_text` are the only places that know the text form. It is unambiguous: the text of a predicate
follows a word, and a side has neither a letter nor a sign of a pair in its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Probed:
    """Partners that the rows of one side found in another."""

    source: str
    target: str


@dataclass(frozen=True)
class Sampled:
    """Matches among all pairs of a few rows of one stream with the rows of another."""

    source: str
    target: str


@dataclass(frozen=True)
class Judged:
    """Pairs that a predicate let pass."""

    predicate: str


@dataclass(frozen=True)
class Spent:
    """Seconds that a predicate took."""

    predicate: str


Key: TypeAlias = Probed | Sampled | Judged | Spent
#: For each key, how many were looked at, and what came of them.
Counts: TypeAlias = Mapping[Key, tuple[float, float]]

_JUDGED, _SPENT = "match ", "cost "
_PROBED, _SAMPLED = ">", "~"


def key_text(key: Key) -> str:
    """The text of a key, as manifests have it.

    Example:
        >>> key_text(Sampled("0", "1")), key_text(Judged("0:near"))
        ('0~1', 'match 0:near')
    """
    match key:
        case Probed(source, target):
            return f"{source}{_PROBED}{target}"
        case Sampled(source, target):
            return f"{source}{_SAMPLED}{target}"
        case Judged(predicate):
            return _JUDGED + predicate
        case Spent(predicate):
            return _SPENT + predicate


def key_of_text(text: str) -> Key:
    """The inverse of `key_text`.

    Example:
        >>> key_of_text("match a.x ~ b.x")
        Judged(predicate='a.x ~ b.x')
    """
    if text.startswith(_JUDGED):
        return Judged(text.removeprefix(_JUDGED))
    if text.startswith(_SPENT):
        return Spent(text.removeprefix(_SPENT))
    if _SAMPLED in text:
        return Sampled(*text.split(_SAMPLED))
    return Probed(*text.split(_PROBED))


def added(counts: Iterable[Counts]) -> dict[Key, tuple[float, float]]:
    """What several slots, batches or visits have counted, as one.

    Example:
        >>> added([{Probed("0", "1"): (1.0, 2.0)}, {Probed("0", "1"): (3.0, 4.0)}])
        {Probed(source='0', target='1'): (4.0, 6.0)}
    """
    found: dict[Key, tuple[float, float]] = {}
    for key, (looked_at, came) in (item for one in counts for item in one.items()):
        before = found.get(key, (0.0, 0.0))
        found[key] = before[0] + looked_at, before[1] + came
    return found


def of_predicates(counts: Counts) -> dict[Key, tuple[float, float]]:
    """What was counted of predicates."""
    return {key: of for key, of in counts.items() if isinstance(key, Judged | Spent)}


def recorded(counts: Counts) -> dict[Key, tuple[float, float]]:
    """What the coordinator decides by: everything but partners found, which each slot uses itself."""
    return {key: of for key, of in counts.items() if not isinstance(key, Probed)}


def texts_of(counts: Counts) -> dict[str, tuple[float, float]]:
    """Counts by the texts of their keys, as files have them."""
    return {key_text(key): found for key, found in counts.items()}


def of_texts(found: Mapping[str, tuple[float, float]]) -> Counts:
    """The inverse of `texts_of`."""
    return {key_of_text(text): of for text, of in found.items()}

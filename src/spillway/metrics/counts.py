"""Operator counts of row pairs, by typed keys, and their text form.

    Probed(i, j)     rows of side i that looked for partners in side j, and the partners they found
    Sampled(i, j)    pairs of a few rows of stream i with rows of stream j, and those that matched
    Judged(p)        pairs that predicate p evaluated, and those that passed
    Spent(p)         pairs that predicate p evaluated, and the seconds that it took

A side has the numbers of its streams as its name ("0", "0+1"), a predicate any text. Only
`key_text` and `key_of_text` know the text form. It is unambiguous: a word precedes the text of a
predicate, and a side has no letters.
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
    """Pairs that passed a predicate."""

    predicate: str


@dataclass(frozen=True)
class Spent:
    """Seconds that a predicate took."""

    predicate: str


Key: TypeAlias = Probed | Sampled | Judged | Spent
#: For each key, how many were examined, and the outcome.
Counts: TypeAlias = Mapping[Key, tuple[float, float]]

_JUDGED, _SPENT = "match ", "cost "
_PROBED, _SAMPLED = ">", "~"


def key_text(key: Key) -> str:
    """Returns the text of a key, as in manifests.

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
    """Adds the counts of several slots, batches or visits.

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
    """Returns only the predicate counts."""
    return {key: of for key, of in counts.items() if isinstance(key, Judged | Spent)}


def recorded(counts: Counts) -> dict[Key, tuple[float, float]]:
    """Returns the counts that the coordinator uses: all except partners found, for the slot itself."""
    return {key: of for key, of in counts.items() if not isinstance(key, Probed)}


def texts_of(counts: Counts) -> dict[str, tuple[float, float]]:
    """Returns counts by the texts of their keys, as in files."""
    return {key_text(key): found for key, found in counts.items()}


def of_texts(found: Mapping[str, tuple[float, float]]) -> Counts:
    """The inverse of `texts_of`."""
    return {key_of_text(text): of for text, of in found.items()}

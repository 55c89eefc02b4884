"""The types of values in SQL conditions, as Spark names them, and the common type of two.

The rules are those of Spark's ANSI mode, the default of Spark 4: two whole numbers become the wider
type; a whole number and a `float` become `double`; a decimal and a floating point number become
`double`; a decimal and a whole number become a decimal that holds both. If 38 digits are not enough,
Spark rounds; here there is no common type. Nor is there one for text and numbers, or for dates and
timestamps, where Spark would convert row by row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Digits of the widest decimal.
WIDEST = 38
#: Whole numbers, from narrow to wide: bits, and digits of the decimal that holds all of them.
_WHOLE = {"tinyint": (8, 3), "smallint": (16, 5), "int": (32, 10), "bigint": (64, 20)}
_FLOATING = ("float", "double")
_OTHERS = ("boolean", "string", "date", "timestamp", "timestamp_ntz")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True)
class Kind:
    """A type; precision and scale are those of a decimal."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.decimal else self.name

    @property
    def known(self) -> bool:
        """Whether values can be compared, not only tested for NULL."""
        return self.number or self.name in _OTHERS

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return self.name in _WHOLE

    @property
    def floating(self) -> bool:
        """Whether its values are floating point numbers."""
        return self.name in _FLOATING

    @property
    def decimal(self) -> bool:
        """Whether its values are decimals."""
        return self.name == "decimal"

    @property
    def number(self) -> bool:
        """Whether its values are numbers."""
        return self.whole or self.floating or self.decimal

    @property
    def time(self) -> bool:
        """Whether its values are dates or timestamps."""
        return self.name in ("date", "timestamp", "timestamp_ntz")

    @property
    def limit(self) -> int:
        """The first whole number that is too large."""
        return 1 << (_WHOLE.get(self.name, (64, 0))[0] - 1)

    @property
    def digits(self) -> tuple[int, int]:
        """Precision and scale of the decimal that holds all numbers of the type."""
        return (self.precision, self.scale) if self.decimal else (_WHOLE[self.name][1], 0)


BOOLEAN, STRING, DATE = Kind("boolean"), Kind("string"), Kind("date")
TIMESTAMP, TIMESTAMP_NTZ = Kind("timestamp"), Kind("timestamp_ntz")
INT, BIGINT, DOUBLE = Kind("int"), Kind("bigint"), Kind("double")
#: The type of NULL, which converts to any other; and of an interval, in microseconds.
VOID, INTERVAL = Kind("void"), Kind("interval")


def kind_of(name: str) -> Kind:
    """The type with this name in Spark (`DataType.simpleString`)."""
    if (found := _DECIMAL.fullmatch(name)) is not None:
        return Kind("decimal", *map(int, found.groups()))
    return Kind(name)


def decimal_of(precision: int, scale: int) -> Kind | None:
    """The decimal type, if 38 digits are enough."""
    return Kind("decimal", precision, scale) if precision <= WIDEST else None


def common(left: Kind, right: Kind) -> Kind | None:
    """The type to which both are converted for a comparison; None: there is none."""
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    if not left.number or not right.number:
        return None
    if left.floating or right.floating:
        return DOUBLE
    if left.decimal or right.decimal:
        (mine, my_scale), (theirs, their_scale) = left.digits, right.digits
        scale = max(my_scale, their_scale)
        return decimal_of(max(mine - my_scale, theirs - their_scale) + scale, scale)
    return max(left, right, key=lambda kind: kind.limit)
